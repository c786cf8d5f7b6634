"""What a key, or all keys of a tenant together, may use; and how that is written."""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Literal, get_args

import msgspec

Tier = Literal["priority", "default", "flex"]
RANKS: dict[str, int] = {"flex": 0, "default": 1, "priority": 2}
NANO = 1_000_000_000
"""Money is counted in 1e-9 of the currency."""
MOST = 2**53 - 1
"""Every JSON reader takes numbers up to this one exactly."""

_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


class LimitsRefused(Exception):
    """A limit that cannot be set. `name` says which, the message what it may be."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Limits(msgspec.Struct, frozen=True):
    """None: no limit."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    """Prompt and completion together, as in `usage.total_tokens`."""
    tokens_per_day: int | None = None
    cost_per_month: int | None = None
    """In nano units of the currency."""
    concurrent: int | None = None
    priority: Tier | None = None
    """The highest tier it may ask for."""


NAMES: tuple[str, ...] = Limits.__struct_fields__
NONE = Limits()


def limits_from(given: Mapping[str, object]) -> Limits:
    """All limits by name; what is missing or None is no limit. Raises LimitsRefused."""
    for name in given:
        if name not in NAMES:
            raise LimitsRefused(name[:64], f"no limit {name[:64]!r}: there are {', '.join(NAMES)}")
    found = {name: _value(name, value) for name, value in given.items() if value is not None}
    return msgspec.convert(found, Limits)


def limits_from_text(pairs: tuple[str, ...]) -> Limits:
    """Limits as the command line takes them, each `name=value`. Raises LimitsRefused."""
    given: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise LimitsRefused(name, f"{pair!r}: write name=value, e.g. tokens_per_min=20000")
        given[name] = int(value) if value.isascii() and value.isdecimal() else value
    return limits_from(given)


def _value(name: str, value: object) -> int | str:
    if name == "priority":
        if isinstance(value, str) and value in get_args(Tier):
            return value
        raise LimitsRefused(name, f"priority: must be one of {', '.join(get_args(Tier))}")
    if name == "cost_per_month":
        return _money(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST:
        return value
    raise LimitsRefused(name, f"{name}: must be a whole number from 1 (leave it out for no limit)")


def _money(value: object) -> int:
    """`value`, a number or a decimal in a string, in nano units."""
    text = str(value)
    try:
        amount = int(Decimal(text) * NANO) if _DECIMAL.fullmatch(text) else 0
    except InvalidOperation:
        amount = 0
    if 0 < amount <= MOST:
        return amount
    raise LimitsRefused(
        "cost_per_month",
        "cost_per_month: must be an amount of the box's currency above 0, up to 9000000, with at "
        "most nine decimals, such as 12.50",
    )


def money(nano: int) -> str:
    """An amount as a decimal: at least two decimals, no more than it needs."""
    sign, whole, part = "-" * (nano < 0), abs(nano) // NANO, abs(nano) % NANO
    decimals = f"{part:09d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"


def shown(limits: Limits) -> dict[str, int | str | None]:
    """The limits as the outside sees them: money as a decimal."""
    found: dict[str, int | str | None] = msgspec.structs.asdict(limits)
    if limits.cost_per_month is not None:
        found["cost_per_month"] = money(limits.cost_per_month)
    return found
