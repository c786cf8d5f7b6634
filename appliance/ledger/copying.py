"""An exact copy of the ledger's file as it is at one instant, while the box goes on writing.

Unlike `snapshot.copy_ledger`, which carries a ledger out, it has all that the box needs to go on.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from appliance import durable
from appliance.ledger.errors import LedgerError
from appliance.ledger.meanings import explained
from appliance.ownership import hand_over

BUSY_S = 5.0
"""How long to wait for another process's write lock."""
REPLACED = "replaced"
"""Beside the ledger: what was replaced and is kept for the operator."""
KEPT = 2
"""Copies of ledgers of older versions; more, and the oldest goes."""
_PAGES = 4096
"""A step copies 16 MiB."""
_SPARE_BYTES = 128 << 20
"""The migration itself, and the box that goes on, need room too: below 64 MiB it is not ready."""


def copy_exact(ledger: Path, target: Path, tell: Callable[[int, int], None] | None = None) -> None:
    """Writes `target`, which must not exist: one file that needs no log beside it, mode 0600, and
    durable. `tell` hears pages done and pages in all. Raises LedgerError, OSError."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with explained(ledger), closing(_reading(ledger)) as source:
        # An open reading transaction holds this instant: what is written meanwhile neither gets in
        # nor makes SQLite begin anew.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with explained(target), closing(sqlite3.connect(target)) as copy:
            copy.execute("PRAGMA synchronous = OFF")
            source.backup(copy, pages=_PAGES, progress=_progress(tell))
            copy.execute("PRAGMA journal_mode = DELETE")
    durable.sync(target)


def keep_copy(ledger: Path, why: str) -> Path:
    """A copy of the ledger in the folder REPLACED beside it, whole or not there at all; of its kind
    the newest KEPT stay. Raises LedgerError, also where there is no room for it."""
    folder = ledger.parent / REPLACED
    final = folder / f"{ledger.stem}-{why}{ledger.suffix}"
    draft = folder / f".{final.name}.{os.getpid()}"
    try:
        _require_room(ledger)
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            copy_exact(ledger, draft)
            draft.rename(final)
            durable.sync(folder)
        finally:
            draft.unlink(missing_ok=True)
        for made in (folder, final):
            hand_over(made, ledger)
        for older in _copies(ledger, folder)[KEPT:]:
            older.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(
            f"the ledger is of an older version, and it cannot be kept as it was in {folder}"
            f" ({error.strerror}): check the owner, the permissions and the free space of its"
            " directory"
        ) from error
    return final


def _require_room(ledger: Path) -> None:
    log = ledger.with_name(f"{ledger.name}-wal")
    need = ledger.stat().st_size + (log.stat().st_size if log.exists() else 0) + _SPARE_BYTES
    free = free_bytes(ledger.parent)
    if free < need:
        raise LedgerError(
            f"the ledger is of an older version, and there is no room to keep it as it was:"
            f" {ledger.parent} has {free >> 20} MiB free, and {need >> 20} MiB are needed. Free"
            " some space there, and start again; nothing was changed"
        )


def free_bytes(folder: Path) -> int:
    """What may still be written there."""
    return shutil.disk_usage(folder).free


def _copies(ledger: Path, folder: Path) -> list[Path]:
    """Newest first."""
    found = folder.glob(f"{ledger.stem}-before-*{ledger.suffix}")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _reading(ledger: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{ledger.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None
    )


def _progress(
    tell: Callable[[int, int], None] | None,
) -> Callable[[int, int, int], None] | None:
    if tell is None:
        return None
    return lambda _, left, total: tell(total - left, total)
