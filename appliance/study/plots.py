"""What a study found, as pictures. matplotlib is imported when one is drawn; no display is used."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from appliance.study import bytesize, drift, grid, limits, structure
from appliance.study.errors import StudyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logging.getLogger("matplotlib").setLevel(logging.ERROR)
"""Where its cache lies, and that there is no home for one, is nothing to tell of."""
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#767676"
"""Told apart by colour-blind readers, too (Okabe and Ito)."""
_SERIES = ("#b5d1e8", "#6ba3cf", "#2f74b0", "#123f6d")
"""Light to dark, for what has an order."""
_DPI = 150


def of_grid(report: grid.Report) -> "Figure":
    """Mean, spread and share cut off, by temperature; a line per top_p."""
    figure, (left, middle, right) = _figure(3, 13.0, 4.4)
    for colour, top_p in zip(
        _colours(len(report.settings.top_ps)), report.settings.top_ps, strict=True
    ):
        cells = [report.at(t, top_p) for t in report.settings.temperatures]
        x, some = [cell.temperature for cell in cells], [c for c in cells if c.within is not None]
        left.plot(x, [cell.lengths.km_mean for cell in cells], "o-", color=colour)
        spread = [cell.within or 0.0 for cell in some]
        middle.plot([cell.temperature for cell in some], spread, "o-", color=colour)
        cut = [100 * cell.lengths.cut / cell.lengths.answers for cell in cells]
        right.plot(x, cut, "o-", color=colour, label=f"{top_p:g}")
    _band(left, report)
    _label(middle, "Standard deviation within a prompt", "temperature", "tokens")
    middle.set_xlim(left.get_xlim())
    middle.set_ylim(bottom=0)
    _label(right, "Answers cut off by the limit", "temperature", "%")
    right.set_ylim(0, max(10.0, min(100.0, 1.3 * right.get_ylim()[1])))
    right.legend(title="top_p", frameon=False, loc="upper left", ncols=2)
    return _titled(figure, "Answer length by temperature and top_p", report.model,
                   f"{report.prompts} prompts")  # fmt: skip


def _band(axes: "Axes", report: grid.Report) -> None:
    """How sure the mean is, for the largest top_p; and the limit, where it is near."""
    last, limit = report.settings.top_ps[-1], report.settings.max_tokens
    cells = [report.at(t, last) for t in report.settings.temperatures]
    low, high = [cell.mean_low for cell in cells], [cell.mean_high for cell in cells]
    x = [cell.temperature for cell in cells]
    axes.fill_between(x, low, high, color=_SERIES[-1], alpha=0.1, linewidth=0)
    top = 1.25 * max(high)
    if top > limit:
        axes.axhline(limit, color=GREY, linestyle=":", linewidth=1)
        axes.annotate(f"limit {limit}", (0.01, limit), xycoords=("axes fraction", "data"),
                      va="bottom", color=GREY, fontsize=8)  # fmt: skip
    axes.set_ylim(0, min(top, 1.1 * limit))
    title = f"Mean up to {limit} (band: 95 %, top_p {last:g})"
    _label(axes, title, "temperature", "tokens")


def of_structure(report: structure.Report) -> "Figure":
    """Each perturbation's effect, and where the spread comes from."""
    figure, (left, right) = _figure(2, 12.0, 0.34 * len(report.rows) + 2.2, (1.5, 1.0))
    rows = sorted(report.rows, key=lambda row: row.effect.ratio)
    for y, row in enumerate(rows):
        told = row.effect
        sure = told.low > 1 or told.high < 1
        colour = BLUE if sure else GREY
        left.plot([told.low, told.high], [y, y], color=colour, linewidth=2.5, alpha=0.6)
        left.plot([told.ratio], [y], "o", color=colour)
    left.axvline(1, color=GREY, linewidth=1, linestyle=":")
    left.set_yticks(range(len(rows)), [row.name for row in rows])
    left.set_xscale("log")
    _plain_log_ticks(left, [bound for row in rows for bound in (row.effect.low, row.effect.high)])
    _label(
        left,
        "Length against the plain question",
        "times as long, with 95 % interval (grey: holds 1)",
        "",
    )
    _shares(right, report)
    return _titled(figure, "What the wording does to answer length", report.model,
                   f"{report.prompts} prompts × {report.settings.samples} samples, "
                   f"T {report.settings.temperature:g}")  # fmt: skip


