"""How much there was within the last minute. Pure: `now` is an argument."""

from collections import deque

TICK_S = 0.1
"""What happens within one tick leaves the window together; amounts stay exact."""
TICKS = 600


class Window:
    """Amounts of the last 60 s of a monotonic clock."""

    __slots__ = ("_entries", "_total")

    def __init__(self) -> None:
        self._entries: deque[list[int]] = deque()
        """[tick, amount], oldest first."""
        self._total = 0

    def used(self, now: float) -> int:
        """What is in the window."""
        entries, oldest = self._entries, int(now / TICK_S) - TICKS
        while entries and entries[0][0] <= oldest:
            self._total -= entries.popleft()[1]
        return self._total

    def add(self, amount: int, now: float) -> int:
        """Counts `amount`; returns the tick it is counted under, for `take_back`."""
        tick = int(now / TICK_S)
        if not self._entries or self._entries[-1][0] < tick:
            self._entries.append([tick, 0])
        self._entries[-1][1] += amount
        self._total += amount
        return self._entries[-1][0]

    def take_back(self, amount: int, tick: int) -> None:
        """Undoes an `add`, unless it has left the window since."""
        for entry in reversed(self._entries):
            if entry[0] == tick:
                entry[1] -= amount
                self._total -= amount
                return

    def wait(self, amount: int, now: float) -> float:
        """Seconds until at least `amount` has left, which must not be more than is in it."""
        self.used(now)
        for tick, size in self._entries:
            amount -= size
            if amount <= 0:
                return (tick + TICKS) * TICK_S - now
        return 0.0

    def empty_in(self, now: float) -> float:
        """Seconds until all that is in it has left."""
        if not self.used(now):
            return 0.0
        newest = next(tick for tick, size in reversed(self._entries) if size)
        return (newest + TICKS) * TICK_S - now
