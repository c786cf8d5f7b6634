"""What SQLite's errors mean to an operator."""

import contextlib
import sqlite3
from collections.abc import Iterator

from appliance.ledger.errors import LedgerError


class Unwritable(LedgerError):
    """The file as a whole cannot be read or written now; no single row is to blame."""


class BrokenChain(Unwritable):
    """The last entry is not the one that was written last."""


_MEANINGS = {
    sqlite3.SQLITE_FULL: (
        "the disk that holds {path} is full: free some space on it, and the box goes on by itself"
    ),
    sqlite3.SQLITE_READONLY: (
        "{path} is read-only: check its owner and permissions, and whether its file system is"
        " mounted read-only (after a disk error Linux does that by itself; see `dmesg`)"
    ),
    sqlite3.SQLITE_BUSY: (
        "another process has kept {path} locked for more than 5 s: find it with `fuser {path}`"
        " and let it end its transaction, or stop it"
    ),
    sqlite3.SQLITE_CORRUPT: (
        "{path} is damaged: keep a copy of it, run `steelyard audit verify` on the copy to see"
        " what is lost, and restore the newest backup that verifies"
    ),
    sqlite3.SQLITE_NOTADB: (
        "{path} is not a SQLite database: move it away, or point state_dir to the directory that"
        " holds the box's ledger"
    ),
    sqlite3.SQLITE_IOERR: (
        "the disk that holds {path} failed to read or write it: see `dmesg`; check its free space,"
        " its quota and its health"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "{path} or its -wal and -shm files beside it cannot be opened: check the owner and"
        " permissions of the files and of their directory"
    ),
    sqlite3.SQLITE_NOMEM: "SQLite had no memory left for {path}: stop what else runs on this box",
}
_MEANINGS[sqlite3.SQLITE_LOCKED] = _MEANINGS[sqlite3.SQLITE_BUSY]
_MEANINGS[sqlite3.SQLITE_PERM] = _MEANINGS[sqlite3.SQLITE_CANTOPEN]
_MEANINGS[sqlite3.SQLITE_PROTOCOL] = _MEANINGS[sqlite3.SQLITE_BUSY]
_NO_TEXT = "Could not decode to UTF-8"


def meaning(error: sqlite3.Error, path: object) -> str | None:
    """What happened to the file and what to do, or None: the error is about a statement or row."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and str(error).startswith(_NO_TEXT):
        # Found by Python and not by SQLite. What it says quotes the row.
        return f"{_MEANINGS[sqlite3.SQLITE_CORRUPT].format(path=path)} (a row is no text)"
    text = _MEANINGS.get(code & 0xFF) if code is not None else None
    return f"{text.format(path=path)} ({error})" if text is not None else None


@contextlib.contextmanager
def explained(path: object) -> Iterator[None]:
    """Raises Unwritable in place of SQLite's errors that concern the file as a whole."""
    try:
        yield
    except sqlite3.Error as error:
        text = meaning(error, path)
        if text is None:
            raise
        raise Unwritable(text) from error
