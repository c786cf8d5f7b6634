"""What the box tells of keys, tenants and costs, and the rows of screen 4's tables."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import msgspec

from tui import moments
from tui.figures import NONE, UNKNOWN, count
from tui.filters import Field
from tui.grid import Column
from tui.view import View

LIMITS = (
    "requests_per_min",
    "tokens_per_min",
    "tokens_per_day",
    "cost_per_month",
    "concurrent",
    "priority",
)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None: no limit. Money as a decimal."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    tokens_per_day: int | None = None
    cost_per_month: str | None = None
    concurrent: int | None = None
    priority: str | None = None


class Used(msgspec.Struct, frozen=True, kw_only=True):
    requests_per_min: int = 0
    tokens_per_min: int = 0
    tokens_per_day: int = 0
    cost_per_month: str = "0"
    concurrent: int = 0


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Of GET /admin/keys. Times are ISO 8601."""

    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    state: str
    created: str = ""
    created_by: str = ""
    created_from: str = ""
    expires: str | None = None
    rotated: str | None = None
    grace_until: str | None = None
    revoked: str | None = None
    limits: Limits = Limits()
    used: Used = Used()


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    limits: Limits = Limits()
    used: Used = Used()


class Standard(msgspec.Struct, frozen=True, kw_only=True):
    """Standard cost by stage, in nano of the currency."""

    prefill: int
    decode: int
    cached: int
    idle: int
    total: int


class CostLine(msgspec.Struct, frozen=True, kw_only=True):
    group: Mapping[str, str]
    standard: Standard


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Of GET /admin/cost?by=key: the month to date."""

    currency: str
    rows: tuple[CostLine, ...]
    total: CostLine

    def of(self, key: Key) -> Standard | None:
        """None: it used nothing."""
        found = (row.standard for row in self.rows if row.group.get("key") == key.id)
        return next(found, None)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key beside what the frames say of it now."""

    key: Key
    tok_min: int
    days: int | None
    """Until it expires; None: never, or the box's day is not known."""


def key_rows(keys: tuple[Key, ...], view: View) -> tuple[KeyRow, ...]:
    """Revoked keys last. Rates are from the frames, which are newer, where they have the key."""
    now = {row.key: row.tok_min for row in view.rows.keys} if view.rows is not None else {}
    today = today_of(view)
    return tuple(
        KeyRow(key, now.get(key.name, key.used.tokens_per_min), _days(key.expires, today))
        for key in sorted(keys, key=lambda key: key.revoked is not None)
    )


def today_of(view: View) -> date | None:
    """By the box's clock, UTC."""
    return None if view.live is None else moments.day(view.live.at_ms)


def _days(expires: str | None, today: date | None) -> int | None:
    if expires is None or today is None:
        return None
    try:
        return max(0, (date.fromisoformat(expires) - today).days)
    except ValueError:
        return None


def state_of(key: Key, view: View) -> str:
    name = "grace" if key.grace_until and key.state == "valid" else key.state
    return view.words.or_else(f"accounts.state.{name}", view.foreign(key.state))


def scope_of(key: Key, view: View) -> str:
    """Short: scopes, or the tier for one that may only infer below the default."""
    if key.scopes == ("infer",) and key.limits.priority == "flex":
        return key.limits.priority
    return view.foreign("+".join(key.scopes))


def _expires(row: KeyRow, view: View) -> str:
    if row.key.expires is None:
        return NONE
    return f"{row.days} d" if row.days is not None else view.foreign(row.key.expires)[2:]


def of_limit(used: int, limit: int | None, width: int = 5) -> str:
    """`44/60`; without a limit `44`, and `-` for nothing of nothing."""
    if limit is None:
        return count(used, width) if used else NONE
    return f"{count(used, width)}/{count(limit, width)}"


def share(used: int, limit: int | None) -> str:
    """`###. 61`; `-` where there is no limit."""
    if not limit:
        return NONE
    percent = 100 * used / limit
    full = min(4, round(percent / 25))
    return f"{'#' * full}{'.' * (4 - full)} {min(999, round(percent)):3d}"


