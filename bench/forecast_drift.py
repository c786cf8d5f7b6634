"""Answers in the order of time, corrected as they end; half-way something changes.

The forecaster and its calibration are fitted once, on other families. Bounds are moved by what the
box moves them by (appliance/forecast/tracking.py). An answer that was cut within its bound counts
with the chance that it would have gone beyond. A stream is drawn from the answers at hand, so that
it is as long whatever their number, and every figure is the mean of several such streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.forecast import conformal
from appliance.forecast.hazard import Lengths
from appliance.forecast.tracking import Outcome, Tracker
from bench.forecast_runs import Stage

BEFORE, WINDOW, LATER = 300, 200, 400
"""Answers of a stream before the change, right after it, and after those."""
DRAWS = 3
"""Streams of each change."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage of the 90 % bound; `still` is the calibrated bound that is never moved."""

    change: str
    answers: int
    """That the streams are drawn from."""
    before: float
    """Of the 200 answers before the change."""
    first: float
    """Of the 200 answers after the change."""
    later: float
    """Of those after that."""
    still_first: float
    still_later: float
    bound: float
    """Mean bound of the later ones, tokens."""


class Covered(msgspec.Struct, frozen=True):
    """How often answers of the test families stay within the calibrated 90 % bound, without any
    cap: one that was cut within the bound counts with the chance that it would have stayed."""

    overall: float
    worst: float
    """Of the sources with 20 answers or more."""
    worst_source: str


FEWEST = 20


def covered(stage: Stage) -> Covered:
    rows = stage.rows["test"]
    kept = 1 - _missed(_answers(stage, "test"), Tracker(offsets_of(stage)), learning=False)[0]
    shares = {
        str(name): float(kept[rows.sources == name].mean())
        for name in np.unique(rows.sources)
        if (rows.sources == name).sum() >= FEWEST
    }
    worst = min(shares, key=lambda name: shares[name], default="")
    return Covered(float(kept.mean()), shares.get(worst, float("nan")), worst)


@dataclass(frozen=True, slots=True)
class _Answer:
    raw: Lengths
    length: int
    censored: bool


def streams(
    stage: Stage, other_model: Mapping[str, Sequence[tuple[int, bool]]], seed: int
) -> tuple[Stream, ...]:
    """No change, answers half as long, twice as long; and, where there are answers (length, cut)
    of another model by prompt, those of that model."""
    calm = [one for part in UNTAUGHT for one in _answers(stage, part)]
    half = [_scaled(one, 0.5) for one in calm]
    changes = {"none": (calm, calm), "half as long": (calm, half), "twice as long": (half, calm)}
    swapped = [one for part in UNTAUGHT for one in _swapped(stage, part, other_model)]
    if swapped:
        changes["another model"] = (calm, swapped)
    start = offsets_of(stage)
    return tuple(_run(name, *sides, start, seed) for name, sides in changes.items())


def offsets_of(stage: Stage) -> tuple[float, ...]:
    return stage.limits.table.offsets("")


UNTAUGHT = ("test", "validation")
"""Neither trained nor calibrated with. Validation prompts decided only when training stopped."""


def answers_of(stage: Stage, seed: int) -> list[_Answer]:
    """Those of the untaught parts, in random order."""
    found = [one for part in UNTAUGHT for one in _answers(stage, part)]
    return [found[at] for at in np.random.default_rng(seed).permutation(len(found))]


def _answers(stage: Stage, part: str) -> list[_Answer]:
    rows = stage.rows[part]
    return [
        _Answer(Lengths(h), int(n), bool(cut))
        for h, n, cut in zip(stage.found[part], rows.lengths, rows.censored, strict=True)
    ]


def _swapped(
    stage: Stage, part: str, other: Mapping[str, Sequence[tuple[int, bool]]]
) -> list[_Answer]:
    """The other model's answers to the part's prompts, with what is foreseen of ours."""
    rows = stage.rows[part]
    names = [stage.of.cases[at].name for at in stage.of.of(part)]
    first = np.unique(rows.prompts, return_index=True)[1]
    return [
        _Answer(Lengths(stage.found[part][row]), length, cut)
        for row in first
        for length, cut in other.get(names[rows.prompts[row]], ())
    ]


def _scaled(one: _Answer, factor: float) -> _Answer:
    return _Answer(one.raw, max(1, round(one.length * factor)), one.censored)


def _run(
    name: str,
    calm: Sequence[_Answer],
    changed: Sequence[_Answer],
    start: Sequence[float],
    seed: int,
) -> Stream:
    figures = []
    for number in range(DRAWS):
        drawn = np.random.default_rng([seed, number])
        before = [calm[at] for at in drawn.integers(0, len(calm), BEFORE)]
        after = [changed[at] for at in drawn.integers(0, len(changed), WINDOW + LATER)]
        figures.append(_figures(before + after, start))
    names = ("before", "first", "later", "still_first", "still_later", "bound")
    means = np.mean(figures, axis=0).tolist()
    return Stream(change=name, answers=len(calm), **dict(zip(names, means, strict=True)))


def _figures(stream: list[_Answer], start: Sequence[float]) -> tuple[float, ...]:
    """Of one stream, in the order of `Stream`'s fields."""
    moved, bounds = _missed(stream, Tracker(start), learning=True)
    still, _ = _missed(stream, Tracker(start), learning=False)
    first, later = slice(BEFORE, BEFORE + WINDOW), slice(BEFORE + WINDOW, None)
    return (
        _kept(moved[BEFORE - WINDOW : BEFORE]),
        _kept(moved[first]),
        _kept(moved[later]),
        _kept(still[first]),
        _kept(still[later]),
        float(np.mean(bounds[later])),
    )


def _kept(missed: NDArray[np.float64]) -> float:
    return float(1 - missed.mean())


def _missed(
    answers: list[_Answer], tracker: Tracker, *, learning: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each answer: how far its bound was missed, 0 to 1, and the bound."""
    start = tracker.offsets
    missed, bounds = [], []
    for one in answers:
        told = conformal.correct(one.raw, tracker.offsets if learning else start)
        tracker.observe(Outcome(told, one.length, one.censored))
        missed.append(tracker.errors[-1])
        bounds.append(told.bounds[conformal.NINETY])
    return np.array(missed), np.array(bounds)
