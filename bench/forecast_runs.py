"""What the forecast bench measures: one model's answers, drawn at one temperature.

Each part trains anew on its own training prompts; what a prompt family has in common is on one
side only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.calibrate import extras, material
from appliance.calibrate.cases import Case
from appliance.calibrate.material import Material
from appliance.calibrate.sharper import SharperReport, judged, logits_of, trained
from appliance.forecast import scores
from appliance.forecast.baselines import GLOBAL, RIVALS, Told, baselines
from appliance.forecast.bootstrap import interval
from appliance.forecast.evaluate import OURS, Bounds, Comparison, compare, told_by
from appliance.forecast.families import PARTS, split
from appliance.forecast.features import Fitted
from appliance.forecast.rows import Rows
from appliance.forecast.train import Recipe, Trained, train

Floats = NDArray[np.float64]
Labels = Sequence[Sequence[float]]

FEW = 30
"""Answers: sources with fewer are trained on, but not left out in turn."""
FLOOR_SAMPLES = 4
"""Answers to a prompt that the noise floor is taken from."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A forecaster and the rows of every part."""

    of: Material
    fitted: Fitted
    trained: Trained
    rows: dict[str, Rows]

    def hazards(self, part: str) -> Floats:
        return extras.hazards(self.trained.network, self.rows[part])


def learn(of: Material, labels: Labels, seed: int, recipe: Recipe | None = None) -> Learned:
    fitted = material.fitted(of)
    rows = {"train": material.training_rows(of, fitted, labels)}
    for part in PARTS[1:]:
        rows[part] = material.held_rows(of, part, fitted.pipeline, fitted.neighbours, labels)
    known, held = rows["train"].examples(), rows["validation"].examples()
    return Learned(of, fitted, train(known, held, seed=seed, cap=of.cap, recipe=recipe), rows)


def parted(of: Material, seed: int) -> Material:
    """Split by families with another seed. Prompts that may not be learned from are a source that
    no training has seen: they count among those, not here."""
    only_test = _only_test(of)
    parts = split(of.families, only_test, seed=seed)
    return replace(
        of, parts=np.where(np.isin(of.families, of.families[only_test]), "unused", parts)
    )


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """What is not to be foreseen, as two answers to one prompt differ."""

    mae: float
    """Of the median of the other answers to a prompt: the noise floor, from
    prompts with four answers. NaN where there are none."""
    tau: float
    """Kendall's tau of the same: what no forecast of a prompt gets much above."""
    prompts: int
    perfect: float
    """MAE of a forecaster that knew each prompt's distribution, were lengths normal: from the
    first two answers to every prompt. Lower, since three other answers are noisy themselves."""

    @property
    def level(self) -> float | None:
        """What skill is counted from; None: one answer to each prompt tells nothing."""
        found = self.mae if self.prompts else self.perfect
        return found if np.isfinite(found) else None


def noise_floor(cases: Sequence[Case], cap: int) -> Floor:
    said = {
        case.name: [min(answer.completion_tokens, cap) for answer in case.answers] for case in cases
    }
    four = {n: one[:FLOOR_SAMPLES] for n, one in said.items() if len(one) >= FLOOR_SAMPLES}
    return Floor(
        mae=scores.noise_floor(four),
        tau=scores.tau_ceiling(four),
        prompts=len(four),
        perfect=scores.noise_floor({name: one[:2] for name, one in said.items()}),
    )


def first_two(cases: Sequence[Case]) -> list[Case]:
    """Cases without the answers that only the floor needs, so that no prompt counts double."""
    return [replace(case, answers=case.answers[:2]) for case in cases]


def in_distribution(learned: Learned, floor: float | None, seed: int) -> Comparison:
    """On the test families, with the conformal correction fitted on the calibration families."""
    test, held = learned.rows["test"], learned.rows["calibration"]
    limits = extras.bounds(
        learned.of, (held, learned.hazards("calibration")), (test, learned.hazards("test"))
    )
    return compare(
        learned.rows["train"],
        test,
        learned.hazards("test"),
        cap=learned.of.cap,
        bounds=Bounds(limits.low_5, limits.high, limits.upper_95),
        floor=floor,
        seed=seed,
    )


