"""The ledger's newest states, for a stranger: what happened, never what was said, nor by whom.

Only members that are named here leave the box. Keys are numbered in the order of their appearance.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from appliance.ledger.database import connect

ROWS = 300
_REQUEST = (
    "wall_ns", "number", "part", "parts", "route", "model_sha256", "template_sha256", "build", "n",
    "max_tokens", "tier", "stream", "prompt_tokens", "received_ns", "boot_id", "count", "outcome",
    "status", "code", "cached_tokens", "prefill_tokens", "completion_tokens", "hidden_tokens",
    "computed_tokens", "drafted_tokens", "accepted_tokens", "submitted_ns", "started_ns",
    "first_token_ns", "ended_ns", "prefill_ns", "decode_ns", "parallel", "preemptions", "exclusive",
    "energy_uj", "energy_source", "recovered", "exact",
)  # fmt: skip
_KINDS: Mapping[str, tuple[str, ...]] = {
    "admitted": _REQUEST,
    "request": _REQUEST,
    "action": ("wall_ns", "action"),
    "conflict": ("wall_ns", "number", "choice"),
    "archived": ("wall_ns", "number", "choice"),
    "replay": ("wall_ns", "number", "choice", "result"),
    "seal": ("wall_ns", "segment"),
    "note": ("wall_ns", "event"),
}
_CHOICE = ("outcome", "stop_type", "completion_tokens", "hidden_tokens", "landing")


def states(path: Path, rows: int = ROWS) -> dict[str, Any]:
    """The newest entries, oldest first, and what there is in all. Raises LedgerError."""
    with closing(connect(path, read_only=True)) as db:
        counts = dict(db.execute("SELECT kind, count(*) FROM entries GROUP BY kind").fetchall())
        found = db.execute(
            "SELECT seq, kind, body FROM entries ORDER BY seq DESC LIMIT ?", (rows,)
        ).fetchall()
    keys: dict[str, str] = {"": "none"}
    newest = [_told(seq, kind, json.loads(body), keys) for seq, kind, body in reversed(found)]
    return {"entries": counts, "newest": newest}


def _told(seq: int, kind: str, body: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
    told = {"seq": seq, "kind": kind}
    told |= {name: body[name] for name in _KINDS.get(kind, ()) if name in body}
    if "key_id" in body:
        told["key"] = keys.setdefault(str(body["key_id"]), f"key {len(keys)}")
    if kind == "request":
        told["choices"] = [
            {name: choice.get(name) for name in _CHOICE} for choice in body.get("choices", ())
        ]
    return told
