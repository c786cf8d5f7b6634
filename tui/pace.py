"""How often to paint: ten times a second, or twice where the line to the terminal is slow.

The console asks the terminal where its cursor is and times the answer, which comes behind all that
was painted before: on a slow line it is late for the distance, and later for what was queued up.
"""

from collections import deque

TICK_S = 0.1
SLOW_TICK_S = 0.5
SLOW_S = 0.3
"""An answer that takes longer was held up."""
FAST_S = 0.15
"""Two in three that are quicker than this, and the line is fast again."""
ASK_S = 5.0
"""Between two questions."""
_REMEMBERED = 3


class Pace:
    """Of one terminal. Times are seconds of a monotonic clock."""

    def __init__(self, *, slow: bool = False) -> None:
        """`slow`: the operator said so; it stays."""
        self._told = slow
        self.slow = slow
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)
        self._asked_at: float | None = None
        self._next = 0.0

    @property
    def tick_s(self) -> float:
        return SLOW_TICK_S if self.slow else TICK_S

    def due(self, now: float) -> bool:
        """Whether to ask now. One question at a time: a terminal that never answers is asked once
        only, and counts as fast."""
        return not self._told and self._asked_at is None and now >= self._next

    def asked(self, now: float) -> None:
        self._asked_at = now

    def answered(self, now: float) -> bool:
        """Whether the pace has changed."""
        if self._asked_at is None:
            return False
        took, self._asked_at, self._next = now - self._asked_at, None, now + ASK_S
        self._seen.append(took)
        before = self.slow
        if sum(one > SLOW_S for one in self._seen) >= 2:
            self.slow = True
        elif sum(one < FAST_S for one in self._seen) >= 2:
            self.slow = self._told
        return self.slow != before
