"""API keys: named, scoped, expiring; only their SHA-256 is stored.

`keys.json` is read again whenever it changes on disk, so a key made or revoked by the command line
counts at once in a running daemon. Writers hold a file lock and replace the file whole. A damaged
file lets nobody in.
"""

import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal, get_args

import msgspec

log = logging.getLogger(__name__)

Scope = Literal["infer", "metrics", "admin"]
SCOPES: frozenset[str] = frozenset(get_args(Scope))
FILE_NAME = "keys.json"
PREFIX = "sk-steelyard-"
SECRET_BYTES = 32
FILE_BYTES = 16 * 1024 * 1024
"""A larger key file is taken for damaged."""
LOCK_WAIT_S = 5.0
"""Writers hold the lock for milliseconds; longer means that one is stuck."""

_NAME = re.compile(r"(?!k_)[A-Za-z0-9](?:[A-Za-z0-9 ._@-]{0,62}[A-Za-z0-9])?")


class KeysError(Exception):
    """A change to the keys did not happen. Says why and what to do."""


class KeyFileError(KeysError):
    """The key file cannot be read or written."""


class KeyRefused(KeysError):
    """What was asked for is not possible: a bad name, a scope or key that does not exist."""


class Key(msgspec.Struct, frozen=True):
    """What is known of a key; never its secret."""

    id: str
    name: str
    scopes: frozenset[Scope]
    created: datetime
    expires: date | None = None
    """The last day on which it is good, in UTC."""

    def live(self, today: date) -> bool:
        return self.expires is None or today <= self.expires


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str
    scopes: frozenset[Scope]
    sha256: str
    created: datetime
    expires: date | None = None

    def public(self) -> Key:
        return Key(self.id, self.name, self.scopes, self.created, self.expires)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    keys: tuple[_Stored, ...]


_State = tuple[int, int, int, int]
"""Both times in ns, size and inode: together they change with every change to the file."""
_UNKNOWN: _State = (0, 0, 0, 0)
"""Stands for a file that may be there but cannot be looked at."""


def _today() -> date:
    return datetime.now(UTC).date()


