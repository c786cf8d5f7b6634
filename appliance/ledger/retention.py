"""Dropping what is older than it may be kept, in whole sealed segments, and saying so in the chain.

SQLite uses the room again for new entries; the file does not shrink (docs/ledger.md says how to
make it). Dropped bytes are overwritten. One step a call, so that nobody waits long for the ledger.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from sqlite_utils import Database

from appliance.config.ledger import LedgerConfig
from appliance.ledger import corrections
from appliance.ledger.append import append
from appliance.ledger.keysign import Signer
from appliance.ledger.rows import Action
from appliance.ledger.seals import SealBody, seal_when_due
from appliance.ledger.verify import Standing

DAY_NS = 86400 * 10**9
TEXTS = ("prompt", "answers")
TOKENS = ("tokens", "report")
"""Reports of replays go with the token ids, which they show."""
DROPPED_NUMBER = "dropped_number"
"""In `meta`: the largest number of a request whose rows were dropped. The token journal may know
such requests still, and only this says that they were accounted for."""

_body = msgspec.json.Decoder(SealBody)


def housekeep(db: Database, policy: LedgerConfig, signer: Signer | None, wall_ns: int) -> list[str]:
    """Seal what is due and drop what is too old, within the caller's transaction. What was done,
    for the log. Raises LedgerError where the chain does not hold."""
    done: list[str] = []
    sealed = seal_when_due(db, policy.segment_rows, policy.segment_hours, signer, wall_ns)
    if sealed is not None:
        done.append(str(sealed))
    for parts, days in ((TEXTS, policy.text_days), (TOKENS, policy.token_days)):
        done += _drop_payloads(db, parts, days, wall_ns)
    if policy.keep_days:
        corrections.drop(db, wall_ns - policy.keep_days * DAY_NS)
    return done + _drop_segment(db, policy.keep_days, wall_ns)


def _drop_payloads(db: Database, parts: tuple[str, ...], days: int, wall_ns: int) -> list[str]:
    """Empty these columns in the next segment that is old enough."""
    mark = f"dropped_{parts[0]}"
    done_to = _mark(db, mark)
    seal = _next_seal(db, done_to, days, wall_ns)
    if seal is None:
        return []
    db.conn.execute("PRAGMA secure_delete = ON")
    span = {"first": done_to + 1, "last": seal.last_seq}
    inside = "seq BETWEEN :first AND :last"
    emptied = db.conn.execute(
        f"UPDATE payloads SET {', '.join(f'{part} = NULL' for part in parts)} WHERE {inside}"
        f" AND coalesce({', '.join(parts)}) IS NOT NULL",
        span,
    ).rowcount
    db.conn.execute(
        f"DELETE FROM payloads WHERE {inside} AND coalesce({', '.join((*TEXTS, *TOKENS))}) IS NULL",
        span,
    )
    _set_mark(db, mark, seal.last_seq)
    if not emptied:
        return []
    detail = {"parts": parts, "last_seq": seal.last_seq, "rows": emptied, "days": days}
    _tell(db, "retention.payloads", f"segment {seal.segment}", detail, wall_ns)
    return [f"dropped the {' and '.join(parts)} of {emptied} entries up to {seal.last_seq}"]


def _drop_segment(db: Database, days: int, wall_ns: int) -> list[str]:
    """Drop the oldest segment, if it is old enough and every request admitted in it has ended."""
    first = db.conn.execute("SELECT min(seq) FROM entries").fetchone()[0] or 1
    seal = _next_seal(db, first - 1, days, wall_ns)
    if seal is None or _has_open(db, seal):
        return []
    db.conn.execute("PRAGMA secure_delete = ON")
    standing = asdict(_standing(db))
    span = (seal.first_seq, seal.last_seq)
    _note_numbers(db, span)
    db.conn.execute("DELETE FROM payloads WHERE seq BETWEEN ? AND ?", span)
    db.conn.execute("DELETE FROM entries WHERE seq BETWEEN ? AND ?", span)
    detail = {"last_seq": seal.last_seq, "segment": seal.segment, "days": days}
    _tell(
        db,
        "retention.segments",
        f"segment {seal.segment}",
        {**detail, "standing": standing},
        wall_ns,
    )
    return [f"dropped segment {seal.segment}, entries {seal.first_seq}-{seal.last_seq}"]


def _note_numbers(db: Database, span: tuple[int, int]) -> None:
    (largest,) = db.conn.execute(
        "SELECT max(number) FROM entries WHERE seq BETWEEN ? AND ? AND kind = 'request'", span
    ).fetchone()
    if largest is not None:
        _set_mark(db, DROPPED_NUMBER, max(largest, _mark(db, DROPPED_NUMBER)))


def _next_seal(db: Database, after: int, days: int, wall_ns: int) -> SealBody | None:
    """The segment that follows entry `after`, if all of it is older than so many days."""
    if not days:
        return None
    found = db.conn.execute(
        "SELECT body FROM seals WHERE json_extract(body, '$.last_seq') > ?"
        " ORDER BY segment LIMIT 1",
        (after,),
    ).fetchone()
    seal = _body.decode(found[0]) if found is not None else None
    old = seal is not None and seal.last_wall_ns < wall_ns - days * DAY_NS
    return seal if old else None


def _has_open(db: Database, seal: SealBody) -> bool:
    found = db.conn.execute(
        "SELECT 1 FROM entries a WHERE a.kind = 'admitted' AND a.seq BETWEEN ? AND ?"
        " AND NOT EXISTS (SELECT 1 FROM entries r WHERE r.kind = 'request'"
        " AND r.number = a.number) LIMIT 1",
        (seal.first_seq, seal.last_seq),
    )
    return found.fetchone() is not None


@dataclass(frozen=True, slots=True)
class _Told:
    action: str
    target: str
    detail: Mapping[str, Any]


def _standing(db: Database) -> Standing:
    """Keys, tenants and signers as the chain (not the tables, which are only its shadow) has them:
    the entries that made them so may be among those that are dropped."""
    standing = Standing()
    rows = db.conn.execute("SELECT body FROM entries WHERE kind = 'action' ORDER BY seq")
    for (text,) in rows:
        told = msgspec.json.decode(text, type=_Told)
        standing.apply(told.action, told.target, told.detail)
    return standing


def _tell(db: Database, action: str, target: str, detail: Mapping[str, Any], wall_ns: int) -> None:
    told = Action(wall_ns=wall_ns, action=action, target=target, host="local", detail=detail)
    append(db, [(told, None)])


def _mark(db: Database, name: str) -> int:
    found = db.conn.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return int(found[0]) if found is not None else 0


def _set_mark(db: Database, name: str, value: int) -> None:
    db.conn.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
