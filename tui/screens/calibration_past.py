"""Coverage and pinball loss over time on screen 3: two plots where there is room, else two lines.

Coverage is that of the newest 200 bounds at each moment: of fewer, chance alone would show. The
goal is drawn as a band of `-`; a moment outside what the box calls calibrated is a `!`.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from tui import figures, moments
from tui.cells import cells, pad
from tui.figures import UNKNOWN, number
from tui.lines import Line, Span, beside, line
from tui.view import View

GOAL = (88.0, 92.0)
"""Per cent: where a 90 % bound that holds is seen nearly always, 200 answers at a time."""
POOLED = 200
ENOUGH = 100
"""Bounds: coverage of fewer is unknown."""
LOW, HIGH = 80.0, 100.0
"""Edges of the plot, per cent; what is below is drawn in the lowest row."""
TALL, SHORT = 10, 5
"""Rows of a plot: the goal's edges are edges of rows in both."""
AROUND = 3
"""Rows of a plot beside its own: a blank one, the title, the axis."""
_AXIS = 5
_GAP = 4
_SPARK = 16
_DAY_MS = 86_400_000


class Step(msgspec.Struct, frozen=True, array_like=True):
    """[bounds, held, answers, loss]"""

    bounds: int = 0
    held: int = 0
    answers: int = 0
    loss: float = 0.0


class Window(msgspec.Struct, frozen=True):
    """A day, a week, a month as a whole."""

    span_ms: int
    answers: int = 0
    coverage_pct: float | None = None
    pinball_tok: float | None = None


class Past(msgspec.Struct, frozen=True):
    """GET /admin/forecasters/past"""

    every_ms: int = 0
    until_ms: int = 0
    steps: tuple[Step, ...] = ()
    windows: tuple[Window, ...] = ()

    @property
    def known(self) -> bool:
        return any(step.answers for step in self.steps)


# -- what is drawn ---------------------------------------------------------------------------------


def coverages(steps: Sequence[Step], slots: int) -> list[float | None]:
    """Per cent at each of so many moments; None where nothing ended, or too little before it."""
    return _at(steps, slots, POOLED, lambda step: step.bounds, _coverage)


def losses(steps: Sequence[Step], slots: int) -> list[float | None]:
    """Tokens, of the newest 100 answers at each moment."""
    return _at(steps, slots, ENOUGH, lambda step: step.answers, _loss)


def _at(
    steps: Sequence[Step],
    slots: int,
    pooled: int,
    count: Callable[[Step], int],
    told: Callable[[Sequence[Step]], float | None],
) -> list[float | None]:
    found: list[float | None] = []
    for slot in range(slots):
        first, end = _part(slot, slots, len(steps))
        if not any(map(count, steps[first:end])):
            found.append(None)
            continue
        while first > 0 and sum(map(count, steps[first:end])) < pooled:
            first -= 1
        found.append(told(steps[first:end]))
    return found


def _part(slot: int, slots: int, steps: int) -> tuple[int, int]:
    """The steps of one slot; at least one, so that a step may be in several."""
    first = slot * steps // slots
    return first, max(first + 1, (slot + 1) * steps // slots)


def _coverage(steps: Sequence[Step]) -> float | None:
    bounds = sum(step.bounds for step in steps)
    return 100 * sum(step.held for step in steps) / bounds if bounds >= ENOUGH else None


def _loss(steps: Sequence[Step]) -> float | None:
    answers = sum(step.answers for step in steps)
    return sum(step.loss for step in steps) / answers if answers else None


# -- two lines -------------------------------------------------------------------------------------


def brief(past: Past, view: View, label: int) -> list[Line]:
    """The figures of a day, a week, a month, and a curve of each; nothing before the first."""
    if not past.known:
        return []
    words = view.words
    covered = f"{_row(past, _cover)} %{_missing(past, view)}"
    lost = f"{_row(past, _lost)} tok"
    size = max(cells(covered), cells(lost))
    signs = "".join(map(_sign, coverages(past.steps, _SPARK)))
    points = _SPARK if view.ascii else 2 * _SPARK
    curve = figures.spark(losses(past.steps, points), _SPARK, view.ascii)
    goal = words("calibration.past.in_goal", f"{GOAL[0]:.0f}-{GOAL[1]:.0f}")
    return [
        line(" ", pad(words("calibration.past"), label), pad(covered, size), f"  {signs}  {goal}"),
        line(" ", pad(words("calibration.past.loss"), label), pad(lost, size), f"  {curve}"),
    ]


def _sign(value: float | None) -> str:
    if value is None:
        return " "
    return "_" if value < GOAL[0] else "^" if value > GOAL[1] else "="


def _row(past: Past, told: Callable[[Window], str]) -> str:
    return "  ".join(f"{_span(window.span_ms)} {told(window)}" for window in _windows(past))


def _cover(window: Window) -> str:
    value = window.coverage_pct
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.1f}"


