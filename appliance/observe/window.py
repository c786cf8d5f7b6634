"""What happened lately: counts, rates and percentiles of the last minute. Pure: `now` (monotonic
seconds) is an argument. Memory is bounded, and noting an event costs about a microsecond.

Percentiles come from buckets that are 5 % wide, so a shown value is at most 2.5 % off.
"""

import math
from collections import deque
from collections.abc import Sequence

WINDOW_S = 60.0
_SLICE_S = 2.0
"""What happens within one slice leaves the window together."""
_LEAST = 0.01
"""Values below it count as it; of milliseconds, ten microseconds."""
_BUCKETS = 420
"""From `_LEAST` to 8 million: more than two hours in milliseconds."""
_STEP = math.log(1.05)


class Spread:
    """How values of the last minute are spread."""

    __slots__ = ("_slices", "_totals")

    def __init__(self) -> None:
        self._slices: deque[tuple[int, dict[int, int]]] = deque()
        """(number of the slice, counts by bucket), oldest first."""
        self._totals = [0] * _BUCKETS

    def add(self, value: float, now: float) -> None:
        """Notes one value."""
        number = int(now / _SLICE_S)
        if not self._slices or self._slices[-1][0] < number:
            self._expire(number)
            self._slices.append((number, {}))
        bucket = _bucket(value)
        counts = self._slices[-1][1]
        counts[bucket] = counts.get(bucket, 0) + 1
        self._totals[bucket] += 1

    def quantiles(self, shares: Sequence[float], now: float) -> list[float | None]:
        """For each share (rising, 0 to 1) the value that so much of them does not exceed; None
        while there are no values."""
        self._expire(int(now / _SLICE_S))
        count = sum(self._totals)
        if not count:
            return [None] * len(shares)
        found: list[float | None] = []
        below = 0
        wanted = [max(1, math.ceil(share * count)) for share in shares]
        for bucket, size in enumerate(self._totals):
            below += size
            while len(found) < len(wanted) and below >= wanted[len(found)]:
                found.append(_value(bucket))
            if len(found) == len(wanted):
                break
        return found

    def _expire(self, number: int) -> None:
        oldest = number - int(WINDOW_S / _SLICE_S)
        while self._slices and self._slices[0][0] <= oldest:
            for bucket, size in self._slices.popleft()[1].items():
                self._totals[bucket] -= size


def _bucket(value: float) -> int:
    if value <= _LEAST:
        return 0
    return min(_BUCKETS - 1, 1 + int(math.log(value / _LEAST) / _STEP))


def _value(bucket: int) -> float:
    """The geometric middle of the bucket."""
    return _LEAST * math.exp((bucket - 0.5) * _STEP) if bucket else _LEAST


class Recent:
    """How often something happened in the last minute."""

    __slots__ = ("_slices", "_total")

    def __init__(self) -> None:
        self._slices: deque[list[int]] = deque()
        """[number of the slice, count], oldest first."""
        self._total = 0

    def add(self, now: float, amount: int = 1) -> None:
        number = int(now)
        if not self._slices or self._slices[-1][0] < number:
            self._expire(number)
            self._slices.append([number, 0])
        self._slices[-1][1] += amount
        self._total += amount

    def count(self, now: float) -> int:
        self._expire(int(now))
        return self._total

    def _expire(self, number: int) -> None:
        while self._slices and self._slices[0][0] <= number - WINDOW_S:
            self._total -= self._slices.popleft()[1]


class Meter:
    """How fast a counter grows that is looked at now and then."""

    __slots__ = ("_least_s", "_seen", "_window_s")

    def __init__(self, window_s: float, least_s: float = 0.05) -> None:
        """Looks that come sooner than `least_s` after the last one are not kept."""
        self._window_s = window_s
        self._least_s = least_s
        self._seen: deque[tuple[float, float]] = deque()

    def see(self, total: float, now: float) -> None:
        """The counter stands at `total`."""
        if self._seen and now - self._seen[-1][0] < self._least_s:
            return
        if self._seen and total < self._seen[-1][1]:
            self._seen.clear()  # another counter: its past is unknown
        self._seen.append((now, total))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._window_s:
            self._seen.popleft()

    def gain(self) -> float:
        """What came within the window."""
        return self._seen[-1][1] - self._seen[0][1] if self._seen else 0.0

    def per_s(self) -> float | None:
        """None until it was looked at twice."""
        if len(self._seen) < 2:
            return None
        return self.gain() / (self._seen[-1][0] - self._seen[0][0])
