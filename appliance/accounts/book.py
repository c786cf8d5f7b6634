"""The keys and tenants as the ledger database has them, for one process.

Readers look at `meta.keys_version` each time, over a read-only connection that waits for nobody,
and read all again when it changed: what another process changed counts at once. A change is one
transaction: the rows, the chained entry that says all of the new state, and the version. What
cannot be read lets nobody in, and neither does a ledger that was there and is gone.
"""

import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import msgspec
from sqlite_utils import Database

from appliance.accounts.keyrow import By, KeyFileError, Lock, Stored
from appliance.accounts.limits import Limits
from appliance.ledger.append import append
from appliance.ledger.database import connect, meaning, transaction
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Action

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # without a daemon, whoever asked says it, once

_LEAST_BYTES = 512
"""Of a database. A shorter file SQLite takes for an empty one, whatever it is."""
_TRIES, _AGAIN_S = 10, 0.01
"""For a ledger never read before that is locked: SQLite goes over to its log in a moment."""
_VERSION = "SELECT value FROM meta WHERE name = 'keys_version'"
_encode = msgspec.json.Encoder().encode


class Tenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all keys of a tenant together may use."""

    name: str
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class State:
    """Everything at one moment."""

    keys: tuple[Stored, ...] = ()
    """Oldest first."""
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    locks: tuple[Lock, ...] = ()
    problem: str = ""
    """Why nothing can be read; empty when all is well."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the rows it leaves behind, and what the chained entry calls it."""

    action: str
    target: str
    detail: Mapping[str, Any]
    """Says all of the new state."""
    keys: tuple[Stored, ...] = ()
    removed: tuple[str, ...] = ()
    tenants: tuple[Tenant, ...] = ()


class _Loose(Exception):
    """Nothing is wrong with what the file holds."""


_Place = tuple[int, int]
"""Device and inode: another file took the ledger's place when they change."""