def _lost(window: Window) -> str:
    return number(window.pinball_tok)


def _windows(past: Past) -> list[Window]:
    """Without those that hold nothing more than the one before."""
    found: list[Window] = []
    for window in past.windows:
        if not found or window.answers > found[-1].answers:
            found.append(window)
    return found


def _span(span_ms: int) -> str:
    hours = span_ms // 3_600_000
    return f"{hours} h" if span_ms <= _DAY_MS else f"{hours // 24} d"


def _missing(past: Past, view: View) -> str:
    """Why coverage is not known yet."""
    if any(window.coverage_pct is not None for window in past.windows):
        return ""
    bounds = sum(step.bounds for step in past.steps)
    return f"  {view.words('calibration.past.few', bounds, ENOUGH)}"


# -- two plots -------------------------------------------------------------------------------------


def plots(past: Past, view: View, height: int) -> list[Line]:
    """A blank line, then both side by side, `height` rows each; nothing before the first answer."""
    if not past.known:
        return []
    width = (view.width - _GAP) // 2
    left = _coverage_plot(past, view, width, height)
    right = _loss_plot(past, view, view.width - width - _GAP, height)
    return [(), *beside(left, right, width, _GAP)]


def _coverage_plot(past: Past, view: View, width: int, height: int) -> list[Line]:
    figured = f"{_row(past, _cover)}{_missing(past, view)}"
    goal = view.words("calibration.past.goal", f"{GOAL[0]:.0f}-{GOAL[1]:.0f}")
    values = coverages(past.steps, width - _AXIS)
    rows = [
        line(f"{_label(row, height):>{_AXIS - 1}}|", *_plotted(values, row, height, view))
        for row in reversed(range(height))
    ]
    head = _head(view.words("calibration.past.covers"), f"{figured}   {goal}")
    return [head, *rows, _axis(past, view, width)]


def _head(title: str, text: str) -> Line:
    return line(Span(title, "bold"), f"  {text}")


def _row_of(value: float, height: int) -> int:
    return min(height - 1, max(0, int((value - LOW) / (HIGH - LOW) * height)))


def _goal_rows(height: int) -> tuple[int, int]:
    """The lowest and the highest row of the goal."""
    return _row_of(GOAL[0], height), _row_of(GOAL[1], height) - 1


def _label(row: int, height: int) -> str:
    low, high = _goal_rows(height)
    if row in (low, high):
        edge = (GOAL[0] + GOAL[1]) / 2 if low == high else GOAL[0] if row == low else GOAL[1]
        return f"{edge:.0f}"
    return f"{HIGH:.0f}" if row == height - 1 else f"{LOW:.0f}" if row == 0 else ""


def _plotted(values: Sequence[float | None], row: int, height: int, view: View) -> list[Span]:
    """One row, spans of the same role in one."""
    low, high = _goal_rows(height)
    empty = "-" if low <= row <= high else " "
    spans: list[Span] = []
    for value in values:
        sign = Span(empty, "dim" if empty == "-" else "plain")
        if value is not None and _row_of(value, height) == row:
            out = figures.outside(value, *view.band("coverage"))
            sign = Span("!", "bold") if out else Span("o")
        if spans and spans[-1].role == sign.role:
            sign = Span(spans.pop().text + sign.text, sign.role)
        spans.append(sign)
    return spans


def _loss_plot(past: Past, view: View, width: int, height: int) -> list[Line]:
    values = losses(past.steps, 2 * (width - _AXIS))
    top = max((value for value in values if value is not None), default=0.0)
    curve = figures.plot(values, width - _AXIS, height, view.ascii, top=top or 1.0)
    labels = [number(top, 2), *[""] * (height - 2), "0"]
    rows = [line(f"{label:>{_AXIS - 1}}|{row}") for label, row in zip(labels, curve, strict=True)]
    head = _head(view.words("calibration.past.loses"), _row(past, _lost))
    return [head, *rows, _axis(past, view, width)]


def _axis(past: Past, view: View, width: int) -> Line:
    """From when to when."""
    span = past.every_ms * len(past.steps)
    pattern = moments.MINUTE if span <= _DAY_MS else moments.DAY
    start = moments.shown(past.until_ms - span, pattern) if past.until_ms > span else UNKNOWN
    now = view.words("calibration.past.now")
    room = max(0, width - _AXIS - cells(start) - cells(now))
    return line(f"{'':>{_AXIS - 1}}+{start}{'-' * room}{now}")
