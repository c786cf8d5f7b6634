"""What the operator reads when the box is ready: where it is, the first key, and a line to try."""

import json
import shlex

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on that are none to connect to."""


def base_url(host: str, port: int) -> str:
    """The address a client on this machine connects to."""
    host = host.strip("[]")
    host = _WILDCARDS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def curl(url: str, *, key_needed: bool) -> str:
    """A command that asks the box for an answer and can be pasted as it is."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": "What is a steelyard?"}],
        "max_tokens": 64,
    }
    key = ' -H "Authorization: Bearer $STEELYARD_API_KEY"' if key_needed else ""
    return (
        f"curl {url}/v1/chat/completions{key} "
        f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )


def banner(url: str, secret: str | None, model: str, *, key_needed: bool = False) -> str:
    """The text printed once the box is ready. `secret` is the admin key if one was just made;
    `key_needed` says whether inference needs a key."""
    lines = ["", f"Steelyard serves {model} at {url}/v1", ""]
    if secret is not None:
        lines += [
            "  Admin key, shown this once (keep it; it opens /admin only):",
            f"    {secret}",
            "",
        ]
    if key_needed:
        lines += [
            "  Inference needs a key: `steelyard keys create NAME --scope infer` makes one.",
            "    export STEELYARD_API_KEY=sk-steelyard-...",
            "",
        ]
    lines += ["  Try it:", f"    {curl(url, key_needed=key_needed)}", ""]
    return "\n".join(lines)
