"""The ledger's daily sums of usage, by group and period. Reads only."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Self

from appliance.accounts.allocation import Usage
from appliance.accounts.cost import DAY_NS
from appliance.errors import ForOperator

DIMENSIONS: Mapping[str, str] = {
    "key": "key_id",
    "tenant": "tenant",
    "scenario": "scenario",
    "model": "model",
    "day": "day",
}
"""What a report can be grouped by, and its column in the daily sums."""
EPOCH = date(1970, 1, 1)
HOUR_NS = DAY_NS // 24
HOUR_ENDS = 10
"""Requests at either end of each hour whose currency is looked at: those that were refused have
none. It changes with a restart alone, so this finds every one that lasted to an hour's end."""

_SUMS = (
    "requests",
    "refused",
    "prompt_tokens",
    "cached_tokens",
    "prefill_tokens",
    "completion_tokens",
    "prefill_ns",
    "decode_ns",
    "energy_uj",
    "cost_prefill",
    "cost_decode",
    "cost_cached",
    "cost_idle",
)


class BadReport(ForOperator):
    """Such a report cannot be made. Says why and what to do; `param` is what was wrong."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Period:
    """Whole days (UTC), the first to the last, as far as they have passed."""

    first: date
    last: date
    wall_ns: int

    @classmethod
    def of(cls, first: date, last: date, now_ns: int) -> Self:
        """Raises BadReport where the last day is before the first."""
        if last < first:
            raise BadReport(
                f"the period ends ({last}) before it begins ({first}): swap the days", "from"
            )
        begin, end = day_number(first) * DAY_NS, (day_number(last) + 1) * DAY_NS
        return cls(first, last, max(0, min(end, now_ns) - begin))

    @classmethod
    def between(
        cls, first: date | None, last: date | None, now_ns: int, used_since: date | None
    ) -> Self:
        """Where no day is given: this month to date, from the first day with usage."""
        today = EPOCH + timedelta(days=now_ns // DAY_NS)
        if last is None:
            last = max(today, first or today)
        if first is None:
            first = last.replace(day=1)
            if used_since is not None and first < used_since <= last:
                first = used_since
        return cls.of(first, last, now_ns)


def check_by(by: Sequence[str]) -> None:
    """Raises BadReport for a dimension that is not there, or is there twice."""
    for name in by:
        if name not in DIMENSIONS:
            raise BadReport(f"by {name[:40]!r}: it takes {', '.join(DIMENSIONS)}", "by")
    if len(set(by)) < len(by):
        raise BadReport("by: a dimension is named twice", "by")


@dataclass(frozen=True, slots=True)
class Sums:
    """What the ledger says of a period."""

    by: tuple[str, ...]
    period: Period
    rows: tuple[Usage, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    """Each key's name by its id."""
    currencies: tuple[str, ...] = ()
    """Of the period's costs."""
    used: tuple[date, date] | None = None
    """The first and the last day with usage, whatever the period."""


def read_sums(
    db: sqlite3.Connection,
    by: Sequence[str],
    *,
    now_ns: int,
    first: date | None = None,
    last: date | None = None,
) -> Sums:
    """The sums by group. Raises BadReport."""
    check_by(by)
    used = used_days(db)
    period = Period.between(first, last, now_ns, used[0] if used else None)
    rows = read_usage(db, by, period)
    ids = {row.group[list(by).index("key")] for row in rows} if "key" in by else set()
    return Sums(
        by=tuple(by),
        period=period,
        rows=tuple(rows),
        names=key_names(db, ids),
        currencies=tuple(currencies(db, period)),
        used=used,
    )


def read_usage(db: sqlite3.Connection, by: Sequence[str], period: Period) -> list[Usage]:
    """The daily sums of the period, added up by group."""
    columns = [DIMENSIONS[name] for name in by]
    sums = ", ".join(f"COALESCE(SUM({name}), 0)" for name in _SUMS)
    measured = ", ".join(
        f"COALESCE(SUM(CASE WHEN energy_uj > 0 THEN {what} END), 0)"
        for what in ("prefill_ns + decode_ns", "prompt_tokens + completion_tokens")
    )
    group = f" GROUP BY {', '.join(columns)}" if columns else ""
    found = db.execute(
        f"SELECT {', '.join([*columns, sums, measured])} FROM usage_daily "
        f"WHERE day BETWEEN ? AND ?{group}",
        (day_number(period.first), day_number(period.last)),
    )
    return [_usage(by, row) for row in found]


def _usage(by: Sequence[str], row: Sequence[object]) -> Usage:
    group = tuple(
        str(EPOCH + timedelta(days=int(str(value)))) if name == "day" else str(value)
        for name, value in zip(by, row, strict=False)
    )
    names = (*_SUMS, "measured_ns", "measured_tokens")
    numbers = {name: int(str(value)) for name, value in zip(names, row[len(by) :], strict=True)}
    return Usage(group=group, **numbers)


def day_number(day: date) -> int:
    """Days since 1970."""
    return (day - EPOCH).days


def used_days(db: sqlite3.Connection) -> tuple[date, date] | None:
    """The first and the last day with usage."""
    low, high = db.execute(
        "SELECT (SELECT MIN(day) FROM usage_daily), (SELECT MAX(day) FROM usage_daily)"
    ).fetchone()
    if low is None:
        return None
    return EPOCH + timedelta(days=low), EPOCH + timedelta(days=high)


def key_names(db: sqlite3.Connection, ids: Iterable[str]) -> dict[str, str]:
    """The keys' names; of one that was pruned, the name in its last request."""
    known = db.execute("SELECT id, json_extract(body, '$.name') FROM keys")
    names = {str(id): str(name) for id, name in known}
    for id in ids:
        if id not in names:
            found = db.execute(
                "SELECT json_extract(body, '$.key_name') FROM entries "
                "WHERE kind = 'request' AND key_id = ? ORDER BY seq DESC LIMIT 1",
                (id,),
            ).fetchone()
            names[id] = str(found[0] or "") if found else ""
    return names


def currencies(db: sqlite3.Connection, period: Period) -> list[str]:
    """Those of the period's costs, by the first and the last requests of each hour."""
    begin, end = day_number(period.first) * DAY_NS, (day_number(period.last) + 1) * DAY_NS
    hours = db.execute(
        "SELECT first_seq, last_seq FROM request_hours WHERE hour BETWEEN ? AND ?",
        (begin // HOUR_NS, end // HOUR_NS - 1),
    )
    found: set[str] = set()
    for first, last in hours.fetchall():
        for order in ("ASC", "DESC"):
            found.update(name for (name,) in db.execute(_CURRENCY.format(order), (first, last)))
    return sorted(found)


_CURRENCY = (
    "SELECT name FROM (SELECT json_extract(body, '$.costs.currency') AS name FROM entries"
    f" WHERE kind = 'request' AND seq BETWEEN ? AND ? ORDER BY seq {{}} LIMIT {HOUR_ENDS})"
    " WHERE name IS NOT NULL LIMIT 1"
)


def foreign(names: Iterable[str], currency: str) -> list[str]:
    """What a report says of costs that are in another currency than it."""
    if others := sorted(set(names) - {currency}):
        return [
            f"The ledger also has costs in {', '.join(others)} in this period, which are added "
            f"here as if they were {currency}: choose one that begins after cost.currency was "
            "changed."
        ]
    return []
