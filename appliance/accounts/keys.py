"""API keys: named, scoped, limited, expiring; only their SHA-256 is stored, in the ledger.

A key made, changed or revoked by the command line counts at once in a running daemon. Every change
is a chained entry. A ledger that cannot be read lets nobody in.
"""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from appliance.accounts.book import Book, Change, State
from appliance.accounts.keyrow import (
    BOX,
    MOST_GRACE_S,
    PREFIX,
    SCOPES,
    TENANT,
    By,
    Key,
    KeyExists,
    KeyFileError,
    KeyRefused,
    KeysError,
    KeyUnknown,
    LastAdmin,
    Previous,
    Scope,
    Stored,
    checked_name,
    checked_scopes,
    digest_of,
    new_id,
    new_secret,
)
from appliance.accounts.legacy import take_over
from appliance.accounts.limits import NONE, Limits
from appliance.accounts.tenants import Tenants

__all__ = [
    "BOX", "FILE_NAME", "MOST_GRACE_S", "PREFIX", "SCOPES", "TENANT", "By", "Key", "KeyExists",
    "KeyFileError", "KeyRefused", "KeyStore", "KeyUnknown", "KeysError", "LastAdmin", "Scope",
]  # fmt: skip

FILE_NAME = "ledger.sqlite"
LOCAL = By()
"""The box's own command line."""


def _now() -> datetime:
    return datetime.now(UTC)


