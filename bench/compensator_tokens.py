"""Forecasts whose lengths change half-way, corrected by the compensator alone.

Released answers of the default model in random order, on prompts of families that the forecaster
has not seen; and log-normal answers of a forecaster that is right. After 300 answers all lengths,
and the limit that cuts them, are multiplied by a factor, as another model or template would do it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from appliance.calibrate import material
from appliance.control.compensator import DEAD_BAND, Compensator
from appliance.control.correction import Correction
from appliance.control.window import SIZE, Sample, falls, quantile
from appliance.forecast.conformal import MEDIAN, NINETY, TAUS, log_quantiles
from appliance.forecast.tracking import BETWEEN
from bench import forecast_runs as runs
from bench.forecast import CAP, RELEASED, _default_embedder
from bench.forecast_answers import load
from bench.forecast_cases import groups, prompts_of, served
from bench.forecast_drift import answers_of, offsets_of

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

FACTORS = (0.7, 1.3)
CHANGE = 300
"""Answers before the change."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Answers, and what was forecast of them as calibrated. Log tokens."""

    lengths: Floats
    cut: Flags
    medians: Floats
    sigmas: Floats
    cap: float
    """Tokens."""

    def ordered(self, seed: int) -> "Stream":
        order = np.random.default_rng(seed).permutation(len(self.lengths))
        return Stream(
            self.lengths[order], self.cut[order], self.medians[order], self.sigmas[order], self.cap
        )


def released(prompts: Path | None, seeds: int) -> dict[str, Stream]:
    """Of the default model at temperature 0.7, of forecasters trained on other splits. Raises
    BadDataset."""
    known, model = load(RELEASED), served(None)
    found = {}
    for temperature, cases, labels in groups(prompts_of(prompts), known, model):
        if not temperature:
            continue
        base = material.material(
            runs.first_two(cases), model.path, _default_embedder(), seed=0, progress=lambda _: None
        )
        for seed in range(seeds):
            learned = runs.learn(runs.parted(base, seed), [marks[:2] for marks in labels], seed)
            found[f"forecaster {seed}, released"] = _stream(learned, seed)
    return found


def _stream(learned: runs.Learned, seed: int) -> Stream:
    stage = learned.stage
    answers = answers_of(stage, seed)
    logs = np.array([log_quantiles(one.raw) for one in answers]) + np.array(offsets_of(stage))
    return Stream(
        np.log([one.length for one in answers]),
        np.array([one.censored for one in answers]),
        logs[:, MEDIAN],
        (logs[:, NINETY] - logs[:, TAUS.index(0.1)]) / BETWEEN,
        float(CAP),
    )


def simulated(sigma: float, count: int = 800, seed: int = 5) -> Stream:
    """Of a forecaster that is right, and whose answers nothing cuts."""
    rng = np.random.default_rng(seed)
    medians = rng.normal(5.0, 0.7, count)
    lengths = np.log(np.maximum(1, np.rint(np.exp(medians + rng.normal(0, sigma, count)))))
    return Stream(lengths, np.zeros(count, dtype=bool), medians, np.full(count, sigma), math.inf)


# -- what is measured ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tried:
    """One stream in several orders."""

    calm: tuple[float, ...]
    """MAE with corrections over that without, where nothing changes, of each order."""
    plain: tuple[float, ...]
    """Median of log(length / forecast) without correction from 65 to 128 answers after the change;
    one for each of FACTORS, over all orders."""
    corrected: tuple[float, ...]
    mae: tuple[float, ...]
    """With corrections over without, from 65 answers after the change on."""
    dead_band: float
    """Of 64 answers, as many of them cut as usual: a smaller error cannot be told from noise."""

    def left(self, factor: float) -> float:
        """Of the change: what the forecaster was off by before it is taken out."""
        at = FACTORS.index(factor)
        return self.corrected[at] - (self.plain[at] - math.log(factor))


def tried(stream: Stream, orders: int) -> Tried:
    shuffled = [stream.ordered(seed) for seed in range(orders)]
    calm = tuple(_harm(one) for one in shuffled)
    drifts = [_drifted(shuffled, factor) for factor in FACTORS]
    _, last = followed(shuffled[0], 1.0)
    std = last.std if last.std is not None else math.nan
    ended = SIZE * float(1 - stream.cut.mean())
    return Tried(
        calm=calm,
        plain=tuple(one[0] for one in drifts),
        corrected=tuple(one[1] for one in drifts),
        mae=tuple(one[2] for one in drifts),
        dead_band=DEAD_BAND * std / math.sqrt(ended),
    )


def followed(stream: Stream, factor: float) -> tuple[Floats, Correction]:
    """What each forecast is corrected by when it is told, in log units, and the last correction."""
    compensator, made = Compensator(), Correction("")
    told = np.zeros(len(stream.lengths))
    for at, median in enumerate(stream.medians.tolist()):
        told[at] = made.log_factor(median)
        off = math.log(factor) if at >= CHANGE else 0.0
        sample = Sample(
            float(stream.lengths[at]) + off,
            median,
            float(stream.sigmas[at]),
            bool(stream.cut[at]),
        )
        made = compensator.tick(0.0, [sample])
    return told, made


def _harm(stream: Stream) -> float:
    told, _ = followed(stream, 1.0)
    off = _off(stream, told, 1.0)
    return float(off.mean() / _off(stream, np.zeros_like(told), 1.0).mean())


def _drifted(streams: Sequence[Stream], factor: float) -> tuple[float, float, float]:
    plain: list[tuple[float, bool, float]] = []
    moved: list[tuple[float, bool, float]] = []
    before = after = 0.0
    for one in streams:
        told, _ = followed(one, factor)
        residuals = one.lengths + math.log(factor) - one.medians
        for at in range(CHANGE + SIZE, CHANGE + 2 * SIZE):
            cut = bool(one.cut[at])
            plain.append((float(residuals[at]), cut, 0.0))
            moved.append((float(residuals[at] - told[at]), cut, 0.0))
        later = slice(CHANGE + SIZE, None)
        before += float(_off(one, np.zeros_like(told), factor)[later].mean())
        after += float(_off(one, told, factor)[later].mean())
    return _median(plain), _median(moved), after / before


def _off(stream: Stream, told: Floats, factor: float) -> Floats:
    """Absolute error of the median of min(length, cap), tokens."""
    cap = stream.cap * factor
    forecast = np.minimum(np.exp(stream.medians + told), cap)
    found: Floats = np.abs(forecast - np.minimum(np.exp(stream.lengths) * factor, cap))
    return found


def _median(values: Sequence[tuple[float, bool, float]]) -> float:
    found = quantile(falls(values), 0.5)
    return math.nan if found is None else found
