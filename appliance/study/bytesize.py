"""`study bytes`: how well a row of logits tells the bytes to come.

The model continues short beginnings, each token drawn from its own unchanged distribution
(temperature 1, no truncation). Then the predicted byte length of the next token is right by
construction, and the sum of (seen - predicted mean) has mean 0: z tells whether the grouping is.
What is measured beyond that is the approximation of `bytelengths.total`, that tokens are
independent: for windows of k tokens, from the one row before them, and from the average row.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.bytelengths import (
    ByteLengths,
    Grouping,
    deviation,
    mean,
    mixture,
    quantile,
    repeated,
)

WINDOWS = (1, 2, 4, 8, 16, 32)
SHOWN_BYTES = 16
"""Longer tokens are shown together."""


class Rows(Protocol):
    """A model, one text at a time (`rows.EngineRows`)."""

    grouping: Grouping
    sizes: tuple[int, ...]
    """Bytes of each token."""
    ends: frozenset[int]

    def begin(self, text: str) -> NDArray[np.float32]: ...

    def go_on(self, token: int) -> NDArray[np.float32]: ...


@dataclass(frozen=True, slots=True)
class Settings:
    tokens: int = 64
    """Written to each beginning, at most."""
    beginnings: int | None = None
    """Of each group; None: all."""
    seed: int = 1


QUICK = Settings(tokens=32, beginnings=1)


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What the model wrote to one beginning: at each token, the prediction and the bytes."""

    group: str
    steps: tuple[ByteLengths, ...]
    sizes: tuple[int, ...]
    ended: bool
    """The last token ended the text; it has no bytes."""


@dataclass(frozen=True, slots=True)
class Line:
    """All tokens of one group."""

    group: str
    tokens: int
    predicted: float
    """Mean bytes of a token."""
    seen: float
    z: float
    """Standardised difference: beyond ±3 something is wrong."""
    entropy: float
    """Nats, of the byte length; mean."""
    ends_predicted: float
    ends_seen: int


@dataclass(frozen=True, slots=True)
class Window:
    """Sums over k tokens, predicted from one row."""

    tokens: int
    windows: int
    seen: float
    """Mean bytes."""
    predicted: float
    error: float
    """Root mean square of (seen - predicted mean)."""
    deviation: float
    """Mean predicted standard deviation: as large as `error` if tokens were independent."""
    covered: float
    """Share of windows inside the predicted central 90 %."""


@dataclass(frozen=True, slots=True)
class Report:
    model: str
    sha256: str
    settings: Settings
    lines: tuple[Line, ...]
    """The last one is of all groups."""
    predicted: tuple[float, ...]
    """P(0, 1, … bytes), the last one of so many and more; the rest ends the text."""
    seen: tuple[float, ...]
    from_row: tuple[Window, ...]
    from_average: tuple[Window, ...]


def write(
    rows: Rows,
    texts: Mapping[str, Sequence[str]],
    settings: Settings,
    tick: Callable[[], object],
) -> list[Written]:
    """Continues all beginnings; `tick` after each."""
    chance = np.random.default_rng(settings.seed)
    found = []
    for group, lines in texts.items():
        for line in lines[: settings.beginnings]:
            steps, tokens = [], []
            for step, token in _draws(rows, line, settings.tokens, chance):
                steps.append(step)
                tokens.append(token)
            sizes = tuple(0 if token in rows.ends else rows.sizes[token] for token in tokens)
            found.append(Written(group, tuple(steps), sizes, _ended(tokens, rows.ends)))
            tick()
    return found


def _draws(
    rows: Rows, text: str, count: int, chance: np.random.Generator
) -> Iterator[tuple[ByteLengths, int]]:
    row = rows.begin(text)
    for drawn in range(count):
        step = rows.grouping.distribution(row)
        # The largest of logit + Gumbel noise is a draw from the softmax.
        token = int(np.argmax(row + chance.gumbel(size=len(row))))
        yield step, token
        if token in rows.ends or drawn == count - 1:
            return
        row = rows.go_on(token)


def _ended(tokens: Sequence[int], ends: Collection[int]) -> bool:
    return bool(tokens) and tokens[-1] in ends


def report(model: str, sha256: str, settings: Settings, written: Sequence[Written]) -> Report:
    """What was predicted and what was seen."""
    steps = [step for text in written for step in text.steps]
    groups = dict.fromkeys(text.group for text in written)
    lines = [_line(group, [t for t in written if t.group == group]) for group in groups]
    average = mixture(steps)
    return Report(
        model,
        sha256,
        settings,
        (*lines, _line("all", written)),
        _folded(average.p),
        _folded(_histogram(written)),
        tuple(_windows(written, k, None) for k in WINDOWS if k <= settings.tokens),
        tuple(_windows(written, k, average) for k in WINDOWS if k <= settings.tokens),
    )


def _line(group: str, written: Sequence[Written]) -> Line:
    steps = [step for text in written for step in text.steps]
    sizes = [size for text in written for size in text.sizes]
    means = np.array([step.mean for step in steps])
    spread = float(np.sqrt(sum(step.variance for step in steps)))
    difference = float(sum(sizes) - means.sum())
    return Line(
        group,
        len(steps),
        float(means.mean()),
        float(np.mean(sizes)),
        difference / spread if spread > 0 else 0.0,
        float(np.mean([step.entropy for step in steps])),
        float(sum(step.end for step in steps)),
        sum(text.ended for text in written),
    )


def _histogram(written: Sequence[Written]) -> NDArray[np.float64]:
    """Shares of 0, 1, … bytes among all tokens; ends are in none."""
    shown = [s for t in written for s in (t.sizes[:-1] if t.ended else t.sizes)]
    return np.bincount(shown, minlength=1) / sum(len(text.sizes) for text in written)


def _folded(p: NDArray[np.float64]) -> tuple[float, ...]:
    """The first ones alone, the rest together."""
    first = [float(share) for share in p[:SHOWN_BYTES]]
    return (*first, *[0.0] * (SHOWN_BYTES - len(first)), float(p[SHOWN_BYTES:].sum()))


def _windows(written: Sequence[Written], count: int, average: ByteLengths | None) -> Window:
    """`average`: predicts every window; None: the row before each does."""
    fixed = None if average is None else repeated(average, count)
    seen, told = [], []
    for text in written:
        for start in _starts(text, count):
            seen.append(sum(text.sizes[start : start + count]))
            told.append(_told(repeated(text.steps[start], count) if fixed is None else fixed))
    if not seen:
        return Window(count, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    sums, predicted = np.array(seen, dtype=np.float64), np.array(told)
    inside = (sums >= predicted[:, 2]) & (sums <= predicted[:, 3])
    return Window(
        count,
        len(seen),
        float(sums.mean()),
        float(predicted[:, 0].mean()),
        float(np.sqrt(np.mean((sums - predicted[:, 0]) ** 2))),
        float(predicted[:, 1].mean()),
        float(inside.mean()),
    )


def _starts(text: Written, count: int) -> range:
    """Windows side by side. One that the text's end cuts short is whole, for nothing follows it;
    one that the study's own limit cuts is not."""
    return range(0, len(text.sizes) if text.ended else len(text.sizes) - count + 1, count)


def _told(p: NDArray[np.float64]) -> tuple[float, float, int, int]:
    return mean(p), deviation(p), quantile(p, 0.05), quantile(p, 0.95)
