"""The cost report: what was used in a period, at standard cost and at actual cost.

`build` is pure; `report` reads the ledger's daily sums. The command line and GET /admin/cost show
the same `Report`.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

import msgspec

from appliance.accounts.allocation import (
    Actual,
    Allocation,
    Usage,
    Weights,
    actual_cost,
    allocate,
    total_of,
)
from appliance.accounts.cost import MICRO, NOTHING_SET, Rates, rounded
from appliance.accounts.prices import CloudPrice, read_prices
from appliance.accounts.sums import Sums, foreign, read_sums
from appliance.config import CostConfig
from appliance.ledger.database import connect, explained


class Standard(msgspec.Struct, frozen=True):
    """Standard cost by stage; nano."""

    prefill: int
    decode: int
    cached: int
    idle: int
    total: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One group of requests. Money in nano."""

    group: dict[str, str]
    requests: int
    refused: int
    prompt_tokens: int
    cached_tokens: int
    prefill_tokens: int
    completion_tokens: int
    prefill_ns: int
    decode_ns: int
    device_ns: int
    energy_uj: int | None
    """None: nothing was measured."""
    joules_per_token: float | None
    """Over the prompt and completion tokens of what was measured."""
    standard: Standard
    per_mtok: int | None
    """Standard cost of a million prompt and completion tokens."""
    actual: int
    share: float
    """Of the actual cost that was split."""
    variance: int
    """Actual minus standard: what the standard rates did not cover."""


class Cloud(msgspec.Struct, frozen=True):
    """The same tokens at one entry of the price list; nano. Positive: the box is cheaper."""

    name: str
    cost: int
    minus_standard: int
    minus_actual: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. Money in nano of `currency`."""

    currency: str
    first: str
    last: str
    wall_ns: int
    by: tuple[str, ...]
    notes: tuple[str, ...]
    rows: tuple[Line, ...]
    total: Line
    """`sum(row.actual) + unallocated` is its actual cost, and so on: exactly."""
    fixed: int
    energy: int
    unallocated: int
    """Actual cost of a period in which nobody used the box."""
    utilisation: float
    expected_utilisation: float
    cloud: tuple[Cloud, ...]


def report(
    ledger: Path,
    config: CostConfig,
    by: Sequence[str],
    *,
    now_ns: int,
    first: date | None = None,
    last: date | None = None,
) -> Report:
    """The report on the ledger in the file `ledger`. Raises BadReport, PricesError, LedgerError."""
    prices: tuple[CloudPrice, ...] = ()
    if config.price_list:
        prices = read_prices(Path(config.price_list), config.currency)
    with explained(ledger), closing(connect(ledger, read_only=True)) as db:
        sums = read_sums(db.conn, by, now_ns=now_ns, first=first, last=last)
    return build(config, sums, prices)


def build(config: CostConfig, sums: Sums, prices: Sequence[CloudPrice] = ()) -> Report:
    """The report on these groups, most expensive first (by day: oldest first)."""
    rates, whole = Rates.of(config), total_of(sums.rows)
    rows = sorted(sums.rows, key=_order(sums.by))
    actual = actual_cost(rates, sums.period.wall_ns, whole)
    allocation = allocate(actual.total, rows, Weights.of(config))
    return Report(
        currency=config.currency,
        first=str(sums.period.first),
        last=str(sums.period.last),
        wall_ns=sums.period.wall_ns,
        by=sums.by,
        notes=tuple(_notes(rates, actual, sums)),
        rows=_lines(rows, allocation, sums),
        total=_line(whole, {}, actual.total, 1.0),
        fixed=actual.fixed,
        energy=actual.energy,
        unallocated=allocation.unallocated,
        utilisation=actual.utilisation,
        expected_utilisation=config.utilisation,
        cloud=tuple(_cloud(price, whole, actual.total) for price in prices),
    )


def _order(by: Sequence[str]) -> Callable[[Usage], tuple[object, ...]]:
    if "day" in by:
        place = list(by).index("day")
        return lambda row: (row.group[place], -row.standard, row.group)
    return lambda row: (-row.standard, -row.device_ns, row.group)


def _lines(rows: Sequence[Usage], allocation: Allocation, sums: Sums) -> tuple[Line, ...]:
    allocated = sum(allocation.parts)
    lines: list[Line] = []
    for row, part in zip(rows, allocation.parts, strict=True):
        group = dict(zip(sums.by, row.group, strict=True))
        if "key" in group:
            group["key_name"] = sums.names.get(group["key"], "")
        lines.append(_line(row, group, part, part / allocated if allocated else 0.0))
    return tuple(lines)


def _line(row: Usage, group: dict[str, str], actual: int, share: float) -> Line:
    return Line(
        group=group,
        requests=row.requests,
        refused=row.refused,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        prefill_tokens=row.prefill_tokens,
        completion_tokens=row.completion_tokens,
        prefill_ns=row.prefill_ns,
        decode_ns=row.decode_ns,
        device_ns=row.device_ns,
        energy_uj=row.energy_uj if row.measured_ns else None,
        joules_per_token=_joules_per_token(row),
        standard=Standard(*row.stages, total=row.standard),
        per_mtok=per_mtok(row.standard, row.context_tokens),
        actual=actual,
        share=share,
        variance=actual - row.standard,
    )


def _joules_per_token(row: Usage) -> float | None:
    return row.energy_uj / MICRO / row.measured_tokens if row.measured_tokens else None


def per_mtok(cost: int, tokens: int) -> int | None:
    """Nano for a million tokens; None where there were none."""
    return rounded(cost * MICRO, tokens) if tokens else None


def _cloud(price: CloudPrice, used: Usage, actual: int) -> Cloud:
    there = price.cost(
        prompt_tokens=used.prompt_tokens,
        cached_tokens=used.cached_tokens,
        completion_tokens=used.completion_tokens,
    )
    return Cloud(price.name, there, there - used.standard, there - actual)


def _notes(rates: Rates, actual: Actual, sums: Sums) -> list[str]:
    notes = [] if rates.configured else [NOTHING_SET]
    if sums.used and not sums.rows:
        low, high = sums.used
        notes.append(f"Nothing was used in this period; the ledger has usage from {low} to {high}.")
    if rates.joule and not rates.busy_power and actual.measured_ns < actual.device_ns:
        notes.append(
            "Energy was not measured and cost.watts_busy is 0, so computing costs no energy here."
        )
    return notes + foreign(sums.currencies, rates.currency)
