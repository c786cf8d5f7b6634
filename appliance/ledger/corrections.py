"""The log of corrections (docs/control.md), beside the chain: bounded, and of no weight for it."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from sqlite_utils import Database

from appliance.control.replay import Entry
from appliance.ledger.database import connect, explained
from appliance.ledger.errors import LedgerError

MOST_ROWS = 20_000
"""Kept, the newest: some 50 MB at the very most, since a row may name 512 running requests."""
_AT_A_TIME = 256
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


def add(db: Database, entries: Sequence[Entry], wall_ns: int, most: int = MOST_ROWS) -> int:
    """Writes them and drops the oldest beyond `most`. How many were written."""
    rows = [(wall_ns, one.channel, _encode(one).decode()) for one in entries]
    db.conn.executemany("INSERT INTO corrections (wall_ns, channel, body) VALUES (?, ?, ?)", rows)
    newest = db.conn.execute("SELECT max(seq) FROM corrections").fetchone()[0] or 0
    db.conn.execute("DELETE FROM corrections WHERE seq <= ?", (newest - most,))
    return len(rows)


def drop(db: Database, before_wall_ns: int) -> int:
    """Drops those that were written before that time. How many."""
    return db.conn.execute("DELETE FROM corrections WHERE wall_ns < ?", (before_wall_ns,)).rowcount


def read(path: Path) -> Iterator[tuple[int, Entry]]:
    """All of a ledger, in the order in which they were written. LedgerError: it cannot be read, or
    a row makes no sense."""
    with closing(connect(path, read_only=True)) as db:
        after = 0
        while True:
            with explained(path):
                rows = _next(db, after, path)
            for seq, body in rows:
                try:
                    yield seq, _decode(body)
                except msgspec.MsgspecError as error:
                    raise LedgerError(f"{path}: correction {seq} makes no sense: {error}") from None
            if len(rows) < _AT_A_TIME:
                return
            after = rows[-1][0]


def _next(db: Database, after: int, path: Path) -> list[tuple[int, str]]:
    try:
        return db.conn.execute(
            "SELECT seq, body FROM corrections WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, _AT_A_TIME),
        ).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            raise LedgerError(
                f"{path} logs no corrections: it was last written by an older version"
            ) from None
        raise
