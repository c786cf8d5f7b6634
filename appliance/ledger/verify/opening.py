"""Opening a ledger so that nothing about it can change."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .canon import FORMAT

_MAGIC = b"SQLite format 3\0"


class Unreadable(Exception):
    """It cannot be checked at all. Says why and what to do."""


def is_database(path: Path) -> bool:
    """Whether it is a SQLite file. Raises Unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error


class Opened:
    """A ledger at one instant, read-only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._alone = not self._wal().exists()
        """Nobody has it open: then SQLite may be told that it cannot change, and makes no files."""
        self._before = self._state()
        self.db = self._connect()

    def _wal(self) -> Path:
        return self._path.with_name(self._path.name + "-wal")

    def _state(self) -> tuple[int, int]:
        if not is_database(self._path):
            raise Unreadable(f"{self._path} is no SQLite database, so no ledger")
        found = self._path.stat()
        return found.st_size, found.st_mtime_ns

    def _connect(self) -> sqlite3.Connection:
        how = "immutable=1" if self._alone else "mode=ro"
        try:
            db = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?{how}", uri=True, isolation_level=None
            )
            return prepare(db)
        except sqlite3.Error as error:
            advice = "copy it together with its -wal file to a disk and verify the copy"
            raise Unreadable(f"{self._path} cannot be opened: {error}; {advice}") from error

    def close(self) -> None:
        """Raises Unreadable if it was written to where that could not be allowed for."""
        self.db.close()
        if self._alone and (self._wal().exists() or self._state() != self._before):
            raise Unreadable(f"{self._path} was opened by the box meanwhile: verify it again")


def prepare(db: sqlite3.Connection) -> sqlite3.Connection:
    """Check that it is a ledger, and hold on to one state of it."""
    if sqlite3.sqlite_version_info < (3, 37):
        db.execute("PRAGMA writable_schema=ON")  # Older SQLite reads STRICT tables only so.
    db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    db.execute("PRAGMA cache_size=-65536")
    db.execute("BEGIN")
    found = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    missing = {"entries", "payloads", "seals", "meta"} - found
    if missing:
        raise Unreadable(f"no ledger: it has no table {', '.join(sorted(missing))}")
    row = db.execute("SELECT value FROM meta WHERE name='format'").fetchone()
    if row is not None and row[0] != FORMAT and str(row[0]).startswith("steelyard-ledger-v"):
        raise Unreadable(
            f"its format is {row[0]}, and this program knows {FORMAT}: use a newer one"
        )
    return db
