"""The plots of a report, as SVG to be put into a page: no fonts, no files, no scripts.

Text and axes are drawn in the page's own colour, so that they are right in light and dark.
"""

import io
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

logging.getLogger("matplotlib").setLevel(logging.ERROR)
# Where its cache lies, and that a service has no home for one, is nothing to tell of.
import matplotlib as mpl  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

OURS, OTHER, CUT = "#2a9d6f", "#8a8f98", "#d9822b"
"""Readable on white and on black."""
_INK = "#123456"
"""Stands for the page's colour until the SVG is written."""
_SIZE = (5.6, 3.4)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "steelyard",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def reliability(levels: Sequence[float], before: Sequence[float], after: Sequence[float]) -> str:
    """How often answers stayed within the bound of each level: as told by the network alone, and
    with its conformal correction."""
    with _drawn() as (figure, axes):
        axes.plot([0, 1], [0, 1], color=OTHER, linewidth=1, linestyle=":", label="as told")
        axes.plot(levels, before, "o-", color=CUT, label="network alone", markersize=4)
        axes.plot(levels, after, "o-", color=OURS, label="corrected", markersize=4)
        _named(axes, "level of the bound", "answers within it")
        axes.legend(loc="upper left")
        return _svg(figure)


def widths(low: Sequence[float], high: Sequence[float]) -> str:
    """From the 10 % to the 90 % bound of each test prompt, narrowest first."""
    with _drawn() as (figure, axes):
        found = sorted(zip(low, high, strict=True), key=lambda pair: pair[1] - pair[0])
        places = range(len(found))
        axes.fill_between(
            places, [0.0] * len(found), [b - a for a, b in found], color=OURS, alpha=0.4,
            linewidth=0,
        )  # fmt: skip
        _named(axes, "test prompts, narrowest first", "p90 - p10, tokens")
        return _svg(figure)


def progress(places: Sequence[int], prior: Sequence[float], refined: Sequence[float | None]) -> str:
    """The mean error of what is still to come, after so many tokens."""
    with _drawn() as (figure, axes):
        axes.plot(places, prior, "o-", color=OTHER, label="first forecast", markersize=4)
        if any(value is not None for value in refined):
            axes.plot(places, refined, "o-", color=OURS, label="refined", markersize=4)
        axes.set_ylim(bottom=0)
        _named(axes, "tokens generated", "mean error of the rest, tokens")
        axes.legend(loc="lower left")
        return _svg(figure)


def learning(curve: Sequence[float]) -> str:
    """CRPS on the validation prompts after each epoch."""
    with _drawn() as (figure, axes):
        axes.plot(range(1, len(curve) + 1), curve, color=OURS)
        _named(axes, "epoch", "CRPS on validation, tokens")
        return _svg(figure)


def actual(forecast: Sequence[float], real: Sequence[float], cut: Sequence[bool]) -> str:
    """Each test answer over its median forecast."""
    with _drawn() as (figure, axes):
        for which, colour, label in ((False, OURS, "ended"), (True, CUT, "cut off there")):
            chosen = [at for at, one in enumerate(cut) if one == which]
            if chosen:
                axes.scatter(
                    [forecast[at] for at in chosen], [real[at] for at in chosen], s=8, alpha=0.5,
                    color=colour, linewidths=0, label=label,
                )  # fmt: skip
        most = max([*forecast, *real, 2.0])
        axes.plot([1, most], [1, most], color=OTHER, linewidth=1, linestyle=":")
        axes.set_xscale("log")
        axes.set_yscale("log")
        _named(axes, "forecast, tokens", "actual, tokens")
        axes.legend(loc="upper left", markerscale=3)
        return _svg(figure)


@contextmanager
def _drawn() -> Iterator[tuple[Figure, Any]]:
    """A figure under the report's own style, which is not left behind."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def _named(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.2)


def _svg(figure: Figure) -> str:
    """The <svg> element alone."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    bare = _METADATA.sub("", text[text.index("<svg") :])
    return bare.replace(_INK, "currentColor").strip()