def _shares(axes: "Axes", report: structure.Report) -> None:
    parts = report.components
    named = [
        ("prompts", parts.prompts),
        ("perturbations", parts.perturbations),
        ("prompt × perturbation", parts.interaction),
        ("samples of one text", parts.samples),
    ]
    shares = [100 * parts.share(part) for _, part in named]
    places = range(len(named))
    axes.barh(places, shares, color=[BLUE, ORANGE, GREEN, GREY], height=0.62)
    for y, share in zip(places, shares, strict=True):
        axes.annotate(f" {share:.0f} %", (share, y), va="center")
    axes.set_yticks(places, [name for name, _ in named])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max(shares, default=1.0) + 1)
    note = f" ({100 * report.cut:.0f} % cut off: rough)" if report.cut >= 0.05 else ""
    _label(axes, "Where the spread comes from", f"% of the variance of log length{note}", "")


def of_limits(report: limits.Report) -> "Figure":
    """How many checks had which bias."""
    figure, (axes,) = _figure(1, 9.0, 3.8)
    kinds = list(dict.fromkeys(outcome.kind for outcome in report.outcomes))
    reach = max([2, *(abs(outcome.bias) for outcome in report.outcomes)])
    for x, kind in enumerate(kinds):
        for bias, count in report.biases(kind).items():
            colour = GREEN if bias == 0 else ORANGE
            axes.plot([x], [bias], "o", color=colour, markersize=26)
            axes.annotate(str(count), (x, bias), ha="center", va="center", color="white")
    axes.axhline(0, color=GREY, linewidth=1, zorder=0)
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_xlim(-0.6, len(kinds) - 0.4)
    axes.set_ylim(-reach - 0.6, reach + 0.6)
    axes.set_yticks(range(-reach, reach + 1, max(1, reach // 4)))
    exact = sum(outcome.exact for outcome in report.outcomes)
    _label(axes, f"{exact} of {len(report.outcomes)} checks exact (in the circles: checks)",
           "limit around the natural length L, and stop strings by their characters",
           "tokens delivered - expected")  # fmt: skip
    return _titled(
        figure, "Are limits kept to the token?", report.model, f"{report.prompts} prompts"
    )


def of_drift(report: drift.Report) -> "Figure":
    """How tokens of B compare with those of A, and how many bytes each holds."""
    figure, (left, right) = _figure(2, 12.0, 0.42 * len(report.groups) + 2.4, (1.3, 1.0))
    groups = sorted(report.groups, key=lambda group: group.ratio)
    for y, group in enumerate(groups):
        low, middle, high = group.quantiles
        left.plot([low, high], [y, y], color=BLUE, linewidth=5, alpha=0.3, solid_capstyle="butt")
        left.plot([group.worst], [y], "|", color=BLUE, markersize=9)
        left.plot([middle], [y], "o", color=BLUE)
        left.annotate(f"{group.ratio:.2f}", (1.01, y), xycoords=("axes fraction", "data"),
                      va="center", fontsize=9)  # fmt: skip
        a, b = 1 / group.a.per_byte, 1 / group.b.per_byte
        right.plot([a, b], [y, y], color=GREY, linewidth=1, zorder=1)
        right.plot([a], [y], "o", color=GREY, label="A" if y == 0 else None)
        right.plot([b], [y], "D", color=ORANGE, label="B" if y == 0 else None)
    left.axvline(1, color=GREY, linewidth=1, linestyle=":")
    left.set_yticks(range(len(groups)), [group.name for group in groups])
    right.set_yticks(range(len(groups)), [""] * len(groups))
    left.set_xlim(left=0)
    right.set_xlim(left=0)
    _label(left, "Tokens of B per token of A", "line by line: p10 - p90, median, | largest; "
           "at the right: all lines", "")  # fmt: skip
    _label(right, "Bytes in a token", "bytes per token (more is cheaper)", "")
    right.legend(frameon=False, loc="upper left", ncols=2)
    right.set_ylim(-0.6, len(groups) + 0.1)
    left.set_ylim(-0.6, len(groups) + 0.1)
    right.tick_params(axis="y", length=0)
    return _titled(figure, "The same text in two tokenizers", f"A {report.a.name}",
                   f"B {report.b.name}")  # fmt: skip


def of_bytes(report: bytesize.Report) -> "Figure":
    """Byte lengths predicted and seen; what independence costs."""
    figure, (left, middle, right) = _figure(3, 13.0, 4.2)
    x = np.arange(len(report.predicted))
    left.bar(x - 0.2, [100 * p for p in report.predicted], 0.4, color=BLUE, label="predicted")
    left.bar(x + 0.2, [100 * p for p in report.seen], 0.4, color=ORANGE, label="seen")
    ticks = [*range(0, bytesize.SHOWN_BYTES, 4), bytesize.SHOWN_BYTES]
    left.set_xticks(ticks, [str(tick) for tick in ticks[:-1]] + [f"{ticks[-1]}+"])
    left.legend(frameon=False)
    total = report.lines[-1]
    _label(left, f"Next token (z = {total.z:+.2f})", "bytes", f"% of {total.tokens} tokens")
    for colour, name, windows in (
        (BLUE, "from one row", report.from_row),
        (GREEN, "from the average row", report.from_average),
    ):
        some = [window for window in windows if window.windows]
        k = [window.tokens for window in some]
        middle.plot(k, [w.error for w in some], "o-", color=colour, label=f"{name}: error")
        middle.plot(k, [w.deviation for w in some], "o--", color=colour, alpha=0.55,
                    label=f"{name}: predicted sd")  # fmt: skip
        right.plot(k, [100 * w.covered for w in some], "o-", color=colour, label=name)
    for axes in (middle, right):
        axes.set_xscale("log", base=2)
        counts = [window.tokens for window in report.from_row]
        axes.set_xticks(counts, [str(k) for k in counts])
    middle.legend(frameon=False, fontsize=8)
    _label(middle, "Next k tokens, taken as independent", "k", "bytes")
    right.axhline(90, color=GREY, linestyle=":", linewidth=1)
    right.set_ylim(0, 100)
    right.legend(frameon=False, loc="lower left")
    _label(right, "Inside the predicted 90 % interval", "k", "% of windows")
    return _titled(figure, "Bytes of the next tokens", report.model, "temperature 1")


def save(figure: "Figure", stem: Path) -> tuple[Path, ...]:
    """Writes `stem`.svg and `stem`.png, the same from the same report. Raises StudyError."""
    from matplotlib import rc_context

    paths = stem.with_suffix(".svg"), stem.with_suffix(".png")
    try:
        with rc_context({"svg.hashsalt": "steelyard"}):
            figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=_DPI)
    except OSError as error:
        raise StudyError(f"{stem.parent} cannot be written: {error.strerror or error}") from None
    return paths


def _figure(
    columns: int, width: float, height: float, widths: Sequence[float] | None = None
) -> "tuple[Figure, list[Axes]]":
    """In inches. A Figure of its own, without pyplot: nothing global, and no window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False, width_ratios=widths)[0]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25, linewidth=0.6)
        one.set_axisbelow(True)
    return figure, list(axes)


def _label(axes: "Axes", title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _titled(figure: "Figure", title: str, *facts: str) -> "Figure":
    figure.suptitle(f"{title}\n{' · '.join(facts)}", x=0.01, ha="left", fontsize=13)
    return figure


def _colours(count: int) -> list[str]:
    """So many of the ordered ones, the darkest among them."""
    last = len(_SERIES) - 1
    return [_SERIES[last - min(last, count - 1 - i)] for i in range(count)]


def _plain_log_ticks(axes: "Axes", values: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min([0.8, *values]), max([1.25, *values])
    steps = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
    axes.set_xlim(0.93 * low, 1.07 * high)
    axes.xaxis.set_major_locator(FixedLocator(steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
