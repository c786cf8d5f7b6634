"""When a request that came now would start. Pure."""

import heapq
from collections.abc import Sequence


def starts_in(running: Sequence[float], ahead: Sequence[float], places: int) -> float:
    """Seconds until one more request starts. `running`: what is left of each that runs; `ahead`:
    what each that waits will take, in its order; `places`: how many may run at a time. Cells and
    the others' pace are left out: an estimate."""
    ends = list(running)
    heapq.heapify(ends)
    now = 0.0
    for takes in ahead:
        now = _place(ends, places, now)
        heapq.heappush(ends, now + takes)
    return _place(ends, places, now)


def _place(ends: list[float], places: int, now: float) -> float:
    """When the next place is free."""
    while len(ends) >= max(1, places):
        now = max(now, heapq.heappop(ends))
    return now
