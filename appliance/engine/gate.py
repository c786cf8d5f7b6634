"""Whether a place, cells and its pool are there for one that waits, at the time of one step."""

from bisect import bisect_left
from operator import attrgetter

from appliance.engine.cache import Cache
from appliance.engine.pools import Pools
from appliance.engine.sequence import Sequence
from appliance.engine.turns import Turns


class Gate:
    """Remembers within a step why pool A did not get in, for pool B must not go past it."""

    def __init__(self, places: int, cache: Cache, pools: Pools, turns: Turns) -> None:
        self._places = places
        self._cache = cache
        self._pools = pools
        self._turns = turns
        self._now = 0.0
        self._first_of_b: Sequence | None = None
        self._contended = False
        self.blocked = False
        """The first of pool A cannot start whatever B gives up; nothing of B is to start either."""
        self.passed: list[tuple[Sequence, Sequence | None, int]] = []
        """Those in front of the one that is looked at which could start but for their LoRA set,
        each with what it reuses: what they need is theirs."""

    def open(self, now: float, waiting: list[Sequence]) -> None:
        """Another step; those of pool B wait behind those of A."""
        self._now = now
        at = bisect_left(waiting, True, key=attrgetter("batch"))
        self._first_of_b = waiting[at] if at < len(waiting) else None
        self._contended = self.blocked = False

    def takes(
        self,
        sequence: Sequence,
        source: Sequence | None,
        length: int,
        running: list[Sequence],
    ) -> bool:
        """Whether it can start, with `length` tokens of `source`, without displacing any but those
        of pool B that are in the way of A."""
        passed = [sequence for sequence, _, _ in self.passed]
        running = [*running, *passed] if passed else running
        batch, taken = sequence.batch, len(running)
        if batch and taken >= self._turns.places(self._places, self._now):
            return False
        if taken >= self._places and not running[-1].batch:
            return False
        cells = self._cache.cells_for(sequence, source, length)
        aside = sum([self._cache.cells_for(*each) for each in self.passed])
        if cells + aside > self._available + (0 if batch else self._pools.borrowed):
            self.blocked = True
            return False
        if batch:
            return self._pools.b_takes(sequence, cells, running, contended=self._contended)
        self._contended = not self._pools.a_takes(sequence, cells, running, self._first_of_b)
        return not self._contended

    def needs_more(
        self,
        sequence: Sequence,
        source: Sequence | None,
        length: int,
        running: list[Sequence],
    ) -> bool:
        """Whether one of pool B has to give up its place or its cells before this one starts."""
        cells = self._cache.cells_for(sequence, source, length)
        return len(running) >= self._places or cells > self._available

    @property
    def _available(self) -> int:
        """Cells that no running sequence holds."""
        return self._cache.pool.total - self._cache.pool.pinned
