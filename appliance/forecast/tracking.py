"""Corrections that are learned while serving, for one route: pure, without a clock.

1. The bias: the median of log(length / forecast median) over the newest 64 answers, with the
   running ones as known to exceed what they have (short answers end first, so a window of ended
   ones alone looks short after lengths have grown). Shrunk, with a dead-band, bounded.
2. The offsets at TAUS on top of it, by quantile tracking with an integrator: conformal PI
   (Angelopoulos and others, arXiv 2307.16895, section 2). An answer counts once for each level.
3. The rolling coverage of the 90 % bounds as they were told.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.conformal import MEDIAN, MOST, NINETY, TAUS, Corrected, km_quantile, misses

Floats = NDArray[np.float64]

BIAS_WINDOW = 64
BIAS_SHRINK = 32
BIAS_MOST = 0.7
"""Log units, about a factor of 2."""
DEAD_BAND = 2 * 1.25
"""Standard errors of a median: twice 1.25 sigma / sqrt(n)."""
RATE = 0.03
"""Log units by which one miss moves an offset."""
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

    def __init__(self, offsets: Sequence[float], *, unbiased: bool = False) -> None:
        """`offsets`: as calibrated. `unbiased`: the forecast follows lengths by itself."""
        self._start = np.asarray(offsets, dtype=np.float64)
        self._steps = np.zeros(len(TAUS))
        self._sums = np.zeros(len(TAUS))
        self._counts = np.zeros(len(TAUS))
        self._unbiased = unbiased
        self._ratios: deque[tuple[float, bool]] = deque(maxlen=BIAS_WINDOW)
        self._running: tuple[float, ...] = ()
        self._missed: OrderedDict[int, NDArray[np.bool_]] = OrderedDict()
        self._errors: deque[float] = deque(maxlen=COVERAGE_WINDOW)
        self._bias: float | None = 0.0
        self.observed = 0

    @property
    def bias(self) -> float:
        """Log units, as applied."""
        if self._bias is None:
            self._bias = 0.0 if self._unbiased else _bias(self._ratios, self._running)
        return self._bias

    @property
    def offsets(self) -> Floats:
        """What each quantile is multiplied by now, log units at TAUS; the bias is in it."""
        turned = np.minimum(self._counts, MEMORY) + 1
        angle = self._sums * np.log(turned + 1) / turned
        integral = INTEGRAL * np.tan(np.clip(angle, -1.2, 1.2))
        kept: Floats = np.clip(self._start + self._steps + integral, -MOST, MOST)
        return kept + self.bias

    @property
    def errors(self) -> Sequence[float]:
        """Of the newest answers: 1 beyond the 90 % bound, 0 within it; between, for those that
        were cut off within it, what is to be expected of them."""
        return self._errors

    def observe(self, outcome: Outcome, serial: int = 0) -> None:
        """An answer has ended. `serial`: as in `running`."""
        self.observed += 1
        logs, length = outcome.told.logs, max(1, outcome.length)
        self._ratios.append((float(np.log(length) - logs[MEDIAN]), outcome.censored))
        now = np.exp(logs + self.offsets)
        self._learn(_missed(now, outcome), self._missed.pop(serial, None))
        told = np.array(outcome.told.bounds)
        self._errors.append(float(_missed(told, outcome)[NINETY]))
        self._bias = None

    def running(self, requests: Sequence[Running]) -> None:
        """All that run now. Those beyond a bound have missed it already; the others tell that
        lengths are no shorter."""
        begun = [one for one in requests[:MAX_RUNNING] if one.generated > 0]
        if begun:
            so_far = np.log(np.array([one.generated for one in begun], dtype=np.float64))
            logs = np.array([one.told.logs for one in begun])
            beyond = so_far[:, None] > logs + self.offsets + 1e-9
            for at in np.flatnonzero(beyond.any(axis=1)):
                self._overrun(begun[at].serial, beyond[at])
            self._running = tuple((so_far - logs[:, MEDIAN]).tolist())
        else:
            self._running = ()
        self._bias = None

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


def _missed(bounds: Floats, outcome: Outcome) -> Floats:
    return misses(bounds, outcome.told.lengths, outcome.length, outcome.censored)


def _bias(ratios: Sequence[tuple[float, bool]], running: Sequence[float]) -> float:
    """Shrunk median of log ratios, or 0 within the dead-band."""
    ended = sum(not cut for _, cut in ratios)
    if ended < 2:
        return 0.0
    values = np.array([ratio for ratio, _ in ratios] + list(running))
    cut = np.array([was_cut for _, was_cut in ratios] + [True] * len(running))
    low, middle, high = (km_quantile(values, cut, tau) for tau in (0.25, 0.5, 0.75))
    if middle is None:  # too many cut off to know: at least the largest that ended
        return _shrunk(max(0.0, float(values[~cut].max())), len(ratios))
    spread = (high - low) if high is not None and low is not None else 2 * (middle - (low or 0.0))
    if abs(middle) <= DEAD_BAND * abs(spread) / 1.349 / np.sqrt(len(ratios)):
        return 0.0
    return _shrunk(middle, len(ratios))


def _shrunk(median: float, n: int) -> float:
    return float(np.clip(median, -BIAS_MOST, BIAS_MOST)) * n / (n + BIAS_SHRINK)
