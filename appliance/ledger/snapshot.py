"""A copy of the ledger as it is at one instant, while the box goes on writing."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from appliance.ledger.database import explained

_BELONGS_TO_THE_BOX = frozenset({"pending"})
"""Rows that mean something only to the running box."""


def copy_ledger(ledger: Path, target: Path, *, leave_out: Collection[str] = ()) -> None:
    """Write a ledger of the same content to `target`, without these columns of `payloads`, which
    never reach its disk. It is not durable yet."""
    with explained(target), closing(sqlite3.connect(_uri(target, "rwc"), uri=True)) as db:
        db.isolation_level = None
        for pragma in ("foreign_keys = OFF", "journal_mode = OFF", "synchronous = OFF"):
            db.execute(f"PRAGMA {pragma}")  # A copy that was cut short is thrown away.
        db.execute("ATTACH ? AS box", (_uri(ledger, "ro"),))
        db.execute("BEGIN")
        _copy(db, leave_out)
        db.execute("COMMIT")


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def _copy(db: sqlite3.Connection, leave_out: Collection[str]) -> None:
    made = "SELECT name, sql FROM box.sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite_%'"
    for name, sql in db.execute(made, ("table",)).fetchall():
        db.execute(sql)
        if name not in _BELONGS_TO_THE_BOX:
            _copy_rows(db, name, leave_out if name == "payloads" else ())
    for _, sql in db.execute(made, ("index",)).fetchall():
        db.execute(sql)


def _copy_rows(db: sqlite3.Connection, table: str, leave_out: Collection[str]) -> None:
    found = db.execute("SELECT name FROM pragma_table_info(?)", (table,))  # None generated
    columns = [name for (name,) in found]
    wanted = ", ".join("NULL" if name in leave_out else f'"{name}"' for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    db.execute(f'INSERT INTO "{table}" ({names}) SELECT {wanted} FROM box."{table}"')
