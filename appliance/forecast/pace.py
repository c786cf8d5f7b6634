"""How long something took lately."""

from collections import deque

from appliance.spread import spread

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
        middle, high, _ = spread(self._times)
        return 1000 * middle, 1000 * high
