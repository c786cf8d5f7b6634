"""What the operator reads when the box is ready: where it is, the first key, and a line to try."""

import json
import shlex
from pathlib import Path

from appliance.config import WILDCARDS


def base_url(host: str, port: int, *, tls: bool = False) -> str:
    """The address a client on this machine connects to."""
    host = host.strip("[]")
    host = WILDCARDS.get(host, host)
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def curl(url: str, *, key_needed: bool, ca: Path | None = None) -> str:
    """A command that asks the box for an answer and can be pasted as it is."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": "What is a steelyard?"}],
        "max_tokens": 64,
    }
    key = ' -H "Authorization: Bearer $STEELYARD_API_KEY"' if key_needed else ""
    trust = f" --cacert {shlex.quote(str(ca))}" if ca is not None else ""
    return (
        f"curl{trust} {url}/v1/chat/completions{key} "
        f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )


def banner(
    url: str,
    secret: str | None,
    model: str,
    *,
    key_needed: bool = False,
    ca: Path | None = None,
    warning: str = "",
) -> str:
    """The text printed once the box is ready. `secret` is the admin key if one was just made;
    `key_needed` says whether inference needs a key; `ca` is the CA that clients must know."""
    lines = ["", f"Steelyard serves {model} at {url}/v1", ""]
    if warning:
        lines += [f"  Warning: {warning}", ""]
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
    if ca is not None:
        lines += [
            "  Clients must know the box's CA: `steelyard tls export-ca FILE` gives it to you.",
            "",
        ]
    lines += ["  Try it:", f"    {curl(url, key_needed=key_needed, ca=ca)}", ""]
    return "\n".join(lines)
