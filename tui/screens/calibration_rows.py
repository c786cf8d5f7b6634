"""What the box tells of its forecasters, and how screen 3 sets it: the versions, the scatter."""

import math
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tui import moments
from tui.cells import pad
from tui.figures import UNKNOWN, number
from tui.filters import Field
from tui.grid import Column
from tui.lines import Line, Span, line
from tui.view import View

NARROW, WIDE = 20, 44
"""Cells of the plot between its axis and its right edge."""
_LOW = 8
_HIGHS = (512, 4096)
_LABEL = 5
_MOST_OUT = 0.05
"""Share of points beyond the top edge, above which the axis gets longer."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One forecaster of GET /admin/forecasters."""

    version: str
    in_use: bool = False
    packaged: bool = False
    created: str = ""
    since_ms: int | None = None
    skill: float | None = None
    coverage_pct: float | None = None
    mae: float | None = None
    embedder: str = ""
    precision: str = ""
    prompts: int | None = None
    answers: int | None = None
    problem: str = ""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """[forecast, actual, cut]"""

    forecast: int
    actual: int
    cut: int = 0


def _state(row: Version, view: View) -> str:
    if row.problem:
        return view.words("calibration.version.bad")
    return view.words(f"calibration.version.{'used' if row.in_use else 'kept'}")


def _since(row: Version, view: View) -> str:
    if row.since_ms is not None:
        return moments.shown(row.since_ms, moments.DAY)
    return row_day(row.created)


def row_day(created: str) -> str:
    """The day of an ISO time, unknown where it is none."""
    try:
        return datetime.fromisoformat(created).strftime(moments.DAY)
    except ValueError:
        return UNKNOWN


def hundredths(value: float | None) -> str:
    """Two decimals, so that versions can be compared."""
    if value is None or not math.isfinite(value) or abs(value) >= 1000:
        return number(value)
    return f"{value:.2f}"


COLUMNS: tuple[Column[Version], ...] = (
    Column("calibration.col.version", 9, lambda row, view: view.foreign(row.version), most=14),
    Column("calibration.col.state", 6, _state),
    Column("calibration.col.skill", 6, lambda row, _: hundredths(row.skill), right=True),
    Column("calibration.col.cover", 6, lambda row, _: number(row.coverage_pct), right=True),
    Column("calibration.col.since", 6, _since, right=True, rank=1),
)


def fields(row: Version) -> dict[str, Field]:
    """For `/`."""
    return {"version": row.version, "skill": row.skill, "embedder": row.embedder}


def told(row: Version, view: View) -> list[str]:
    """All of one version, a line each."""
    words = view.words
    figures = words(
        "calibration.detail.scores",
        skill=hundredths(row.skill),
        cover=number(row.coverage_pct),
        mae=number(row.mae),
    )
    learned = words(
        "calibration.detail.learned",
        prompts=UNKNOWN if row.prompts is None else row.prompts,
        answers=UNKNOWN if row.answers is None else row.answers,
        created=view.foreign(row.created) or UNKNOWN,
    )
    made = words(
        "calibration.detail.made",
        precision=view.foreign(row.precision) or UNKNOWN,
        embedder=view.foreign(row.embedder) or UNKNOWN,
    )
    report = words("calibration.detail.report", version=view.foreign(row.version))
    problem = [view.foreign(row.problem)] if row.problem else []
    return [f"{view.foreign(row.version)}  {_state(row, view)}", *problem, figures, learned,
            made, report]  # fmt: skip


# -- the scatter ---------------------------------------------------------------------------------


def scatter(points: Sequence[Point], view: View, width: int, height: int) -> list[Line]:
    """Actual tokens over forecast ones, both axes logarithmic; `/` marks where they are equal."""
    high = _high(points)
    cells = [[0] * width for _ in range(height)]
    for point in points:
        row = _slot(point.actual, high, height)
        cells[row][_slot(point.forecast, high, width)] += 1
    lines = [line(Span(pad(view.words("calibration.scatter"), _LABEL + width), "bold"))]
    for row in reversed(range(height)):
        label = high if row == height - 1 else _middle(high) if row == height // 2 - 1 else None
        signs = "".join(_sign(cells[row][at], at, row, width, height) for at in range(width))
        lines.append(line(f"{label if label is not None else '':>{_LABEL - 1}}|{signs.rstrip()}"))
    lines.append(line(f"{_LOW:>{_LABEL - 1}}+{_axis(high, width)}"))
    return lines


def _high(points: Sequence[Point]) -> int:
    """The top edge: the lower one as long as nearly all points are below it."""
    beyond = sum(1 for point in points if max(point.actual, point.forecast) > _HIGHS[0])
    return _HIGHS[beyond > _MOST_OUT * len(points)]


def _middle(high: int) -> int:
    return round(math.sqrt(_LOW * high))


def _slot(tokens: int, high: int, slots: int) -> int:
    share = math.log(max(1, tokens) / _LOW) / math.log(high / _LOW)
    return min(slots - 1, max(0, int(share * slots)))


def _sign(count: int, at: int, row: int, width: int, height: int) -> str:
    if count:
        return "." if count == 1 else ":" if count < 4 else "#"
    return "/" if at * height // width == row and (at * height) % width < height else " "


def _axis(high: int, width: int) -> str:
    middle, end = str(_middle(high)), str(high)
    signs = ["-"] * width
    at = (width - len(middle)) // 2
    signs[at : at + len(middle)] = middle
    signs[width - len(end) :] = end
    return "".join(signs)
