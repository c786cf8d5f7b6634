"""The cost report as tables of 80 columns.

What is printed adds up as printed: one sum is rounded, its parts are made to fit (largest
remainder), and every other total is the sum of the printed parts.
"""

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from appliance.accounts.cost import DAY_NS, NANO, rounded, split
from appliance.accounts.costreport import Line, Report
from appliance.commands.terminal import one_line

WIDTH = 80
NOBODY = "(nobody)"
TENTH_NS = NANO // 10
NOT_KNOWN = "-"


def table(report: Report) -> str:
    """The whole report for a terminal."""
    parts = [_heading(report)]
    if report.rows:
        money = _Money.of(report)
        parts += [_standard(report, money), _use(report, money), _actual(report, money)]
        parts += [_cloud(report, money)] if report.cloud else []
    else:
        parts.append(_unused(report))
    parts += ["\n".join(textwrap.wrap(note, WIDTH)) for note in report.notes]
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Money:
    """Amounts in printed units, each table's from the same ones."""

    places: int
    stages: tuple[tuple[int, ...], ...]
    """Standard cost, by row and stage."""
    actual: tuple[int, ...]
    """By row, then what nobody caused."""

    @classmethod
    def of(cls, report: Report) -> "_Money":
        places = decimals(report.total.standard.total, report.total.actual)
        unit = 10 ** (9 - places)
        columns = [
            split(total, cells)
            for total, cells in zip(
                spread(stage_costs(report.total), unit),
                zip(*map(stage_costs, report.rows), strict=True),
                strict=True,
            )
        ]
        actual = spread([*(row.actual for row in report.rows), report.unallocated], unit)
        return cls(places, tuple(zip(*columns, strict=True)), tuple(actual))

    def show(self, units: int) -> str:
        """An amount that was spread."""
        return fixed_point(units, self.places)

    def show_nano(self, nano: int) -> str:
        """An amount that stands for itself."""
        return self.show(rounded(nano, 10 ** (9 - self.places)))