class KeyStore:
    """The keys of one state directory. Every method may be called from any thread."""

    def __init__(self, path: Path, today: Callable[[], date] = _today) -> None:
        self.path = path
        self._today = today
        self._read: tuple[_State | None, tuple[_Stored, ...], str] = (None, (), "")

    @property
    def problem(self) -> str:
        """Why nobody can authenticate; empty when all is well."""
        return self._current()[1]

    @property
    def empty(self) -> bool:
        """No key with scope `infer` exists. An expired key still counts, and so does a damaged
        file: neither may open the box to everybody."""
        keys, problem = self._current()
        return not problem and not any("infer" in key.scopes for key in keys)

    def has_live(self, scope: Scope) -> bool:
        """Whether anyone can authenticate for `scope` today."""
        today = self._today()
        return any(scope in key.scopes and key.public().live(today) for key in self._current()[0])

    def list(self) -> tuple[Key, ...]:
        """All keys, oldest first. Raises KeyFileError."""
        return tuple(key.public() for key in self._usable())

    def authenticate(self, secret: str) -> Key | None:
        """The live key with this secret. Takes the same time for every wrong one; never raises."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
        found: _Stored | None = None
        for key in self._current()[0]:
            if hmac.compare_digest(digest, bytes.fromhex(key.sha256)):
                found = key
        return found.public() if found is not None and found.public().live(self._today()) else None

    def create(self, name: str, scopes: Iterable[str], expires: date | None = None) -> str:
        """Add a key and return its secret, which nothing can show again. Raises KeysError."""
        wanted = _checked_scopes(scopes)
        if not _NAME.fullmatch(name):
            raise KeyRefused(
                f"{name!r} is no name for a key: use 1 to 64 letters, digits and . _ @ - or spaces "
                "between them, not beginning with k_"
            )
        if expires is not None and expires < self._today():
            raise KeyRefused(f"a key that expired on {expires} would never work: take a later day")
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        with self._locked():
            keys = self._usable()
            if any(key.name == name for key in keys):
                raise KeyRefused(f"a key named {name!r} exists: revoke it first, or take another")
            self._write((*keys, _stored(name, wanted, expires, secret, {key.id for key in keys})))
        return secret

    def create_first(self) -> str | None:
        """On a box without any key, make the key `admin` and return its secret, else None."""
        try:
            return None if self._usable() else self.create("admin", ["admin"])
        except KeyRefused:
            return None  # Another process made it in between.

    def revoke(self, name_or_id: str) -> Key:
        """Remove a key for good. Raises KeysError, also when there is none."""
        with self._locked():
            keys = self._usable()
            for key in keys:
                if name_or_id in (key.name, key.id):
                    self._write(tuple(kept for kept in keys if kept is not key))
                    return key.public()
        raise KeyRefused(f"no key named {name_or_id!r}: `steelyard keys list` shows all")

    def _usable(self) -> tuple[_Stored, ...]:
        keys, problem = self._current()
        if problem:
            raise KeyFileError(problem)
        return keys

    def _current(self) -> tuple[tuple[_Stored, ...], str]:
        """The keys as they are on disk now, and what is wrong with the file, if anything."""
        state = _state(self.path)
        if state != self._read[0]:
            self._reload(state)
        return self._read[1], self._read[2]

    def _reload(self, state: _State | None) -> None:
        try:
            self._read = (*_load(self.path), "")
        except KeyFileError as error:
            log.error("%s", error)
            self._read = (state, (), str(error))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all writers, in this and in other processes."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        try:
            _take(lock, self.path)
            yield
        finally:
            os.close(lock)

    def _write(self, keys: tuple[_Stored, ...]) -> None:
        """Replace the file whole, and on disk, before anyone is told."""
        body = msgspec.json.format(msgspec.json.encode(_File(1, keys)), indent=1) + b"\n"
        new = self.path.with_suffix(".new")
        try:
            new.unlink(missing_ok=True)
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as opened:
                opened.write(body)
                opened.flush()
                os.fsync(handle)
            new.replace(self.path)
            _sync_directory(self.path.parent)
        except OSError as error:
            raise _unwritable(self.path, error) from error


def _checked_scopes(scopes: Iterable[str]) -> frozenset[Scope]:
    wanted = frozenset(scopes)
    if not wanted or wanted - SCOPES:
        raise KeyRefused(f"a key needs one or more of the scopes {', '.join(sorted(SCOPES))}")
    return msgspec.convert(wanted, frozenset[Scope])


def _stored(
    name: str, scopes: frozenset[Scope], expires: date | None, secret: str, taken: set[str]
) -> _Stored:
    id = f"k_{secrets.token_hex(4)}"
    while id in taken:
        id = f"k_{secrets.token_hex(4)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    now = datetime.now(UTC).replace(microsecond=0)
    return _Stored(id, name, scopes, digest, now, expires)


def _state(path: Path) -> _State | None:
    """None means surely missing; what cannot be looked at must not pass for missing."""
    try:
        return _state_of(path.stat())
    except FileNotFoundError:
        return None
    except OSError:
        return _UNKNOWN


def _state_of(found: os.stat_result) -> _State:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _load(path: Path) -> tuple[_State | None, tuple[_Stored, ...]]:
    """The file's state and keys; a missing file holds none. Raises KeyFileError."""
    try:
        with path.open("rb") as opened:
            found = os.fstat(opened.fileno())
            if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _damaged(path, "others may write to it (chmod 600 it)")
            body = opened.read(FILE_BYTES + 1)
    except FileNotFoundError:
        return None, ()
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    return _state_of(found), _parse(path, body)


def _parse(path: Path, body: bytes) -> tuple[_Stored, ...]:
    if len(body) > FILE_BYTES:
        raise _damaged(path, f"it is larger than {FILE_BYTES} bytes")
    try:
        keys = msgspec.json.decode(body, type=_File).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if any(not re.fullmatch(r"[0-9a-f]{64}", key.sha256) for key in keys):
        raise _damaged(path, "a key's sha256 is not 64 hexadecimal digits")
    return keys


def _damaged(path: Path, why: str) -> KeyFileError:
    return KeyFileError(
        f"{path}: the key file cannot be used: {why}. Nobody can authenticate until it is restored "
        "from a copy, or moved away to start with no keys"
    )


def _unwritable(path: Path, error: OSError) -> KeyFileError:
    return KeyFileError(
        f"{path}: cannot be written: {error.strerror or error}. Run as the user who owns "
        f"{path.parent}, or set server.state_dir"
    )


def _take(lock: int, path: Path) -> None:
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise KeyFileError(f"{path}: another process keeps it locked; try again") from None
            time.sleep(0.01)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
