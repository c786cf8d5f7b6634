"""How much of the box a calibration may take now, and when it will be done. Pure."""

import math
from collections import deque
from dataclasses import dataclass

RATE_S = 120.0
"""Over which the rate is measured, time held left out."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of everybody, ours among them, as /metrics tells."""

    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Room:
    """What of the box may be taken."""

    places: int
    """Sequences that the box runs at a time."""
    share: float
    """Of those, the part that a calibration may fill."""

    def free(self, load: Load, ours: int) -> int:
        """How many requests we may have in flight. None while others wait: they come first, and
        what of ours has not started would only lengthen the queue that they see."""
        others = max(0, load.running + load.waiting - ours)
        if others and load.waiting:
            return 0
        most = max(1, math.floor(self.places * self.share))
        return max(0, most - others)


class Pace:
    """How fast something goes. `now` is any clock that only goes forward, in seconds."""

    def __init__(self, now: float) -> None:
        self._active = 0.0
        self._last = now
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)])

    def see(self, now: float, done: int, *, idle: bool = False) -> None:
        """`done` so far. The time since the last call counts unless it was `idle`."""
        if not idle:
            self._active += max(0.0, now - self._last)
        self._last = now
        self._marks.append((self._active, done))
        while len(self._marks) > 2 and self._active - self._marks[1][0] > RATE_S:
            self._marks.popleft()

    @property
    def rate(self) -> float | None:
        """Per second; None before anything was done."""
        (began, before), (ended, after) = self._marks[0], self._marks[-1]
        return (after - before) / (ended - began) if after > before and ended > began else None

    def eta_s(self, left: int) -> float | None:
        """Until `left` more are done, without further holding; None while nobody knows."""
        if left <= 0:
            return 0.0
        rate = self.rate
        return None if rate is None else left / rate
