"""How long something took lately."""

from collections import deque

KEPT = 256


class Pace:
    """The newest times. One owner."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=KEPT)
        self._told: tuple[float, float] | None = None

    def add(self, seconds: float) -> None:
        self._times.append(seconds)
        self._told = None

    def percentiles_ms(self) -> tuple[float, float]:
        """p50 and p99, in ms; zeros before the first."""
        if self._told is None:
            self._told = self._spread()
        return self._told

    def _spread(self) -> tuple[float, float]:
        if not self._times:
            return (0.0, 0.0)
        times = sorted(self._times)
        middle, high = times[len(times) // 2], times[min(len(times) - 1, int(0.99 * len(times)))]
        return (1000 * middle, 1000 * high)
