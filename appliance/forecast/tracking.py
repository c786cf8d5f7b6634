"""Corrections that are learned while serving, for one route: pure, without a clock.

1. The bias: what `control.compensator` finds in the newest 64 answers and those that run. In the
   daemon the control loop owns it and a tracker reads it (`correction`); else it keeps its own.
2. The offsets at TAUS on top of it, by quantile tracking with an integrator: conformal PI
   (Angelopoulos and others, arXiv 2307.16895, section 2). An answer counts once for each level.
3. The rolling coverage of the 90 % bounds as they were told.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from appliance.control.compensator import Compensator
from appliance.control.correction import Correction
from appliance.control.window import Flight, Sample
from appliance.forecast.conformal import MEDIAN, MOST, NINETY, TAUS, Corrected, misses

Floats = NDArray[np.float64]

TEN = TAUS.index(0.1)
BETWEEN = 2.563
"""Of a normal distribution of deviation 1, between 10 and 90 %."""
LEAST_SIGMA = 0.05
RATE = 0.05
"""Log units by which one miss moves an offset. 0.03 keeps bounds some 5 % narrower, and is too
slow to hold for 85 % of the first 200 answers after all lengths have doubled."""
MEMORY = 512
"""Answers over which the integrator forgets."""
INTEGRAL = 0.5
"""Log units."""
COVERAGE_WINDOW = 200
ENOUGH = 100
"""Answers before coverage is told."""
WITHIN = (0.85, 0.95)
"""Coverage of 90 % bounds outside which a forecaster is uncalibrated."""
MAX_RUNNING = 4096

_LEVELS: Floats = np.array(TAUS)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """An answer that ended, and what was told of it."""

    told: Corrected
    length: int
    censored: bool


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """An answer that has not ended."""

    serial: int
    told: Corrected
    generated: int


class Tracker:
    """Of one route and one forecaster."""

    def __init__(
        self,
        offsets: Sequence[float],
        *,
        unbiased: bool = False,
        correction: Callable[[], Correction] | None = None,
    ) -> None:
        """`offsets`: as calibrated. `unbiased`: the forecast follows lengths by itself.
        `correction`: the bias, where somebody else keeps it."""
        self._start = np.asarray(offsets, dtype=np.float64)
        self._steps = np.zeros(len(TAUS))
        self._sums = np.zeros(len(TAUS))
        self._counts = np.zeros(len(TAUS))
        self._kept: Floats | None = None
        self._own = Compensator() if correction is None and not unbiased else None
        self._given = correction
        self._correction = Correction("")
        self._missed: OrderedDict[int, NDArray[np.bool_]] = OrderedDict()
        self._errors: deque[float] = deque(maxlen=COVERAGE_WINDOW)
        self.observed = 0

    @property
    def correction(self) -> Correction:
        return self._given() if self._given is not None else self._correction

    @property
    def bias(self) -> float:
        """Log units, as applied to a forecast that is neither short nor long."""
        return self.correction.filtered

    @property
    def offsets(self) -> Floats:
        """What each quantile of such a forecast is multiplied by now, log units at TAUS; the bias
        is in it."""
        return self._moved() + self.bias

    def offsets_at(self, log_median: float) -> Floats:
        """The same of a forecast whose median, before any correction, is exp(`log_median`)."""
        return self._moved() + self.correction.log_factor(log_median + float(self._start[MEDIAN]))

    def _moved(self) -> Floats:
        """Without the bias."""
        if self._kept is None:
            turned = np.minimum(self._counts, MEMORY) + 1
            angle = self._sums * np.log(turned + 1) / turned
            integral = INTEGRAL * np.tan(np.clip(angle, -1.2, 1.2))
            self._kept = np.clip(self._start + self._steps + integral, -MOST, MOST)
        return self._kept

    @property
    def errors(self) -> Sequence[float]:
        """Of the newest answers: 1 beyond the 90 % bound, 0 within it; between, for those that
        were cut off within it, what is to be expected of them."""
        return self._errors

    def observe(self, outcome: Outcome, serial: int = 0) -> None:
        """An answer has ended. `serial`: as in `running`."""
        self.observed += 1
        logs = outcome.told.logs
        now = np.exp(logs + self.offsets_at(float(logs[MEDIAN])))
        self._learn(_missed(now, outcome), self._missed.pop(serial, None))
        told = np.array(outcome.told.bounds)
        self._errors.append(float(_missed(told, outcome)[NINETY]))
        if self._own is not None:
            sample = sample_of(outcome.told, self._start, outcome.length, outcome.censored)
            self._correction = self._own.tick(0.0, [sample])

    def running(self, requests: Sequence[Running]) -> None:
        """All that run now. Those beyond a bound have missed it already; the others tell that
        lengths are no shorter."""
        begun = [one for one in requests[:MAX_RUNNING] if one.generated > 0]
        if begun:
            so_far = np.log(np.array([one.generated for one in begun], dtype=np.float64))
            logs = np.array([one.told.logs for one in begun])
            beyond = so_far[:, None] > logs + self._offsets_of(logs) + 1e-9
            for at in np.flatnonzero(beyond.any(axis=1)):
                self._overrun(begun[at].serial, beyond[at])
        if self._own is not None:
            flights = [flight_of(one.told, self._start, one.generated) for one in begun]
            self._correction = self._own.tick(0.0, running=flights)

    def _offsets_of(self, logs: Floats) -> Floats:
        """[n, TAUS], for forecasts with these quantiles."""
        found = self.correction
        medians = (logs[:, MEDIAN] + self._start[MEDIAN]).tolist()
        factors = np.array([found.log_factor(median) for median in medians])
        moved: Floats = self._moved() + factors[:, None]
        return moved

    def _overrun(self, serial: int, beyond: NDArray[np.bool_]) -> None:
        counted = self._missed.get(serial, np.zeros(len(TAUS), dtype=bool))
        if np.any(beyond & ~counted):
            self._learn(np.ones(len(TAUS)), counted | ~beyond)
            self._missed[serial] = counted | beyond
            while len(self._missed) > MAX_RUNNING:
                self._missed.popitem(last=False)

    def _learn(self, errors: Floats, skip: NDArray[np.bool_] | None) -> None:
        """One step of the tracker at each level that is not to be skipped."""
        use = np.ones(len(TAUS), dtype=bool) if skip is None else ~skip
        excess = np.where(use, errors - (1.0 - _LEVELS), 0.0)
        room = np.abs(self._start + self._steps + RATE * excess) <= MOST
        self._steps += np.where(room, RATE * excess, 0.0)
        self._sums = np.where(use, self._sums * (1 - 1 / MEMORY) + excess, self._sums)
        self._counts += use
        self._kept = None


def _missed(bounds: Floats, outcome: Outcome) -> Floats:
    return misses(bounds, outcome.told.lengths, outcome.length, outcome.censored)


def sample_of(told: Corrected, start: Sequence[float] | Floats, length: int, cut: bool) -> Sample:
    """What the control loop makes of an answer. `start`: the offsets as calibrated."""
    logs = told.logs
    low, high = float(logs[TEN]) + float(start[TEN]), float(logs[NINETY]) + float(start[NINETY])
    return Sample(
        length=math.log(max(1, length)),
        median=float(logs[MEDIAN]) + float(start[MEDIAN]),
        sigma=max(LEAST_SIGMA, (high - low) / BETWEEN) if math.isfinite(high - low) else math.nan,
        cut=cut,
    )


def flight_of(told: Corrected, start: Sequence[float] | Floats, generated: int) -> Flight:
    """Likewise of one that runs."""
    return Flight(math.log(max(1, generated)), float(told.logs[MEDIAN]) + float(start[MEDIAN]))