def decimals(*amounts: int) -> int:
    """How many show the least of these (nano) with five digits and the largest in ten characters:
    2 to 8, or none for millions. Zeros do not count."""
    least, largest = min(filter(None, amounts), default=0), max(amounts)
    if largest >= 10**7 * NANO:
        return 0
    wanted = next((n for n in range(2, 8) if least * 10**n >= 10**4 * NANO), 8) if least else 2
    return min(wanted, 9 - len(str(largest // NANO)))


def spread(parts: Sequence[int], unit: int) -> list[int]:
    """The parts in units: the sum is rounded, and the parts are made to fit it."""
    return split(rounded(sum(parts), unit), parts)


def fixed_point(units: int, places: int) -> str:
    """`units` of 10^-places as a decimal number."""
    if not places:
        return str(units)
    whole, part = divmod(abs(units), 10**places)
    return f"{'-' if units < 0 else ''}{whole}.{part:0{places}}"


def stage_costs(row: Line) -> tuple[int, int, int, int]:
    """Standard cost: prefill, decode, cached, idle."""
    cost = row.standard
    return cost.prefill, cost.decode, cost.cached, cost.idle


def _heading(report: Report) -> str:
    days = fixed_point(rounded(report.wall_ns, DAY_NS // 10), 1)
    by = f", by {', '.join(report.by)}" if report.by else ""
    return f"Cost in {report.currency}, {report.first} to {report.last} ({days} days){by}"


def _standard(report: Report, money: _Money) -> str:
    rows = [
        [label(row), str(row.requests), *map(money.show, (*cells, sum(cells)))]
        for row, cells in zip(report.rows, money.stages, strict=True)
    ]
    columns = [sum(column) for column in zip(*money.stages, strict=True)]
    total = [str(report.total.requests), *map(money.show, (*columns, sum(columns)))]
    head = [_head(report), "requests", "prefill", "decode", "cached", "idle", "total"]
    return layout("Standard cost: fixed when each request ended", head, rows, total)


def _use(report: Report, money: _Money) -> str:
    tenths = spread([row.device_ns for row in report.rows], TENTH_NS)
    rows = [
        [label(row), *_used(row, money, place)]
        for row, place in zip(report.rows, tenths, strict=True)
    ]
    total = _used(report.total, money, sum(tenths))
    head = [_head(report), "prompt", "reused", "completion", "device s", "per Mtok", "J/token"]
    return layout("Use: tokens, device time, standard cost of a million tokens", head, rows, total)


def _used(row: Line, money: _Money, tenths: int) -> list[str]:
    joules = NOT_KNOWN if row.joules_per_token is None else f"{row.joules_per_token:.3g}"
    return [
        str(row.prompt_tokens),
        str(row.cached_tokens),
        str(row.completion_tokens),
        fixed_point(tenths, 1),
        NOT_KNOWN if row.per_mtok is None else money.show_nano(row.per_mtok),
        joules,
    ]


def _actual(report: Report, money: _Money) -> str:
    labels = [label(row) for row in report.rows]
    standard = [sum(cells) for cells in money.stages]
    if report.unallocated:
        labels, standard = [*labels, NOBODY], [*standard, 0]
    thousandths = 1000 if report.total.actual else 0
    shares = split(thousandths, [*(row.actual for row in report.rows), report.unallocated])
    rows = [
        [name, fixed_point(share, 1), *map(money.show, (actual, planned, actual - planned))]
        for name, share, actual, planned in zip(
            labels, shares, money.actual, standard, strict=False
        )
    ]
    actual, planned = sum(money.actual), sum(standard)
    total = [fixed_point(thousandths, 1), *map(money.show, (actual, planned, actual - planned))]
    head = [_head(report), "share %", "actual", "standard", "variance"]
    return layout(_actual_title(report, money), head, rows, total)


def _actual_title(report: Report, money: _Money) -> str:
    fixed, energy = spread([report.fixed, report.energy], 10 ** (9 - money.places))
    return (
        f"Actual cost: {money.show(fixed)} fixed + {money.show(energy)} energy\n"
        f"The device computed {report.utilisation:.2%} of the time; "
        f"{report.expected_utilisation:.2%} is expected (cost.utilisation)"
    )


def _unused(report: Report) -> str:
    places = decimals(report.total.actual)
    amount = fixed_point(rounded(report.unallocated, 10 ** (9 - places)), places)
    return f"No requests. The box cost {amount}, which nobody caused."


def _cloud(report: Report, money: _Money) -> str:
    standard, actual = sum(map(sum, money.stages)), sum(money.actual)
    rows = []
    for cloud in report.cloud:
        there = rounded(cloud.cost, 10 ** (9 - money.places))
        amounts = (there, there - standard, there - actual)
        rows.append([one_line(cloud.name), *map(money.show, amounts)])
    head = ["price list", "there", "- standard", "- actual"]
    title = "The same tokens elsewhere, and the difference (positive: the box is cheaper)"
    return layout(title, head, rows, None)


def _head(report: Report) -> str:
    return "/".join(report.by)


def label(row: Line) -> str:
    """The group's name. It may come from a client, so nothing in it moves the cursor."""
    values = [
        (row.group["key_name"] or value or "(no key)") if name == "key" else value or "(none)"
        for name, value in row.group.items()
        if name != "key_name"
    ]
    return " / ".join(map(one_line, values))


def layout(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] | None
) -> str:
    """A table with labels at the left and numbers at the right, rules above and below the rows."""
    body = [head, *rows, *([["total", *total]] if total is not None else [])]
    widths = [max(len(row[i]) for row in body) for i in range(1, len(head))]
    needed = max(cells_of(row[0]) for row in body)
    gap = 2 if needed + sum(widths) + 2 * len(widths) <= WIDTH else 1
    room = max(0, min(needed, WIDTH - sum(widths) - gap * len(widths)))
    lines = [list(_row(row, widths, room, " " * gap)) for row in body]
    rule = "-" * max(cells_of(line) for row in lines for line in row)
    below = [] if total is None else [[rule], lines.pop()]
    return "\n".join([title, "", *chain(lines[0], [rule], *lines[1:], *below)])


def _row(row: Sequence[str], widths: Sequence[int], room: int, gap: str) -> Iterator[str]:
    """One line; a label that is too long for its column goes on lines of its own above."""
    name = row[0]
    if cells_of(name) > room:
        yield from textwrap.wrap(name, WIDTH // (2 if cells_of(name) > len(name) else 1))
        name = ""
    numbers = [number.rjust(width) for number, width in zip(row[1:], widths, strict=True)]
    yield gap.join([name + " " * (room - cells_of(name)), *numbers])


def cells_of(text: str) -> int:
    """Columns of a terminal that the text takes."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )
