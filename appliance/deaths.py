"""How often the engine died lately: how long the next start waits, and when the box gives up. Pure:
`now` is monotonic seconds."""

BACKOFF_S = 0.25
"""The wait after a first death; every further one doubles it."""
BACKOFF_MAX_S = 30.0


class Deaths:
    """Those of the last `window_s` seconds; `most` of them are too many."""

    def __init__(self, most: int, window_s: float) -> None:
        self.window_s = window_s
        self._most = most
        self._times: list[float] = []

    def add(self, now: float) -> None:
        self._times.append(now)

    def count(self, now: float) -> int:
        self._times = [at for at in self._times if now - at < self.window_s]
        return len(self._times)

    def too_many(self, now: float) -> bool:
        return self.count(now) >= self._most

    def backoff(self, now: float) -> float:
        """Seconds to wait before the next start; 0.0 when none died lately."""
        count = self.count(now)
        return min(BACKOFF_S * 2 ** (count - 1), BACKOFF_MAX_S) if count else 0.0
