"""One row of numbers on screen 1: label, value, unit, band, and what else there is to say."""

import math
from dataclasses import dataclass

from tui import figures
from tui.cells import cells, pad
from tui.lines import Line, Span
from tui.view import View

LABEL, P50, VALUE, _UNIT, _BOUNDS = 10, 5, 4, 3, 5
_BEFORE_BAND = 31
"""Cells of all of them with the blanks between."""
_BEFORE_TAIL = 45
_SPARK = 30
"""Cells of a minute: two seconds each, one dot column a second."""
_SECONDS_FROM = 9999.5
"""Milliseconds that are shown as seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One row. `value` None is unknown, unless there is `none` of it."""

    label: str
    value: float | None
    unit: str
    band: str = ""
    p50: float | None = None
    has_p50: bool = False
    past: str = ""
    tail: str = ""
    none: bool = False
    judged: bool = True
    """False: there is no reason why it should be in its band now."""


def head(view: View) -> Line:
    """What the columns are."""
    words = view.words
    text = (
        " " * (LABEL + 1)
        + pad(words("overview.p50"), P50, right=True)
        + pad(words("overview.p99"), VALUE + 1, right=True)
        + pad(words("overview.band"), _BEFORE_BAND - 21, right=True)
    )
    return (Span(pad(text, _BEFORE_TAIL) + words("overview.past"), "bold"),)


def draw(view: View, row: Number, width: int) -> Line:
    """The row; only its tail depends on the width."""
    lo, hi = view.band(row.band)
    size, unit = _scale(row, lo, hi)
    outside = row.judged and figures.outside(row.value, lo, hi)
    unit = "" if row.none and row.value is None else unit
    value = Span(
        pad(_four(row.value, size, row.none), VALUE, right=True), "bold" if outside else "plain"
    )
    bounds = pad(_bounds(lo, hi, size), _BOUNDS, right=True)
    band = figures.band(row.value if row.judged else None, lo, hi)
    drawn: Line = (
        Span(_left(row, size) + " "),
        value,
        Span(f" {pad(unit, _UNIT)} {bounds}  "),
        Span(band, "bold" if outside else "plain"),
        Span("  "),
    )
    return (*drawn, *_tail(view, row, width - _BEFORE_TAIL))


def _left(row: Number, size: float) -> str:
    if not row.has_p50:
        return pad(row.label, LABEL + 1 + P50)
    p50 = _four(row.p50, size, row.none)
    return f"{pad(row.label, LABEL)} {pad(p50, P50, right=True)}"


def _tail(view: View, row: Number, width: int) -> Line:
    if row.past:
        past = view.past.get(row.past, ())
        return (Span(figures.spark(past, min(_SPARK, width), view.ascii) if past else ""),)
    return (Span(whole_parts(row.tail, width)),)


def whole_parts(text: str, width: int) -> str:
    """Without the parts at its end that do not fit: a number that was cut would be another one."""
    while cells(text) > width and (at := max(text.rfind(", "), text.rfind("，"))) > 0:
        text = text[:at]
    return text


def _scale(row: Number, lo: float | None, hi: float | None) -> tuple[float, str]:
    """What to divide by, and the unit then: one for value and band."""
    most = max(row.value or 0.0, row.p50 or 0.0, lo or 0.0, hi or 0.0)
    return (1000.0, "s") if row.unit == "ms" and most >= _SECONDS_FROM else (1.0, row.unit)


def _four(value: float | None, size: float, none: bool) -> str:
    """In four cells at most."""
    if value is None:
        return figures.NONE if none else figures.UNKNOWN
    if not math.isfinite(value):
        return figures.UNKNOWN
    scaled = value / size
    if size > 1:
        text = f"{scaled:.2f}" if scaled < 0.95 else f"{scaled:.1f}"
    else:
        text = figures.number(scaled, 3 if scaled < 10 else 2)
    if len(text) <= VALUE:
        return text
    return figures.count(scaled, VALUE) if abs(scaled) >= 1 else f"{scaled:.2f}"[:VALUE]


def _bounds(lo: float | None, hi: float | None, size: float) -> str:
    """In five cells at most; nothing rather than a part of it."""
    low, high = lo and lo / size, hi and hi / size
    text = figures.bounds(low, high)
    if len(text) <= _BOUNDS:
        return text
    if low is None or high is None:
        return f"{'<' if low is None else '>'}{figures.count(high if low is None else low, 4)}"
    return ""
