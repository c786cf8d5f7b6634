"""Notices when the wall clock was set: entries keep the time they were given, and a note says so.

Within one life of the box the wall clock is compared with one that is never set (and that runs on
while the machine sleeps). Across a restart only a step back shows: now is before the last entry.
"""

import time
from collections.abc import Callable

from appliance.ledger.rows import Note

BACK_NS = 2_000_000_000
"""NTP's slewing moves both clocks, so what differs by more than this was set."""
FORWARD_NS = 3_600_000_000_000


def steady_ns() -> int:
    """Since boot, with the time that the machine slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class WallClock:
    """Belongs to the ledger thread."""

    def __init__(
        self, last_wall_ns: int, wall: Callable[[], int], steady: Callable[[], int]
    ) -> None:
        """`last_wall_ns`: of the ledger's last entry, 0 if there is none."""
        self._wall = wall
        self._steady = steady
        self._expected = last_wall_ns
        self._since: int | None = None
        """When, on the steady clock, `_expected` was the time. None: not seen in this life."""

    def check(self) -> tuple[Note | None, Callable[[], None]]:
        """The note to write, if the clock was set, and what to call once that is durable."""
        wall, steady = self._wall(), self._steady()
        expected = self._expected + (steady - self._since if self._since is not None else 0)
        by = wall - expected
        note = None
        if by < -BACK_NS or (by > FORWARD_NS and self._since is not None):
            detail = {"by_ms": by // 1_000_000, "from_wall_ns": expected}
            note = Note(wall_ns=wall, event="clock.stepped", detail=detail)

        def accept() -> None:
            self._expected, self._since = wall, steady

        return note, accept
