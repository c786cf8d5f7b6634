"""The last quarter of an hour of the numbers that tell most, where the terminal has room."""

from collections.abc import Mapping, Sequence

from appliance.frames import Live
from tui import figures
from tui.lines import Line, Span, beside, fit, line
from tui.view import View

_PLOTS = (
    ("out_tok_s", "overview.output", "t/s"),
    ("ttft_p99_ms", "overview.ttft", "ms"),
    ("waiting", "overview.waiting", ""),
    ("kv_a_pct", "overview.pool_a", "%"),
    ("itl_p99_ms", "overview.itl", "ms"),
    ("e2e_p99_ms", "overview.e2e", "ms"),
)
_LEAST = 4
"""Rows of one plot with its title."""
_GAP = 4


def plots(view: View, live: Live, width: int, height: int) -> list[Line]:
    """Two columns of plots under a head; as many as there is room for."""
    series = view.history or view.past
    key = "overview.plots" if view.history else "overview.plots.minute"
    head = fit(line(Span(view.words(key), "bold")), width)
    rows = max(1, min(len(_PLOTS) // 2, (height - 1) // _LEAST))
    size, inner = (height - 1) // rows, (width - _GAP) // 2
    drawn: list[Line] = [head]
    for at in range(0, 2 * rows, 2):
        pair = [_plot(view, live, plot, series, inner, size) for plot in _PLOTS[at : at + 2]]
        drawn += beside(pair[0], pair[1], inner, _GAP)
    return [fit(row, width) for row in drawn]


def _plot(
    view: View,
    live: Live,
    plot: tuple[str, str, str],
    series: Mapping[str, Sequence[float | None]],
    width: int,
    height: int,
) -> list[Line]:
    name, key, unit = plot
    values = series.get(name, ())
    known = [value for value in values if value is not None]
    now, top = _shown(getattr(live, name), unit), _shown(max(known, default=None), unit)
    title = view.words("overview.now", view.words(key), now, top)
    curve = figures.plot(values, width, height - 2, view.ascii)
    return [line(title), *(line(row) for row in curve), ()]


def _shown(value: float | None, unit: str) -> str:
    if unit == "ms":
        return figures.duration(value)
    return figures.with_unit(value, unit, 2) if unit else figures.count(value)