class KeyStore:
    """The keys of one state directory. Every method may be called from any thread;
    `authenticate`, `empty` and `problem` also from an event loop."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self.path = path
        self._clock = clock
        self._book = Book(path, time.time_ns)
        self._taken_over = False
        self.tenants = Tenants(self._book)

    @property
    def problem(self) -> str:
        """Why nobody can authenticate; empty when all is well."""
        return self._state().problem

    @property
    def empty(self) -> bool:
        """No key with scope `infer` exists. An expired key still counts, and so does a ledger that
        cannot be read: neither may open the box to everybody."""
        state = self._state()
        return not state.problem and not any("infer" in lock.key.scopes for lock in state.locks)

    def has_live(self, scope: Scope) -> bool:
        """Whether anyone can authenticate for `scope` today."""
        today = self.today()
        locks = self._state().locks
        return any(scope in lock.key.scopes and lock.key.live(today) for lock in locks)

    def today(self) -> date:
        return self._clock().astimezone(UTC).date()

    def list(self) -> tuple[Key, ...]:
        """All keys, oldest first, those that were revoked among them. Raises KeyFileError."""
        return tuple(key.public() for key in self._usable().keys)

    def find(self, name_or_id: str) -> Key:
        """Raises KeysError, also when there is none."""
        return _found(self._usable(), name_or_id).public()

    def authenticate(self, secret: str) -> Key | None:
        """The live key with this secret. Takes the same time for every wrong one; never raises."""
        digest, now = digest_of(secret), self._clock()
        found: Key | None = None
        for lock in self._state().locks:
            if lock.opens(digest, now):
                found = lock.key
        return found if found is not None and found.live(self.today()) else None

    # -- changes: one transaction and one chained entry each --------------------------------------

    def create(
        self,
        name: str,
        scopes: Iterable[str],
        expires: date | None = None,
        *,
        tenant: str = TENANT,
        limits: Limits = NONE,
        by: By = LOCAL,
    ) -> str:
        """Add a key and return its secret, which nothing can show again. Raises KeysError."""
        if expires is not None and expires < self.today():
            raise KeyRefused(f"a key that expired on {expires} would never work: take a later day")
        secret = new_secret()
        key = Stored(
            id="",
            name=checked_name(name),
            scopes=checked_scopes(scopes),
            tenant=checked_name(tenant, "tenant"),
            sha256=digest_of(secret).hex(),
            created=self._clock().replace(microsecond=0),
            created_by=by.operator or by.key_name,
            created_from=by.host,
            expires=expires,
            limits=limits,
        )
        self._usable()
        self._book.change(lambda state: _creation(state, key), by)
        return secret

    def create_first(self) -> str | None:
        """On a box without any key, make the key `admin` and return its secret, else None."""
        try:
            return None if self._usable().locks else self.create("admin", ["admin"], by=BOX)
        except KeyRefused:
            return None  # Another process made it in between.

    def rotate(self, name_or_id: str, grace_s: float = 0, *, by: By = LOCAL) -> tuple[Key, str]:
        """Give a key a new secret; the old one is good for `grace_s` more. Raises KeysError."""
        if not 0 <= grace_s <= MOST_GRACE_S:
            raise KeyRefused(f"the old secret can stay good for 0 to {MOST_GRACE_S} s")
        secret, now = new_secret(), self._clock()
        until = now + timedelta(seconds=grace_s)

        def decide(state: State) -> Change:
            key = _found(state, name_or_id, changing=True)
            new = msgspec.structs.replace(
                key,
                sha256=digest_of(secret).hex(),
                rotated=now.replace(microsecond=0),
                previous=Previous(key.sha256, until) if grace_s else None,
            )
            return _change("key.rotate", new)

        return self._changed(decide, by), secret

    def set_limits(self, name_or_id: str, limits: Limits, *, by: By = LOCAL) -> Key:
        """All limits of the key, in place of those it had. Raises KeysError."""

        def decide(state: State) -> Change:
            key = _found(state, name_or_id, changing=True)
            return _change("key.limits", msgspec.structs.replace(key, limits=limits))

        return self._changed(decide, by)

    def revoke(self, name_or_id: str, *, force: bool = False, by: By = LOCAL) -> Key:
        """End a key for good; its name is free again. Raises KeysError: LastAdmin for the last
        live admin key, unless `force`."""
        now = self._clock().replace(microsecond=0)

        def decide(state: State) -> Change:
            key = _found(state, name_or_id, changing=True)
            if not force and self._is_last_admin(state, key):
                raise LastAdmin(
                    f"{key.name!r} is the last valid key with scope admin: make another first, or "
                    "force it"
                )
            return _change("key.revoke", msgspec.structs.replace(key, revoked=now, previous=None))

        return self._changed(decide, by)

    def prune(self, before: date, *, by: By = LOCAL) -> tuple[Key, ...]:
        """Drop the keys that were revoked before that day from the list. Raises KeysError."""

        def old(key: Stored) -> bool:
            return key.revoked is not None and key.revoked.astimezone(UTC).date() < before

        gone = [key for key in self._usable().keys if old(key)]
        ids = tuple(key.id for key in gone)
        if ids:
            change = Change("keys.prune", "", {"removed": ids}, removed=ids)
            self._book.change(lambda _: change, by)
        return tuple(key.public() for key in gone)

    def _changed(self, decide: Callable[[State], Change], by: By) -> Key:
        self._usable()
        return self._book.change(decide, by).keys[0].public()

    def _is_last_admin(self, state: State, key: Stored) -> bool:
        today = self.today()
        live = {lock.key.id for lock in state.locks if lock.key.live(today)
                and "admin" in lock.key.scopes}  # fmt: skip
        return live == {key.id}

    # -- reading ----------------------------------------------------------------------------------

    def _state(self) -> State:
        if not self._taken_over:
            try:
                take_over(self._book)
                self._taken_over = True
            except KeyFileError as error:
                return State(problem=str(error))
        return self._book.state()

    def _usable(self) -> State:
        state = self._state()
        if state.problem:
            raise KeyFileError(state.problem)
        return state


def _creation(state: State, key: Stored) -> Change:
    if any(known.name == key.name for known in state.keys if known.revoked is None):
        raise KeyExists(f"a key named {key.name!r} exists: revoke it first, or take another name")
    made = msgspec.structs.replace(key, id=new_id(known.id for known in state.keys))
    return _change("key.create", made)


def _change(action: str, key: Stored) -> Change:
    return Change(action, key.id, {"key": key}, keys=(key,))


def _found(state: State, name_or_id: str, *, changing: bool = False) -> Stored:
    """The key that has this name, else this id. Raises KeyUnknown."""
    for key in state.keys:
        if key.revoked is None and key.name == name_or_id:
            return key
    for key in state.keys:
        if key.id == name_or_id and not (changing and key.revoked is not None):
            return key
    raise KeyUnknown(f"no key named {name_or_id[:80]!r}: `steelyard keys list` shows all")
