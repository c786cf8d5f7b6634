"""What the forecast bench measures: one model's answers, drawn at one temperature.

Each part trains anew on its own training prompts; what a prompt family has in common is on one
side only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.calibrate import extras, material
from appliance.calibrate.cases import Case
from appliance.calibrate.material import Material
from appliance.calibrate.sharper import SharperReport, Trained, judged, logits_of, trained
from appliance.forecast import scores
from appliance.forecast.baselines import ridge
from appliance.forecast.evaluate import Bounds, Comparison, compare
from appliance.forecast.families import PARTS, split
from appliance.forecast.features import Fitted
from appliance.forecast.rows import Rows
from appliance.forecast.train import Recipe, train
from appliance.forecast.train import Trained as Network

Floats = NDArray[np.float64]
Labels = Sequence[Sequence[float]]

FLOOR_SAMPLES = 4
"""Answers to a prompt that the noise floor is taken from."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A forecaster and the rows of every part."""

    of: Material
    fitted: Fitted
    trained: Network
    rows: dict[str, Rows]

    def hazards(self, part: str) -> Floats:
        return extras.hazards(self.trained.network, self.rows[part])

    @property
    def stage(self) -> "Stage":
        """The first forecast: of the request alone."""
        return Stage(self.of, self.rows, {part: self.hazards(part) for part in PARTS[1:]})


@dataclass(frozen=True, slots=True)
class Stage:
    """What one of the two forecasts of a request says of the parts that were not trained on."""

    of: Material
    rows: Mapping[str, Rows]
    found: Mapping[str, Floats]
    """Hazards, by part."""

    @property
    def limits(self) -> extras.Bounds:
        """Its bounds on the test answers, calibrated on the calibration answers."""
        held, test = ((self.rows[p], self.found[p]) for p in ("calibration", "test"))
        return extras.bounds(self.of, held, test)


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
    stage = learned.stage
    limits = stage.limits
    return compare(
        learned.rows["train"],
        stage.rows["test"],
        stage.found["test"],
        cap=learned.of.cap,
        bounds=Bounds(limits.low_5, limits.high, limits.upper_95),
        floor=floor,
        seed=seed,
    )


class Sharpened(msgspec.Struct, frozen=True, kw_only=True):
    """The second forecast beside the first one, on the same test answers."""

    report: SharperReport
    ridge_mae: float
    """Of a ridge on the first logits alone: they are views of the model's last state."""
    ridge_kendall: float


def splits(
    of: Material, labels: Labels, floor: float | None, count: int
) -> Iterator[tuple[Comparison, Sharpened | None]]:
    """The same measurement on other splits: how much of a figure is the luck of the split."""
    for seed in range(1, count):
        learned = learn(parted(of, seed), labels, seed)
        yield in_distribution(learned, floor, seed), sharpened(learned, second(learned, seed))


# -- once the prompt is read ---------------------------------------------------------------------


def second(learned: Learned, seed: int) -> Trained | None:
    """The second forecast's parts; None where the prompts have no first logits."""
    logits = logits_of(learned.of.cases)
    if np.isnan(logits).any():
        return None
    return trained(learned.of, learned.rows, logits, seed)


def stage_of(learned: Learned, found: Trained) -> Stage:
    """The second forecast, as `Learned.stage` has the first."""
    return Stage(learned.of, found.rows, {part: found.hazards(part) for part in PARTS[1:]})


def sharpened(learned: Learned, found: Trained | None) -> Sharpened | None:
    if found is None:
        return None
    of, known, asked = learned.of, found.rows["train"], found.rows["test"]
    logits = logits_of(of.cases)
    views = (logits[of.of(part)[found.rows[part].prompts]] for part in ("train", "test"))
    alone = ridge(*views, known, of.cap).point
    truth = np.minimum(asked.lengths, of.cap)
    return Sharpened(
        report=judged(of, learned.trained.network, found)[1],
        ridge_mae=float(np.abs(alone - truth).mean()),
        ridge_kendall=scores.kendall(truth, alone),
    )


def _only_test(of: Material) -> NDArray[np.bool_]:
    return np.array([case.use == "evaluation" for case in of.cases])
