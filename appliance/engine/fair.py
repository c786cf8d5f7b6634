"""Nobody's flood holds up another: what each key was served, in cost, decides who is ahead.

The idea of virtual token counters (VTC, OSDI'24). A key is charged what a sequence is expected to
cost when that starts, and the rest when it ends. One that comes anew begins where the least served
of those present in its pool stands: having been away earns nothing.
"""

from collections.abc import Iterable

Key = tuple[bool, str]
"""Pool B or not, and the scope of the request: batch work is not held against a key's chats."""

BAND = 128.0
"""Cost, in tokens, by which a key may be ahead without going after the others: about an answer."""


class Fairness:
    """The counters of all keys that have something waiting or running."""

    def __init__(self) -> None:
        self._served: dict[Key, float] = {}
        self._present: dict[Key, int] = {}

    def arrive(self, key: Key) -> None:
        """One more sequence of this key waits."""
        count = self._present.get(key, 0)
        if count == 0:
            others = (self._served[other] for other in self._present if other[0] == key[0])
            least = min(others, default=0.0)
            self._served[key] = max(self._served.get(key, 0.0), least)
        self._present[key] = count + 1

    def leave(self, key: Key) -> None:
        """One sequence fewer. What a key was served is remembered as long as anybody is here."""
        self._present[key] -= 1
        if self._present[key] == 0:
            del self._present[key]
        if not self._present:
            self._served.clear()

    def charge(self, key: Key, cost: float) -> None:
        """`cost` may be negative: too much was charged before."""
        self._served[key] += cost

    def ahead(self, waiting: Iterable[Key]) -> frozenset[Key]:
        """Those of the waiting keys that go after the others. Pools do not compete here."""
        keys = set(waiting)
        if len(keys) < 2:
            return frozenset()
        least = {
            batch: min((self._served[key] for key in keys if key[0] == batch), default=0.0)
            for batch in (False, True)
        }
        return frozenset(key for key in keys if self._served[key] - least[key[0]] > BAND)
