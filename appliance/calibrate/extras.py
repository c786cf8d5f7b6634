"""What is learned beside the network: the bounds' corrections, the refinement in flight, INT8."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.calibrate.cases import Case
from appliance.calibrate.material import Material
from appliance.forecast import conformal, quantize, refinescore, sessions
from appliance.forecast.archive import Arrays
from appliance.forecast.conformal import Table
from appliance.forecast.dataset import Answered
from appliance.forecast.families import Part
from appliance.forecast.hazard import BINS, Lengths, fitted, hazards_of
from appliance.forecast.network import Network
from appliance.forecast.refinefit import TooFewSignals, fit
from appliance.forecast.refinescore import RefineReport
from appliance.forecast.rows import Rows
from appliance.forecast.scores import crps

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INT8_LOSS = 0.01
"""Share of CRPS that INT8 may cost; above it FP32 runs."""
MOST_REFINED = 400
"""Test answers that the refinement is scored on: each has dozens of signals."""


def hazards(network: Network, rows: Rows) -> Floats:
    """[n, 24]"""
    return hazards_of(network.forward(rows.x)[:, :BINS])


def told(found: Floats) -> list[Lengths]:
    return [Lengths(row) for row in found]


# -- bounds --------------------------------------------------------------------------------------


class Bound(msgspec.Struct, frozen=True):
    """How often test answers were within one bound, as shares. Answers that were cut off count by
    what is to be expected of them (`conformal.misses`)."""

    level: float
    alone: float
    """As the network tells it."""
    corrected: float
    below: int
    """Test answers whose corrected bound was below the cap, so that they all tell."""
    corrected_below: float | None
    """Of those; None where there are none."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The correction, and what it does on the test prompts."""

    table: Table
    levels: tuple[Bound, ...]
    low: Floats
    high: Floats
    """p10 and p90 of each test answer, corrected, at most the cap."""
    median: Floats
    upper_95: Floats
    low_5: Floats


def bounds(of: Material, held: tuple[Rows, Floats], test: tuple[Rows, Floats]) -> Bounds:
    """`held`, `test`: rows of the calibration and the test prompts with their hazards."""
    rows, found = held
    table = conformal.fit(
        told(found), rows.lengths, rows.censored, _routes(of, rows, "calibration")
    )
    rows, found = test
    routes = _routes(of, rows, "test")
    kept = [_Kept.of(*one, table) for one in zip(told(found), routes, rows.lengths, rows.censored,
                                                 strict=True)]  # fmt: skip
    right = np.minimum(np.array([one.bounds for one in kept]), of.cap)
    named = {tau: right[:, at] for at, tau in enumerate(conformal.TAUS)}
    return Bounds(
        table=table,
        levels=tuple(_bound(kept, at, rows.lengths, of.cap) for at in range(len(conformal.TAUS))),
        low=named[0.1],
        high=named[0.9],
        median=named[0.5],
        upper_95=named[0.95],
        low_5=np.minimum([one.low_5 for one in kept], of.cap).astype(np.float64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """One test answer: its corrected bounds, and which of them it missed (0 to 1)."""

    bounds: Floats
    low_5: float
    alone: Floats
    corrected: Floats

    @classmethod
    def of(cls, raw: Lengths, route: str, length: int, cut: bool, table: Table) -> "_Kept":
        plain = np.array(raw.quantiles(conformal.TAUS), dtype=np.float64)
        right = conformal.correct(raw, table.offsets(route))
        bounds = np.array(right.bounds)
        return cls(
            bounds,
            float(right.lengths.quantile(0.05)),
            conformal.misses(plain, raw, int(length), bool(cut)),
            conformal.misses(bounds, right.lengths, int(length), bool(cut)),
        )


def _bound(kept: Sequence[_Kept], at: int, lengths: Ints, cap: int) -> Bound:
    bounds = np.array([one.bounds[at] for one in kept])
    below = bounds < cap
    return Bound(
        conformal.TAUS[at],
        1.0 - float(np.mean([one.alone[at] for one in kept])),
        1.0 - float(np.mean([one.corrected[at] for one in kept])),
        int(below.sum()),
        float((lengths[below] <= bounds[below]).mean()) if below.any() else None,
    )


def _routes(of: Material, rows: Rows, part: Part) -> list[str]:
    chosen = of.of(part)
    return [of.cases[chosen[prompt]].question.route for prompt in rows.prompts]


# -- the refinement in flight --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refining:
    """The refinement's arrays and scores; or why there are none."""

    arrays: Arrays | None
    report: RefineReport | None
    problem: str = ""


def refining(
    of: Material,
    found: Mapping[str, Floats],
    held: Mapping[str, Rows],
    pieces: Mapping[int, bytes] | None,
) -> Refining:
    """Fitted on validation and calibration prompts, which the network was not fitted to. `found`:
    the hazards of each part's answers, as they are told when an answer begins."""
    answers: list[Answered] = []
    priors: list[Lengths] = []
    for part in ("validation", "calibration"):
        answers += answers_of(of, part)
        priors += told(found[part])
    try:
        refiner = fit(answers, priors, pieces)
    except TooFewSignals as error:
        return Refining(None, None, str(error))
    test = [(a, p) for a, p in zip(answers_of(of, "test"), told(found["test"]),
                                   strict=True) if a.signals]  # fmt: skip
    average = fitted(held["calibration"].lengths, held["calibration"].censored)
    scored = [refinescore.moments(refiner, a, p, average, pieces) for a, p in test[:MOST_REFINED]]
    return Refining(refiner.arrays(), refinescore.report(scored) if scored else None)


def answers_of(of: Material, part: Part) -> list[Answered]:
    """In the order of the part's rows."""
    return [answer for row in of.of(part) for answer in of.cases[row].answers]


# -- INT8 ----------------------------------------------------------------------------------------


class Int8(msgspec.Struct, frozen=True):
    """What INT8 costs on the test answers."""

    crps: float
    fp32_crps: float
    provider: str

    @property
    def loss(self) -> float:
        """Share of CRPS."""
        return self.crps / self.fp32_crps - 1 if self.fp32_crps else 0.0


def int8(network: Network, fp32: bytes, train: Rows, test: Rows, cap: int) -> tuple[bytes, Int8]:
    """The quantised network, run as the box would run it. Raises sessions.Foreign."""
    model = quantize.int8(network, train.x)
    running = sessions.start(network, {"fp32": fp32, "int8": model}, precision="int8")
    found = hazards_of(np.concatenate([running.logits(row[None]) for row in test.x])[:, :BINS])
    exact = hazards(network, test)
    scores = [float(crps(one, test.lengths, cap).mean()) for one in (found, exact)]
    return model, Int8(scores[0], scores[1], running.provider)


def labels(cases: Sequence[Case]) -> list[list[float]]:
    """1 right, 0 wrong, NaN where it cannot be checked: of each case's answers."""
    from appliance.forecast.checkparts import BadCheck
    from appliance.forecast.checks import passed

    found = []
    for case in cases:
        try:
            marks = [
                float(passed(case.check, answer.text)) if case.check else float("nan")
                for answer in case.answers
            ]
        except BadCheck:
            marks = [float("nan")] * len(case.answers)
        found.append(marks)
    return found