class Book:
    """Every method may be called from any thread; `state` also from an event loop."""

    def __init__(self, path: Path, wall_ns: Callable[[], int]) -> None:
        self.path = path
        self._wall_ns = wall_ns
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._place: _Place | None = None
        self._size = 0
        self._version = -1
        self._seen = False
        self._state = State()

    def state(self) -> State:
        """As it is now. Never raises."""
        with self._lock:
            try:
                self._follow()
            except KeyFileError as error:
                self._lose(str(error))
            return self._state

    def usable(self) -> State:
        """As it is now. Raises KeyFileError."""
        found = self.state()
        if found.problem:
            raise KeyFileError(found.problem)
        return found

    def change(self, decide: Callable[[State], Change], by: By) -> Change:
        """Does what `decide` makes of the newest state, whole or not at all. Raises KeyFileError,
        and what `decide` raises."""
        self.usable()
        try:
            return self._change(decide, by)
        except LedgerError as error:
            raise KeyFileError(f"nothing was changed: {error}") from error
        except (sqlite3.Error, OSError) as error:
            raise _unwritable(self.path, error) from error

    def __del__(self) -> None:
        self._forget()

    def _change(self, decide: Callable[[State], Change], by: By) -> Change:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        db = connect(self.path)
        try:
            with transaction(db, self.path):
                change = decide(_read(self.path, db.conn))
                _write(db, change)
                append(db, [(self._entry(change, by), None)])
        finally:
            db.close()
        return change

    def _entry(self, change: Change, by: By) -> Action:
        return Action(
            wall_ns=self._wall_ns(),
            action=change.action,
            target=change.target,
            key_id=by.key_id,
            key_name=by.key_name,
            operator=by.operator,
            host=by.host,
            detail=change.detail,
        )

    # -- reading, under the lock ----------------------------------------------------------------

    def _follow(self) -> None:
        """Brings `_state` up to date. Raises KeyFileError."""
        found = _look(self.path)
        if found is None:
            if self._seen:
                raise _unreadable(self.path, "it was there and is gone")
            return
        place = (found.st_dev, found.st_ino)
        if place != self._place or found.st_size < self._size or self._db is None:
            self._open(place)
        self._size = found.st_size
        assert self._db is not None
        if not self._seen and self._size >= _LEAST_BYTES and _unmade(self._db):
            return
        try:
            version = self._db.execute(_VERSION).fetchall()[0][0]
        except sqlite3.OperationalError as error:
            if _busy(error) and self._version >= 0:
                return  # Somebody recovers the file just now: what was read last still holds.
            raise _unreadable(self.path, error) from error
        except (sqlite3.Error, IndexError) as error:
            raise _unreadable(self.path, error) from error
        if version != self._version:
            self._state = _read(self.path, self._db)
            self._version, self._seen = version, True

    def _open(self, place: _Place) -> None:
        self._forget()
        try:
            self._db = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode=ro",
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from error
        self._place = place

    def _lose(self, problem: str) -> None:
        if self._state.problem != problem:
            log.error("%s", problem)
        self._forget()
        self._state = State(problem=problem)

    def _forget(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db, self._place, self._size, self._version = None, None, 0, -1


def _look(path: Path) -> os.stat_result | None:
    """The ledger file; None where there is none yet, or an empty one: its making was cut short.
    Raises KeyFileError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unreadable(path, _Loose("others may write to it (chmod 600 it)"))
    return found if found.st_size else None


def _unmade(db: sqlite3.Connection) -> bool:
    """Not a table in it: as good as empty. Another process makes it just now, or its making was cut
    short. What cannot be asked now is another matter, and comes out in the next question."""
    for _ in range(_TRIES):
        try:
            return not db.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
        except sqlite3.OperationalError as error:
            if not _busy(error):
                return False
        except sqlite3.Error:
            return False
        time.sleep(_AGAIN_S)
    return False


def _read(path: Path, db: sqlite3.Connection) -> State:
    """All of it. Raises KeyFileError."""
    try:
        rows = db.execute("SELECT body FROM keys ORDER BY rowid").fetchall()
        held = db.execute("SELECT body FROM tenants ORDER BY name").fetchall()
        keys = tuple(msgspec.json.decode(body, type=Stored) for (body,) in rows)
        tenants = [msgspec.json.decode(body, type=Tenant) for (body,) in held]
        locks = tuple(Lock(key) for key in keys if key.revoked is None)
    except (sqlite3.Error, msgspec.MsgspecError, ValueError) as error:
        raise _unreadable(path, error) from error
    return State(keys, MappingProxyType({tenant.name: tenant for tenant in tenants}), locks)


def _write(db: Database, change: Change) -> None:
    """The rows of the change. A revoked key gives its name free: its id stands in for it."""
    for key in change.keys:
        name = key.id if key.revoked is not None else key.name
        db.execute(
            "INSERT INTO keys (id, name, body) VALUES (?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET name = excluded.name, body = excluded.body",
            (key.id, name, _encode(key).decode()),
        )
    for id in change.removed:
        db.execute("DELETE FROM keys WHERE id = ?", (id,))
    for tenant in change.tenants:
        db.execute(
            "INSERT OR REPLACE INTO tenants (name, body) VALUES (?, ?)",
            (tenant.name, _encode(tenant).decode()),
        )
    db.execute("UPDATE meta SET value = value + 1 WHERE name = 'keys_version'")


def _busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _unreadable(path: Path, why: object) -> KeyFileError:
    """With what to do: a sound ledger on a full disk must not be moved away."""
    said, until = str(why), "the ledger is restored from a copy, or moved away to start anew"
    if isinstance(why, OSError):
        said, until = why.strerror or said, "it can: check its owner, permissions and disk"
    elif isinstance(why, sqlite3.Error) and (known := meaning(why, path)):
        said, until = known, "that is mended"
    elif isinstance(why, _Loose):
        until = "that is mended"
    return KeyFileError(
        f"{path}: the keys cannot be read: {said}. Nobody can authenticate until {until}"
    )


def _unwritable(path: Path, error: Exception) -> KeyFileError:
    return KeyFileError(
        f"{path}: nothing was changed: {error}. Run as the user who owns {path.parent}, and see "
        "that its disk is not full"
    )
