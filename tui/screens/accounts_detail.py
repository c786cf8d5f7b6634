"""A key or a tenant told: who made it, what it may, what it cost, its last 30 days. Pure."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import msgspec

from tui.cells import pad
from tui.figures import NONE, count, money, spark
from tui.lines import Line, Span, line, wrap
from tui.screens.accounts_forms import told
from tui.screens.accounts_rows import Costs, Key, KeyRow, TenantRow, today_of
from tui.view import View

NANO = 1e9
DAYS = 30


def of_key(row: KeyRow, costs: Costs | None, problem: str, view: View) -> list[Line]:
    """The lines below the table, or beside it."""
    texts = [_made(row.key, view), *_changes(row.key, view)]
    limits = msgspec.structs.asdict(row.key.limits)
    texts.append(f" {view.words('accounts.limits', limits=told(limits, view))}")
    texts.append(f" {_cost(row.key, costs, problem, view)}")
    lines = [line(part) for text in texts for part in wrap(text, view.width)]
    return [(Span(lines[0][0].text, "bold"), *lines[0][1:]), *lines[1:]]


def _made(key: Key, view: View) -> str:
    foreign = view.foreign
    return view.words(
        "accounts.made",
        name=foreign(key.name),
        id=foreign(key.id),
        day=day_of(key.created, view),
        who=foreign(key.created_by) or NONE,
        host=foreign(key.created_from) or NONE,
    )


def _changes(key: Key, view: View) -> list[str]:
    words, found = view.words, []
    if key.rotated:
        found.append(words("accounts.rotated", day=day_of(key.rotated, view)))
    if key.grace_until:
        until = view.foreign(key.grace_until)[:16].replace("T", " ")
        found.append(words("accounts.grace", until=until))
    if key.revoked:
        found.append(words("accounts.revoked", day=day_of(key.revoked, view)))
    return [f" {', '.join(found)}"] if found else []


def day_of(text: str, view: View) -> str:
    """`11-01` of a time in ISO 8601."""
    return view.foreign(text)[5:10] or NONE


def _cost(key: Key, costs: Costs | None, problem: str, view: View) -> str:
    words = view.words
    if costs is None:
        if problem:
            return words("accounts.cost.failed", error=view.foreign(problem))
        return words("accounts.cost.reading")
    found = costs.of(key)
    if found is None:
        return words("accounts.cost.none")
    stages = {name: getattr(found, name) for name in ("prefill", "decode", "cached", "idle")}
    total = f"{money(found.total / NANO)} {view.foreign(costs.currency)}".rstrip()
    parts = {name: money(nano / NANO) for name, nano in stages.items()}
    return words("accounts.cost", total=total, **parts)


def of_tenant(row: TenantRow, view: View) -> list[Line]:
    name = view.foreign(row.tenant.name)
    limits = msgspec.structs.asdict(row.tenant.limits)
    texts = [
        view.words("accounts.tenant", name=name, keys=row.keys),
        f" {view.words('accounts.limits', limits=told(limits, view))}",
    ]
    lines = [line(part) for text in texts for part in wrap(text, view.width)]
    return [(Span(lines[0][0].text, "bold"), *lines[0][1:]), *lines[1:]]


# -- 30 days, where there is room ------------------------------------------------------------------

Days = Mapping[str, Mapping[str, int]]
"""Tokens by key id and day."""


def since(view: View) -> date | None:
    """The first of the days; None while the box's day is not known."""
    today = today_of(view)
    return None if today is None else today - timedelta(days=DAYS - 1)


def days_of(data: Any) -> Days:
    """From GET /admin/usage?by=key,day."""
    found: dict[str, dict[str, int]] = {}
    for row in data["rows"]:
        found.setdefault(str(row["key"]), {})[str(row["day"])] = int(row["total_tokens"])
    return found


def plots(rows: tuple[KeyRow, ...], days: Days, view: View) -> list[Line]:
    """One line for each key, to its own scale; a day without any use is a gap."""
    first = since(view)
    if first is None:
        return []
    names = [str(first + timedelta(days=at)) for at in range(DAYS)]
    drawn = [(row, [days.get(row.key.id, {}).get(name) for name in names]) for row in rows]
    most = max((max(value or 0 for value in values) for _, values in drawn), default=0)
    head = view.words("accounts.days", most=count(most))
    return [line(Span(head, "bold")), *(_plot(row, values, view) for row, values in drawn)]


def _plot(row: KeyRow, values: list[int | None], view: View) -> Line:
    curve = spark(values, DAYS, view.ascii)
    total = sum(value or 0 for value in values)
    return line(f" {pad(view.foreign(row.key.name), 12)} {curve} {count(total)}")
