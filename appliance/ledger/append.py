"""Appending to the chain, with the projections that follow from each entry.

usage_daily: a final row counts on the day (UTC) of its own `wall_ns`, whatever the clock did
before or since. So a day's sums are those of the rows whose time lies in it, and can be derived
from the rows alone: a clock set back over midnight neither loses, doubles nor moves anything.

`scenario` is free text of clients: of one key on one day, the first MAX_SCENARIOS get sums of their
own, and further ones share those of "(other)". The rows keep what the client said.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from sqlite_utils import Database

from appliance.ledger.database import BrokenChain
from appliance.ledger.payload import columns, with_digests
from appliance.ledger.rows import Admitted, Payload, RequestRow, Row, encode
from appliance.ledger.verify import GENESIS, USAGE_KEY, USAGE_SUMS, row_hash, usage_of
from appliance.ledger.verify.canon import MAX_SCENARIOS, OTHER_SCENARIO


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry."""

    seq: int
    hash: bytes


def head(db: Database) -> Head:
    """The last entry; seq 0 before the first. BrokenChain if it is not the one that meta names."""
    last = db.conn.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    told = db.conn.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()
    found = Head(*last) if last is not None else Head(0, GENESIS)
    if told is None and found.seq == 0:
        return found
    named = json.loads(told[0]) if told is not None else {"seq": 0, "hash": ""}
    if named != {"seq": found.seq, "hash": found.hash.hex()}:
        raise BrokenChain(
            f"the ledger ends with entry {found.seq}, and its head names entry {named['seq']}:"
            " entries were removed or changed by something other than Steelyard. Keep a copy, run"
            " `steelyard audit verify` on it, and restore the newest backup that verifies"
        )
    return found


def append(db: Database, rows: Sequence[tuple[Row, Payload | None]]) -> list[int]:
    """Adds the rows to the chain, in order, inside the caller's open transaction. Their seqs.

    The payload of an admission is the request's prompt (packed ids): it is kept until the final
    row is there, and is not part of the ledger.
    """
    if not rows:
        return []
    last = head(db)
    links = _linked(last, rows)
    insert = db.conn.executemany
    insert("INSERT INTO entries (seq, kind, body, hash) VALUES (?, ?, ?, ?)", links)
    insert("INSERT INTO payloads VALUES (?, ?, ?, ?, ?)", _stored(last.seq, rows))
    _note_pending(db, rows)
    _note_hours(db, last.seq, rows)
    _add_usage(db, [body for _, kind, body, _ in links if kind == RequestRow.KIND])
    _set_meta(db, [row for row, _ in rows], Head(links[-1][0], links[-1][3]))
    return [seq for seq, *_ in links]


def _linked(
    last: Head, rows: Sequence[tuple[Row, Payload | None]]
) -> list[tuple[int, str, str, bytes]]:
    links = []
    prev = last.hash
    for seq, (row, payload) in enumerate(rows, last.seq + 1):
        body = encode(row if isinstance(row, Admitted) else with_digests(row, payload))
        prev = row_hash(prev, seq, row.KIND, body)
        links.append((seq, row.KIND, body, prev))
    return links


def _stored(
    after: int, rows: Sequence[tuple[Row, Payload | None]]
) -> Iterator[tuple[int | bytes | str | None, ...]]:
    for seq, (row, payload) in enumerate(rows, after + 1):
        parts = columns(payload)
        if parts is not None and not isinstance(row, Admitted):
            yield (seq, *parts)


def _note_pending(db: Database, rows: Sequence[tuple[Row, Payload | None]]) -> None:
    opened = [
        (row.number, (payload.tokens if payload is not None else None) or b"")
        for row, payload in rows
        if isinstance(row, Admitted)
    ]
    closed = [(row.number,) for row, _ in rows if isinstance(row, RequestRow)]
    db.conn.executemany("INSERT INTO pending VALUES (?, ?)", opened)
    db.conn.executemany("DELETE FROM pending WHERE number = ?", closed)


HOUR_NS = 3_600_000_000_000


def _note_hours(db: Database, after: int, rows: Sequence[tuple[Row, Payload | None]]) -> None:
    """Where in the chain to look for the requests of an hour, wherever the clock was set to."""
    hours: dict[int, tuple[int, int]] = {}
    for seq, (row, _) in enumerate(rows, after + 1):
        if isinstance(row, RequestRow):
            hour = row.wall_ns // HOUR_NS
            hours[hour] = (hours[hour][0] if hour in hours else seq, seq)
    db.conn.executemany(
        "INSERT INTO request_hours VALUES (?, ?, ?)"
        " ON CONFLICT (hour) DO UPDATE SET last_seq = excluded.last_seq",
        [(hour, *seqs) for hour, seqs in hours.items()],
    )


_SET_META = (
    "INSERT INTO meta (name, value) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_RAISE_NUMBER = (
    "INSERT INTO meta (name, value) VALUES ('number', ?)"
    " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)"
)


def _set_meta(db: Database, rows: Sequence[Row], last: Head) -> None:
    """The head, and the largest request number ever: it outlives the rows themselves."""
    named = json.dumps({"seq": last.seq, "hash": last.hash.hex()})
    db.conn.execute(_SET_META, ("head", named))
    numbers = [row.number for row in rows if isinstance(row, Admitted | RequestRow)]
    if numbers:
        db.conn.execute(_RAISE_NUMBER, (max(numbers),))


def largest_number(db: Database) -> int:
    """The largest request number that was ever in this ledger; 0 before the first."""
    found = db.conn.execute("SELECT value FROM meta WHERE name = 'number'").fetchone()
    return int(found[0]) if found is not None else 0


_KEY_MATCHES = " AND ".join(f"{name} = ?" for name in USAGE_KEY)
_ADD = (
    f"UPDATE usage_daily SET {', '.join(f'{name} = {name} + ?' for name in USAGE_SUMS)}"
    f" WHERE {_KEY_MATCHES}"
)
_BEGIN = (
    f"INSERT INTO usage_daily ({', '.join((*USAGE_KEY, *USAGE_SUMS))})"
    f" VALUES ({', '.join('?' * len((*USAGE_KEY, *USAGE_SUMS)))})"
)
_KNOWN_SCENARIOS = "SELECT DISTINCT scenario FROM usage_daily WHERE day = ? AND key_id = ?"


def _add_usage(db: Database, bodies: Sequence[str]) -> None:
    totals: dict[tuple[object, ...], list[int]] = {}
    for body in bodies:
        key, sums = usage_of(msgspec.json.decode(body))
        total = totals.setdefault(key, [0] * len(sums))
        totals[key] = [a + b for a, b in zip(total, sums, strict=True)]
    for key, total in totals.items():
        if not _added(db, key, total):
            key = _bounded(db, key)
            if not _added(db, key, total):
                db.conn.execute(_BEGIN, (*key, *total))


def _added(db: Database, key: tuple[object, ...], sums: Sequence[int]) -> bool:
    return db.conn.execute(_ADD, (*sums, *key)).rowcount == 1


def _bounded(db: Database, key: tuple[object, ...]) -> tuple[object, ...]:
    """The same, under "(other)" if the day and key already have as many scenarios as they may."""
    day, key_id, tenant, scenario, *rest = key
    known = {name for (name,) in db.conn.execute(_KNOWN_SCENARIOS, (day, key_id))}
    if scenario in known or len(known - {OTHER_SCENARIO}) < MAX_SCENARIOS:
        return key
    return (day, key_id, tenant, OTHER_SCENARIO, *rest)