def splits(
    of: Material, labels: Labels, floor: float | None, count: int
) -> Iterator[tuple[Comparison, SharperReport | None]]:
    """The same measurement on other splits: how much of a figure is the luck of the split."""
    for seed in range(1, count):
        learned = learn(parted(of, seed), labels, seed)
        yield in_distribution(learned, floor, seed), sharpened(learned, seed)


# -- once the prompt is read ---------------------------------------------------------------------


def sharpened(learned: Learned, seed: int) -> SharperReport | None:
    """The second forecast beside the first one; None where the prompts have no first logits."""
    of = learned.of
    logits = logits_of(of.cases)
    if np.isnan(logits).any():
        return None
    found = trained(of, learned.rows, logits, seed)
    return judged(of, learned.trained.network, found)[1]


# -- prompts like no other -----------------------------------------------------------------------


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """Every source left out in turn, then all answers of all of them taken together."""

    sources: int
    answers: int
    mae: dict[str, float]
    """Of the forecaster, the global median and the rivals that see the same features."""
    behind: dict[str, tuple[float, float]]
    """95 % interval of each one's MAE less the forecaster's."""
    crps: float
    kendall: float
    coverage_90: float
    """Of the 90 % bound, calibrated without the source; at the cap it always holds."""
    coverage_90_below: float
    """Where the bound is below the cap."""
    worst: dict[str, float]
    """MAE over the global median's, of the three sources where that is largest."""


def unseen_sources(of: Material, labels: Labels, seed: int, recipe: Recipe | None) -> Unseen:
    """Each source's families are kept out of training, wherever else they occur."""
    found = [_left_out(of, labels, name, seed, recipe) for name in _sources(of)]
    truth = np.concatenate([one.truth for one in found])
    families = np.concatenate([one.families for one in found])
    told = {n: np.concatenate([one.told[n].point for one in found]) for n in found[0].told}
    off = {name: np.abs(points - truth) for name, points in told.items()}
    bound = np.concatenate([one.upper for one in found])
    below = bound < of.cap
    ratios = {
        one.name: float(
            np.abs(one.told[OURS].point - one.truth).mean()
            / max(1.0, float(np.abs(one.told[GLOBAL].point - one.truth).mean()))
        )
        for one in found
    }
    return Unseen(
        sources=len(found),
        answers=len(truth),
        mae={name: float(errors.mean()) for name, errors in off.items()},
        behind={n: interval(e - off[OURS], families) for n, e in off.items() if n != OURS},
        crps=float(np.concatenate([_given(one.told[OURS].crps) for one in found]).mean()),
        kendall=scores.kendall(
            truth, np.concatenate([_given(one.told[OURS].order) for one in found])
        ),
        coverage_90=float((truth <= bound).mean()),
        coverage_90_below=float((truth <= bound)[below].mean()) if below.any() else float("nan"),
        worst=dict(sorted(ratios.items(), key=lambda one: -one[1])[:3]),
    )


def _given(values: Floats | None) -> Floats:
    assert values is not None, "the forecaster tells whole distributions"
    return values


@dataclass(frozen=True, slots=True)
class _LeftOut:
    name: str
    truth: NDArray[np.int64]
    families: NDArray[np.int64]
    told: dict[str, Told]
    upper: Floats


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
    test, held, hazards = learned.rows["test"], learned.rows["calibration"], learned.hazards("test")
    limits = extras.bounds(learned.of, (held, learned.hazards("calibration")), (test, hazards))
    truth = np.minimum(test.lengths, of.cap)
    others = baselines(learned.rows["train"], test, of.cap, seed=seed, only={GLOBAL, *RIVALS})
    told = {OURS: told_by(hazards, test, of.cap), **others}
    return _LeftOut(name, truth, test.families, told, limits.high)


def _only_test(of: Material) -> NDArray[np.bool_]:
    return np.array([case.use == "evaluation" for case in of.cases])
