"""What the ledger holds of one request, for its owner's audit. Reads only, through indexes only."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from sqlite_utils import Database

from appliance.ledger.rows import Archived, Conflict, Replay, RequestRow
from appliance.ledger.verify import unpack_tokens

AuditRow = Archived | Conflict | Replay

_NAMES = ("id", "trace_id", "request_id")
_KINDS = "kind IN ('conflict', 'archived', 'replay')"
"""Spelt as in the partial index on these rows, or SQLite does not use it."""
_RECENT = 5000
"""Entries among which a request that still runs must have been admitted."""
_TYPES: dict[str, type[AuditRow]] = {row.KIND: row for row in (Archived, Conflict, Replay)}


@dataclass(frozen=True, slots=True)
class Found:
    """A final row and its place in the chain."""

    seq: int
    hash: str
    row: RequestRow


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit left in the chain."""

    seq: int
    row: AuditRow


def requests(db: Database, name: str, key_id: str | None, limit: int) -> list[Found]:
    """The newest `limit` requests that the name means (an answer's id, a trace id or an
    X-Request-Id), oldest first; with `key_id`, that key's alone. Audits' own are left out."""
    own = "" if key_id is None else " AND key_id = :key_id"
    parts = (
        f"SELECT seq, hash, body, number FROM entries WHERE kind = 'request' AND {column} = :name"
        f"{own} AND route NOT LIKE '%/audit/%'"
        for column in _NAMES
    )
    rows = db.conn.execute(
        f"{' UNION '.join(parts)} ORDER BY number DESC LIMIT :limit",
        {"name": name, "key_id": key_id, "limit": limit},
    ).fetchall()
    return [
        Found(seq, hash.hex(), msgspec.json.decode(body, type=RequestRow))
        for seq, hash, body, _ in reversed(rows)
    ]


def unfinished(db: Database, name: str, key_id: str | None) -> bool:
    """Whether a request of this name was admitted lately and has no final row yet."""
    own = "" if key_id is None else " AND a.key_id = :key_id"
    found = db.conn.execute(
        "SELECT 1 FROM entries AS a WHERE a.seq > (SELECT max(seq) FROM entries) - :recent"
        f" AND a.kind = 'admitted' AND :name IN (a.id, a.trace_id, a.request_id){own}"
        " AND NOT EXISTS (SELECT 1 FROM entries AS r WHERE r.kind = 'request'"
        " AND r.number = a.number) LIMIT 1",
        {"name": name, "key_id": key_id, "recent": _RECENT},
    ).fetchone()
    return found is not None


def audits(db: Database, number: int) -> list[Audit]:
    """All that audits found out about request `number`, oldest first."""
    rows = db.conn.execute(
        f"SELECT seq, kind, body FROM entries WHERE {_KINDS} AND number = ? ORDER BY seq",
        (number,),
    )
    return [_audit(*row) for row in rows]


def conflicts(db: Database, before: int | None, limit: int) -> list[Audit]:
    """Conflicts of all requests, newest first, from before entry `before` on."""
    rows = db.conn.execute(
        f"SELECT seq, kind, body FROM entries INDEXED BY audits_by_number WHERE {_KINDS}"
        " AND kind = 'conflict' AND seq < ? ORDER BY seq DESC LIMIT ?",
        (before if before is not None else 1 << 62, limit),
    )
    return [_audit(*row) for row in rows]


def tokens(db: Database, seq: int) -> Sequence[Sequence[int]] | None:
    """The token ids stored beside entry `seq`: the prompt's, then each choice's."""
    stored = db.conn.execute("SELECT tokens FROM payloads WHERE seq = ?", (seq,)).fetchone()
    return unpack_tokens(stored[0]) if stored is not None and stored[0] is not None else None


def report(db: Database, seq: int) -> bytes | None:
    """The compressed report stored beside entry `seq`."""
    stored = db.conn.execute("SELECT report FROM payloads WHERE seq = ?", (seq,)).fetchone()
    return stored[0] if stored is not None else None


def _audit(seq: int, kind: str, body: str) -> Audit:
    return Audit(seq, msgspec.json.decode(body, type=_TYPES[kind]))
