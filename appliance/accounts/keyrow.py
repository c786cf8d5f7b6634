"""A key as it is known, as it is stored, and what may be asked for it."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import date, datetime
from typing import Literal, get_args

import msgspec

from appliance.accounts.limits import Limits
from appliance.errors import ForOperator

Scope = Literal["infer", "metrics", "admin"]
SCOPES: frozenset[str] = frozenset(get_args(Scope))
PREFIX = "sk-steelyard-"
SECRET_BYTES = 32
TENANT = "default"
"""Of a key for which none is named."""
MOST_GRACE_S = 30 * 86_400

_NAME = re.compile(r"(?!k_)[A-Za-z0-9](?:[A-Za-z0-9 ._@-]{0,62}[A-Za-z0-9])?")


class KeysError(ForOperator):
    """A change to keys or tenants did not happen. Says why and what to do."""


class KeyFileError(KeysError):
    """The ledger, where the keys are, cannot be read or written."""


class KeyRefused(KeysError):
    """What was asked for is not possible: a bad name, a scope that does not exist."""


class KeyUnknown(KeyRefused):
    """There is no such key."""


class KeyExists(KeyRefused):
    """The name is taken."""


class LastAdmin(KeyRefused):
    """It is the last key that may change keys over the network."""


class By(msgspec.Struct, frozen=True):
    """Who changes something."""

    key_id: str = ""
    key_name: str = ""
    operator: str = ""
    """Who they say they are."""
    host: str = "local"


BOX = By(operator="steelyard")
"""The box itself."""


class Key(msgspec.Struct, frozen=True):
    """What is known of a key; never its secret."""

    id: str
    name: str
    scopes: frozenset[Scope]
    created: datetime
    expires: date | None = None
    """The last day on which it is good, in UTC."""
    tenant: str = TENANT
    limits: Limits = Limits()
    created_by: str = ""
    created_from: str = ""
    rotated: datetime | None = None
    grace_until: datetime | None = None
    """Until then the secret before the last rotation is good as well."""
    revoked: datetime | None = None

    def live(self, today: date) -> bool:
        """Whether it lets anybody in."""
        return self.revoked is None and (self.expires is None or today <= self.expires)

    def state(self, today: date) -> str:
        """Valid, expired or revoked."""
        if self.revoked is not None:
            return "revoked"
        return "valid" if self.live(today) else "expired"


class Previous(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secret before the last rotation."""

    sha256: str
    until: datetime


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as the ledger has it."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    tenant: str
    sha256: str
    created: datetime
    created_by: str = ""
    created_from: str = ""
    expires: date | None = None
    limits: Limits = Limits()
    rotated: datetime | None = None
    previous: Previous | None = None
    revoked: datetime | None = None

    def public(self) -> Key:
        return Key(
            id=self.id,
            name=self.name,
            scopes=frozenset(self.scopes),
            created=self.created,
            expires=self.expires,
            tenant=self.tenant,
            limits=self.limits,
            created_by=self.created_by,
            created_from=self.created_from,
            rotated=self.rotated,
            grace_until=self.previous.until if self.previous is not None else None,
            revoked=self.revoked,
        )


class Lock:
    """A stored key ready to be compared with what clients send."""

    __slots__ = ("_now", "_old", "key", "until")

    def __init__(self, stored: Stored) -> None:
        self.key = stored.public()
        self._now = bytes.fromhex(stored.sha256)
        old = stored.previous
        self._old = bytes.fromhex(old.sha256) if old is not None else self._now
        self.until = old.until if old is not None else None

    def opens(self, digest: bytes, now: datetime) -> bool:
        """Whether the secret of this digest is its own. Takes the same time for every wrong one."""
        current = hmac.compare_digest(digest, self._now)
        old = hmac.compare_digest(digest, self._old)
        return current or (old and self.until is not None and now < self.until)


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def new_id(taken: Iterable[str]) -> str:
    known = set(taken)
    while (id := f"k_{secrets.token_hex(4)}") in known:
        pass
    return id


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def checked_scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    """Raises KeyRefused."""
    wanted = frozenset(scopes)
    if not wanted or wanted - SCOPES:
        raise KeyRefused(f"a key needs one or more of the scopes {', '.join(sorted(SCOPES))}")
    return msgspec.convert(sorted(wanted), tuple[Scope, ...])


def checked_name(name: str, of: str = "key") -> str:
    """ASCII alone, so that no two names look alike. Raises KeyRefused."""
    if _NAME.fullmatch(name):
        return name
    raise KeyRefused(
        f"{name[:80]!a} is no name for a {of}: use 1 to 64 letters (a-z, A-Z), digits and . _ @ - "
        "or spaces between them, not beginning with k_"
    )
