"""Answers in the order of time, corrected as they end; half-way something changes.

The forecaster and its calibration are fitted once, on other families. Bounds are moved by what the
box moves them by (appliance/forecast/tracking.py). An answer that was cut within its bound counts
with the chance that it would have gone beyond.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.calibrate import extras
from appliance.forecast import conformal
from appliance.forecast.hazard import Lengths
from appliance.forecast.tracking import Outcome, Tracker
from bench.forecast_runs import Learned

BEFORE = 300
"""Answers before the change, at most half of all."""
WINDOW = 200


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage of the 90 % bound; `still` is the calibrated bound that is never moved."""

    change: str
    answers: int
    before: float
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


def covered(learned: Learned) -> Covered:
    rows, hazards = learned.rows["test"], learned.hazards("test")
    answers = [
        _Answer(Lengths(h), int(n), bool(cut))
        for h, n, cut in zip(hazards, rows.lengths, rows.censored, strict=True)
    ]
    kept = 1 - _missed(answers, Tracker(offsets_of(learned)), learning=False)[0]
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
    learned: Learned, other_model: Mapping[str, Sequence[tuple[int, bool]]], seed: int
) -> tuple[Stream, ...]:
    """No change, answers half as long, twice as long; and, where there are answers (length, cut)
    of another model by prompt, those of that model."""
    calm = answers_of(learned, seed)
    half = [_scaled(one, 0.5) for one in calm]
    middle = min(BEFORE, len(calm) // 2)
    swapped = answers_of(learned, seed, other_model)
    changes = {
        "none": calm,
        "half as long": calm[:middle] + half[middle:],
        "twice as long": half[:middle] + calm[middle:],
    }
    if swapped:
        changes["another model"] = calm[:middle] + swapped
    start = offsets_of(learned)
    return tuple(_run(name, told, middle, start) for name, told in changes.items())


def offsets_of(learned: Learned) -> tuple[float, ...]:
    held = (learned.rows["calibration"], learned.hazards("calibration"))
    test = (learned.rows["test"], learned.hazards("test"))
    return extras.bounds(learned.of, held, test).table.offsets("")


def answers_of(
    learned: Learned,
    seed: int,
    other: Mapping[str, Sequence[tuple[int, bool]]] | None = None,
) -> list[_Answer]:
    """Of the prompts that were neither trained nor calibrated with, in random order. Validation
    prompts decided only when training stopped."""
    found: list[_Answer] = []
    for part in ("test", "validation"):
        rows, hazards = learned.rows[part], learned.hazards(part)
        names = [learned.of.cases[at].name for at in learned.of.of(part)]
        if other is None:
            found += [
                _Answer(Lengths(h), int(n), bool(cut))
                for h, n, cut in zip(hazards, rows.lengths, rows.censored, strict=True)
            ]
            continue
        first = np.unique(rows.prompts, return_index=True)[1]
        for row in first:
            for length, cut in other.get(names[rows.prompts[row]], ()):
                found.append(_Answer(Lengths(hazards[row]), length, cut))
    order = np.random.default_rng(seed).permutation(len(found))
    return [found[at] for at in order]


def _scaled(one: _Answer, factor: float) -> _Answer:
    return _Answer(one.raw, max(1, round(one.length * factor)), one.censored)


def _run(name: str, answers: list[_Answer], middle: int, start: Sequence[float]) -> Stream:
    moved = _missed(answers, Tracker(start), learning=True)
    still = _missed(answers, Tracker(start), learning=False)
    later = slice(middle + WINDOW, None)
    first = slice(middle, middle + WINDOW)
    return Stream(
        change=name,
        answers=len(answers),
        before=_kept(moved[0][max(0, middle - WINDOW) : middle]),
        first=_kept(moved[0][first]),
        later=_kept(moved[0][later]),
        still_first=_kept(still[0][first]),
        still_later=_kept(still[0][later]),
        bound=float(np.mean(moved[1][later])) if len(moved[1][later]) else float("nan"),
    )


def _kept(missed: NDArray[np.float64]) -> float:
    return float(1 - missed.mean()) if len(missed) else float("nan")


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
