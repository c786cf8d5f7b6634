"""The engine child: llama.cpp behind a continuous-batching loop of our own.

`process` talks to the daemon, `step` turns the loop, `scheduler`, `kv`, `prefix`, `sequence` and
`drafts` decide (pure), `runner`, `sampling` and `vocab` alone call llama.cpp, which `llama` loads.
"""
