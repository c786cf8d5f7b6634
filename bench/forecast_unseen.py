"""Prompts like no other: every source left out in turn, for both forecasts of a request.

What is left out is judged by networks, readers and bounds that were made without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.calibrate.material import Material
from appliance.forecast import scores
from appliance.forecast.baselines import GLOBAL, RIVALS, Told, baselines
from appliance.forecast.bootstrap import interval
from appliance.forecast.evaluate import OURS, told_by
from appliance.forecast.train import Recipe
from bench.forecast_runs import Labels, Stage, learn, second, stage_of

Floats = NDArray[np.float64]

FEW = 30
"""Answers: sources with fewer are trained on, but not left out in turn."""


class Forecasted(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two forecasts, on all answers of all sources taken together."""

    mae: float
    crps: float
    kendall: float
    rank_accuracy: float
    coverage_90: float
    """Of the 90 % bound, calibrated without the source; at the cap it always holds."""
    coverage_90_below: float
    """Where the bound is below the cap."""


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """Every source left out in turn, then all answers of all of them taken together."""

    sources: int
    answers: int
    mae: dict[str, float]
    """Of the forecaster, the global median and the rivals that see the same features."""
    behind: dict[str, tuple[float, float]]
    """95 % interval of each one's MAE less the forecaster's."""
    first: Forecasted
    second: Forecasted | None
    """Once the prompt is read; None where the prompts have no first logits."""
    worst: dict[str, float]
    """MAE over the global median's, of the three sources where that is largest."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What one forecast said of the answers of one source."""

    told: Told
    upper: Floats
    """90 % bounds, tokens."""


@dataclass(frozen=True, slots=True)
class _LeftOut:
    name: str
    truth: NDArray[np.int64]
    families: NDArray[np.int64]
    others: dict[str, Told]
    first: _Said
    second: _Said | None


def unseen_sources(of: Material, labels: Labels, seed: int, recipe: Recipe | None) -> Unseen:
    """Each source's families are kept out of training, wherever else they occur."""
    found = [_left_out(of, labels, name, seed, recipe) for name in _sources(of)]
    truth = np.concatenate([one.truth for one in found])
    families = np.concatenate([one.families for one in found])
    told = {OURS: np.concatenate([one.first.told.point for one in found])} | {
        name: np.concatenate([one.others[name].point for one in found]) for name in found[0].others
    }
    off = {name: np.abs(points - truth) for name, points in told.items()}
    ratios = {
        one.name: float(
            np.abs(one.first.told.point - one.truth).mean()
            / max(1.0, float(np.abs(one.others[GLOBAL].point - one.truth).mean()))
        )
        for one in found
    }
    return Unseen(
        sources=len(found),
        answers=len(truth),
        mae={name: float(errors.mean()) for name, errors in off.items()},
        behind={n: interval(e - off[OURS], families) for n, e in off.items() if n != OURS},
        first=_together(truth, [one.first for one in found], of.cap),
        second=_second(truth, found, of.cap),
        worst=dict(sorted(ratios.items(), key=lambda one: -one[1])[:3]),
    )


def _second(truth: NDArray[np.int64], found: Sequence[_LeftOut], cap: int) -> Forecasted | None:
    said = [one.second for one in found if one.second is not None]
    return _together(truth, said, cap) if len(said) == len(found) else None


def _together(truth: NDArray[np.int64], said: Sequence[_Said], cap: int) -> Forecasted:
    points = np.concatenate([one.told.point for one in said])
    order = np.concatenate([_given(one.told.order) for one in said])
    bound = np.concatenate([one.upper for one in said])
    below = bound < cap
    return Forecasted(
        mae=float(np.abs(points - truth).mean()),
        crps=float(np.concatenate([_given(one.told.crps) for one in said]).mean()),
        kendall=scores.kendall(truth, order),
        rank_accuracy=scores.rank_accuracy(truth, order),
        coverage_90=float((truth <= bound).mean()),
        coverage_90_below=float((truth <= bound)[below].mean()) if below.any() else float("nan"),
    )


def _given(values: Floats | None) -> Floats:
    assert values is not None, "the forecaster tells whole distributions"
    return values


def _sources(of: Material) -> list[str]:
    counts: dict[str, int] = {}
    for case in of.cases:
        counts[case.source] = counts.get(case.source, 0) + len(case.answers)
    return sorted(name for name, count in counts.items() if count >= FEW)


def _left_out(
    of: Material, labels: Labels, name: str, seed: int, recipe: Recipe | None
) -> _LeftOut:
    here = np.array([case.source == name for case in of.cases])
    kin = np.isin(of.families, of.families[here]) & ~here
    parts = np.where(of.parts == "test", "train", of.parts)
    parts[kin] = "unused"
    parts[here] = "test"
    learned = learn(replace(of, parts=parts), labels, seed, recipe)
    test = learned.rows["test"]
    read = second(learned, seed)
    return _LeftOut(
        name,
        np.minimum(test.lengths, of.cap),
        test.families,
        baselines(learned.rows["train"], test, of.cap, seed=seed, only={GLOBAL, *RIVALS}),
        _said(learned.stage),
        _said(stage_of(learned, read)) if read is not None else None,
    )


def _said(stage: Stage) -> _Said:
    test = stage.rows["test"]
    return _Said(told_by(stage.found["test"], test, stage.of.cap), stage.limits.high)
