"""Turns a request into token ids and a grammar, in a process of its own.

Chat templates come from the model file and schemas from clients: both can loop, explode or crash
what they run in. So they run in the child `steelyard: prepare`, which the daemon kills and
restarts at will. `client.Preparer` is the daemon's side, `process` the child's.
"""
