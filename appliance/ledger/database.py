"""Opening the ledger's file, and its transactions.

A ledger of an older version is brought up to date when it is opened for writing, and a copy of it
as it was is kept first.
"""

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from sqlite_utils import Database

from appliance.ledger.copying import BUSY_S, keep_copy
from appliance.ledger.errors import LedgerError
from appliance.ledger.meanings import BrokenChain, Unwritable, explained, meaning
from appliance.ledger.migrations import MIGRATIONS, migrate, migration_names
from appliance.ledger.verify import FORMAT

__all__ = ["BUSY_S", "BrokenChain", "Unwritable", "connect", "explained", "meaning", "transaction"]

log = logging.getLogger(__name__)

_AGAIN_S = 0.02
_CHECKPOINT_PAGES = 1000
_WAL_BYTES = 16 << 20
"""The write-ahead log is cut back to this after a checkpoint, however large a batch once was."""
_CACHE_KIB = 16384
"""Of a large ledger's indexes, the upper levels fit in."""
_CACHED_STATEMENTS = 256


def connect(
    path: Path, *, read_only: bool = False, create: bool = True, old: bool = False
) -> Database:
    """The ledger at `path`, its schema up to date (made new if `create`). Raises LedgerError.

    One thread at a time may use it. With `read_only` nothing is made or migrated. `old`: the caller
    knows of older versions, so one is read as it is, or brought up to date without keeping it.
    """
    _find(path, create=create and not read_only)
    with explained(path):
        db = _open(path, "ro" if read_only else "rw")
        try:
            _recognise(db, path)
            if read_only:
                if not old:
                    _is_current(db, path)
            else:
                with transaction(db, path):
                    _bring_up_to_date(db, path, keep=not old)
                    # On a read-only file all went well so far: SQLite opened it for reading.
                    db.conn.execute("DELETE FROM meta WHERE 0")
        except BaseException:
            db.close()
            raise
    return db


@contextlib.contextmanager
def transaction(db: Database, path: object = "the ledger") -> Iterator[Database]:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK on any error. Unwritable if the file is to blame."""
    with explained(path):
        db.conn.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.conn.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # the first error is the one to tell
                db.rollback()
            raise


def _find(path: Path, *, create: bool) -> None:
    if not path.parent.is_dir():
        raise LedgerError(
            f"{path.parent} is not a directory: make it, or set state_dir to one that exists"
        )
    if path.exists():
        _not_emptied(path)
        return
    if not create:
        raise LedgerError(f"there is no ledger at {path}: start the box once, or check state_dir")
    try:
        # SQLite gives its -wal and -shm files the same permissions.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be made ({error.strerror}): check the owner, the permissions and the"
            " free space of its directory"
        ) from error


def _not_emptied(path: Path) -> None:
    """SQLite writes the first page before the log beside it. Of an empty file it would take the log
    for a leftover, and delete it."""
    wal = path.with_name(path.name + "-wal")
    if path.stat().st_size == 0 and wal.exists() and wal.stat().st_size:
        raise LedgerError(
            f"{path} is empty, and {wal} is not: the ledger was cut off by something other than"
            " Steelyard. Keep copies of both, and restore the newest backup that `steelyard audit"
            " verify` finds sound"
        )


def _open(path: Path, mode: str) -> Database:
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,  # transactions begin and end where we say so
        check_same_thread=False,  # opened on one thread, used on another
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        for pragma in _pragmas(read_only=mode == "ro"):
            _set(conn, pragma)
        return Database(conn, execute_plugins=False)
    except BaseException:
        conn.close()
        raise


def _set(conn: sqlite3.Connection, pragma: str) -> None:
    """SQLite itself waits for nobody when it goes over to the log, as another process may be doing
    at this very moment with a ledger that both find new."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            conn.execute(f"PRAGMA {pragma}")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= until:
                raise
        time.sleep(_AGAIN_S)


def _pragmas(*, read_only: bool) -> tuple[str, ...]:
    shared = ("foreign_keys = ON", "cell_size_check = ON", f"cache_size = -{_CACHE_KIB}")
    if read_only:
        return (*shared, "query_only = ON")
    return (
        *shared,
        "journal_mode = WAL",
        "synchronous = FULL",
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        f"journal_size_limit = {_WAL_BYTES}",
    )


def _recognise(db: Database, path: Path) -> None:
    """Raises LedgerError for a database that is not a ledger, or one of a newer version."""
    tables = set(db.table_names())
    if tables and not {"entries", "meta"} <= tables:
        raise LedgerError(
            f"{path} is a database of something else, not a ledger: move it away, or point"
            " state_dir to the directory that holds the box's ledger"
        )
    if not tables:
        return
    found = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    applied = {migration.name for migration in MIGRATIONS.applied(db)}
    if found != (FORMAT,) or applied - migration_names():
        raise LedgerError(
            f"{path} was made by another, probably newer, version of Steelyard"
            f" (format {found[0] if found else 'missing'}): run that version, or restore a backup"
        )


def _bring_up_to_date(db: Database, path: Path, *, keep: bool) -> None:
    """Within the transaction: until it ends nobody writes, and the copy is of what is migrated."""
    pending = MIGRATIONS.pending(db)
    if keep and pending and db.table_names():
        kept = keep_copy(path, f"before-{pending[0].name}")
        log.warning(
            "the ledger is of an older version and is brought up to date (%s); as it was, it is"
            " kept in %s",
            ", ".join(migration.name for migration in pending),
            kept,
        )
    migrate(db)


def _is_current(db: Database, path: Path) -> None:
    if MIGRATIONS.pending(db):
        raise LedgerError(
            f"{path} was made by an older version of Steelyard, or is empty: start the box once"
        )