def amount(text: str | None) -> str:
    """A decimal of the box with two places; small amounts keep theirs."""
    if text is None:
        return NONE
    value = decimal(text)
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.4f}"


def decimal(text: str | None) -> float | None:
    """None for none, and for what is no number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


KEYS: tuple[Column[KeyRow], ...] = (
    Column("accounts.col.key", 9, lambda r, v: v.foreign(r.key.name), most=24),
    Column("accounts.col.tenant", 7, lambda r, v: v.foreign(r.key.tenant), rank=3, most=16),
    Column("accounts.col.scope", 6, lambda r, v: scope_of(r.key, v), rank=4, most=19),
    Column("accounts.col.expires", 7, _expires, right=True, rank=2),
    Column(
        "accounts.col.requests",
        8,
        lambda r, v: of_limit(r.key.used.requests_per_min, r.key.limits.requests_per_min, 4),
        right=True,
        rank=6,
    ),
    Column(
        "accounts.col.tokens",
        11,
        lambda r, v: of_limit(r.tok_min, r.key.limits.tokens_per_min),
        right=True,
    ),
    Column(
        "accounts.col.day",
        8,
        lambda r, v: share(r.key.used.tokens_per_day, r.key.limits.tokens_per_day),
        right=True,
        rank=5,
    ),
    Column("accounts.col.month", 6, lambda r, v: amount(r.key.used.cost_per_month), right=True),
    Column("accounts.col.state", 7, lambda r, v: state_of(r.key, v)),
)


@dataclass(frozen=True, slots=True)
class TenantRow:
    tenant: Tenant
    keys: int
    """Valid ones."""


def tenant_rows(tenants: tuple[Tenant, ...], keys: tuple[Key, ...]) -> tuple[TenantRow, ...]:
    valid = [key.tenant for key in keys if key.state == "valid"]
    return tuple(TenantRow(tenant, valid.count(tenant.name)) for tenant in tenants)


TENANTS: tuple[Column[TenantRow], ...] = (
    Column("accounts.col.tenant", 9, lambda r, v: v.foreign(r.tenant.name), most=24),
    Column("accounts.col.keys", 4, lambda r, v: count(r.keys, 4), right=True, rank=1),
    Column(
        "accounts.col.requests",
        9,
        lambda r, v: of_limit(r.tenant.used.requests_per_min, r.tenant.limits.requests_per_min, 4),
        right=True,
        rank=3,
    ),
    Column(
        "accounts.col.tokens",
        11,
        lambda r, v: of_limit(r.tenant.used.tokens_per_min, r.tenant.limits.tokens_per_min),
        right=True,
    ),
    Column(
        "accounts.col.day",
        8,
        lambda r, v: share(r.tenant.used.tokens_per_day, r.tenant.limits.tokens_per_day),
        right=True,
        rank=2,
    ),
    Column(
        "accounts.col.concurrent",
        7,
        lambda r, v: of_limit(r.tenant.used.concurrent, r.tenant.limits.concurrent, 3),
        right=True,
        rank=4,
    ),
    Column("accounts.col.month", 8, lambda r, v: amount(r.tenant.used.cost_per_month), right=True),
    Column(
        "accounts.col.limit", 8, lambda r, v: amount(r.tenant.limits.cost_per_month), right=True
    ),
)


def key_fields(row: KeyRow) -> Mapping[str, Field]:
    """What `/` can ask of a key."""
    key = row.key
    return {
        "key": key.name,
        "id": key.id,
        "tenant": key.tenant,
        "scope": " ".join(key.scopes),
        "state": key.state,
        "by": key.created_by,
        "expires": row.days,
        "tokens": row.tok_min,
        "month": decimal(key.used.cost_per_month),
    }


_NEVER = 1 << 30
KEY_ORDERS: Mapping[str, Callable[[KeyRow], Any] | None] = {
    "made": None,
    "name": lambda row: row.key.name.casefold(),
    "tokens": lambda row: -row.tok_min,
    "month": lambda row: -(decimal(row.key.used.cost_per_month) or 0),
    "expires": lambda row: _NEVER if row.days is None else row.days,
}
