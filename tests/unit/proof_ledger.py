"""Builders of small ledgers, and of what somebody might do to them."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlite_utils import Database

from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.keysign import Signer
from appliance.ledger.rows import (
    Action,
    Admitted,
    ChoiceRow,
    Costs,
    Note,
    Payload,
    RequestRow,
    Row,
)
from appliance.ledger.seals import seal_now
from appliance.ledger.verify import pack_tokens, token_digest
from appliance.ledger.verify.check import check, verify
from appliance.ledger.verify.opening import prepare
from appliance.ledger.verify.verdict import Verdict

START = 1_764_000_000 * 10**9
SECOND = 10**9
DAY = 86_400 * SECOND

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))

Entry = tuple[Row, Payload | None]


def facts(number: int, wall_ns: int, prompt_tokens: int, **changed: Any) -> dict[str, Any]:
    return {
        "wall_ns": wall_ns,
        "number": number,
        "id": f"chatcmpl-{number:08x}",
        "trace_id": f"{number:032x}",
        "request_id": f"req-{number}",
        "route": "/v1/chat/completions",
        "key_id": "k_00000001",
        "key_name": "web",
        "tenant": "acme",
        "scenario": "support",
        "model": "small",
        "model_sha256": "a" * 64,
        "template_sha256": "b" * 64,
        "build": "b1",
        "sampling": {"temperature": 0.8, "seed": number},
        "n": 1,
        "max_tokens": 16,
        "tier": "normal",
        "stream": True,
        "prompt_tokens": prompt_tokens,
        "received_wall_ns": wall_ns - SECOND,
        "received_ns": 10**12,
        "boot_id": "c" * 32,
        **changed,
    }


def make_admitted(number: int, wall_ns: int, prompt_tokens: int = 3, **changed: Any) -> Admitted:
    return Admitted(**facts(number, wall_ns, prompt_tokens, **changed))


def make_request(
    number: int,
    wall_ns: int,
    lists: tuple[tuple[int, ...], ...] = ((1, 2, 3), (4, 5)),
    **changed: Any,
) -> RequestRow:
    prompt, *answers = lists
    choices = tuple(
        ChoiceRow(
            outcome="stop",
            stop_type="eos",
            completion_tokens=len(ids),
            hidden_tokens=0,
            digest=token_digest(prompt, ids),
        )
        for ids in answers
    )
    made: dict[str, Any] = {
        "outcome": "stop",
        "status": 200,
        "cached_tokens": 0,
        "prefill_tokens": len(prompt),
        "completion_tokens": sum(map(len, answers)),
        "hidden_tokens": 0,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
        "submitted_ns": 10**12,
        "started_ns": 10**12,
        "first_token_ns": 10**12,
        "ended_ns": 10**12,
        "prefill_ns": 1000,
        "decode_ns": 2000,
        "parallel": 1,
        "preemptions": 0,
        "exclusive": False,
        "choices": choices,
        "costs": Costs(currency="EUR", prefill=1, decode=2, cached=0, idle=3),
    }
    return RequestRow(**{**facts(number, wall_ns, len(prompt)), **made, **changed})


def make_entries(numbers: range, wall_ns: int = START, *, texts: bool = True) -> list[Entry]:
    """An admission and an end for each number, with payloads."""
    entries: list[Entry] = []
    picks = random.Random(numbers.start)
    for number in numbers:
        wall_ns += SECOND
        prompt = tuple(picks.randrange(50_000) for _ in range(5))
        answer = tuple(picks.randrange(50_000) for _ in range(4))
        entries.append((make_admitted(number, wall_ns, len(prompt)), None))
        payload = Payload(
            tokens=pack_tokens([prompt, answer]),
            prompt=f"question {number}" if texts else None,
            answers=f"answer {number}" if texts else None,
        )
        entries.append((make_request(number, wall_ns + SECOND // 2, (prompt, answer)), payload))
    return entries


def make_key(id: str, name: str, wall_ns: int = START) -> Action:
    key = {"id": id, "name": name, "scopes": ["infer"], "sha256": "d" * 64, "revoked": None}
    return Action(wall_ns=wall_ns, action="key.create", target=id, detail={"key": key})


def put_key(db: Database, id: str, name: str) -> None:
    """A key, and the chained entry that made it."""
    import msgspec

    action = make_key(id, name)
    body = msgspec.json.encode(action.detail["key"]).decode()
    db.conn.execute("INSERT INTO keys VALUES (?, ?, ?)", (id, name, body))
    append(db, [(action, None)])


def make_ledger(
    path: Path, segments: int = 2, requests: int = 2, signer: Signer | None = SIGNER
) -> Path:
    """Sealed segments of so many requests each, and as many not sealed yet; one key."""
    db = connect(path)
    with transaction(db):
        append(db, [(Note(wall_ns=START, event="started"), None)])
        put_key(db, "k_00000001", "web")
    for segment in range(segments + 1):
        wall_ns = START + segment * DAY
        first = 1 + segment * requests
        with transaction(db):
            append(db, make_entries(range(first, first + requests), wall_ns))
            if segment < segments:
                seal_now(db, signer, wall_ns + DAY // 2)
    db.close()
    return path


def add(path: Path, *rows: Row) -> None:
    """Append, as the box does."""
    db = connect(path)
    with transaction(db):
        append(db, [(row, None) for row in rows])
    db.close()


_PLAIN = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL,"
    " hash BLOB NOT NULL)"
)


@contextmanager
def tampering(path: Path) -> Iterator[sqlite3.Connection]:
    """The database without what would hinder somebody who edits it: indexes, computed columns,
    foreign keys. The rows are stored in the same way."""
    db = sqlite3.connect(path)
    try:
        names = db.execute("SELECT name FROM sqlite_master WHERE type='index' AND sql NOT NULL")
        for (name,) in names.fetchall():
            db.execute(f"DROP INDEX {name}")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'entries'", (_PLAIN,))
        db.commit()
        db.execute("PRAGMA writable_schema = RESET")
        with db:
            yield db
    finally:
        db.close()


def verdict_of(path: Path, **options: Any) -> Verdict:
    return verify(path, **options)


def verdict_of_image(image: bytes | bytearray) -> Verdict:
    """Of a database in memory."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        db.deserialize(bytes(image))
        verdict = Verdict("image")
        check(prepare(db), verdict)
        return verdict
    finally:
        db.close()


def told(verdict: Verdict) -> list[tuple[str, int | None, int | None]]:
    """What was found, and where."""
    return [(fault.what, fault.seq, fault.segment) for fault in verdict.faults]
