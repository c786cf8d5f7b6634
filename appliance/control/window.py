"""The 64 newest samples of a channel, and what Kaplan and Meier's estimate makes of them.

Python's own floats and no arrays: so few values are as fast this way, and the same inputs give the
same bits on every machine, which replay.py counts on.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

SIZE = 64
EPS = 1e-9

Value = tuple[float, bool, float]
"""A residual, whether it is only known to be exceeded, and the forecast's median."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer that ended. All are natural logarithms of tokens."""

    length: float
    median: float
    """As calibrated before anything was served, and told by nothing learned since."""
    sigma: float
    """The deviation that the forecaster's calibrated quantiles promise."""
    cut: bool = False
    """It did not end by itself: it is at least so long."""

    @property
    def sound(self) -> bool:
        return math.isfinite(self.length + self.median + self.sigma) and self.sigma > 0


@dataclass(frozen=True, slots=True)
class Flight:
    """An answer that runs, known to be longer than it is."""

    length: float
    median: float

    @property
    def sound(self) -> bool:
        return math.isfinite(self.length + self.median)


class Window:
    """Newest last."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._samples: deque[Sample] = deque(samples, maxlen=SIZE)

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)

    def push(self, sample: Sample) -> None:
        self._samples.append(sample)

    @property
    def ended(self) -> int:
        """How many of them ended by themselves."""
        return sum(not one.cut for one in self._samples)

    @property
    def sigma(self) -> float | None:
        """The middle one of what was promised."""
        found = sorted(one.sigma for one in self._samples)
        return found[len(found) // 2] if found else None


Fall = tuple[float, float, float, float]
"""At a value P(X > x) falls, from, to; and the median of the forecast that it fell at."""


def falls(values: Iterable[Value]) -> list[Fall]:
    """Kaplan and Meier's estimate, where it falls; at equal values the ends come before the cuts.
    What is left after the last fall lies beyond all that was seen."""
    found = []
    ordered = sorted(values)
    at_risk, left = len(ordered), 1.0
    for value, cut, median in ordered:
        if not cut:
            after = left * (1.0 - 1.0 / at_risk)
            found.append((value, left, after, median))
            left = after
        at_risk -= 1
    return found


def quantile(curve: Sequence[Fall], tau: float) -> float | None:
    """The smallest value that a share `tau` does not exceed. None: too many were cut to know."""
    most = 1.0 - tau + EPS
    for value, _, after, _ in curve:
        if after <= most:
            return value
    return None
