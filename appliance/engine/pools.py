"""Two pools over the one KV cache: A for requests that somebody waits for, B for batch work.

Rules:
1. Cells of A + cells of B + those that no running sequence holds = all cells, always (`KvPool`).
2. Of B's `b_cells` as many are kept for it as its running sequences and the first that waits are
   expected to need. So without any request of B, A has everything.
3. B may use what A is not expected to need; that is borrowed, and A takes it back when it needs it.
4. A sequence is let in if what its pool is expected to hold at most still fits the pool.
5. A pool in which nothing runs lets in its first whatever is expected of it: none waits for ever.
6. Where states are kept, giving way costs next to nothing, and cells that lie idle cost most where
   few run: fewer than `HANDFUL` of pool A are joined by one more while it is less than `FILL` full.
"""

from collections.abc import Iterable
from math import isfinite

from msgspec.structs import replace

from appliance.engine.commands import Steer
from appliance.engine.expectations import Expectations
from appliance.engine.keeping import Keeping
from appliance.engine.kv import KvPool
from appliance.engine.peak import predicted_peak
from appliance.engine.sequence import Sequence

A_LEAST = 128
"""Cells that pool A always has; half of a cache that is smaller than twice that."""
FILL = 0.8
"""Share of a pool up to which `admission = "fill"` starts requests."""
HANDFUL = 5
"""Where four run, a fifth makes for an eighth more tokens in the same time; later ones for less."""

_DEFAULT = Steer()

Growing = tuple[int, int]
"""Tokens that a sequence still generates, and the cells that it alone holds."""


class Pools:
    """Decides who is let in. Until it is steered, whoever's prompt finds cells is."""

    def __init__(self, kv: KvPool, expectations: Expectations, keeping: Keeping) -> None:
        self._kv = kv
        self._expectations = expectations
        self._keeping = keeping
        self._admission = ""
        self.b_cells = 0
        """Pool B's own."""

    def steer(self, steer: Steer) -> None:
        """`steer` is sane (see below)."""
        self._admission = steer.admission
        total = self._kv.total
        self.b_cells = min(steer.b_cells, total - min(A_LEAST, total // 2))

    @property
    def borrowed(self) -> int:
        """Cells that B holds beyond its own."""
        return max(self._kv.batch - self.b_cells, 0)

    def a_takes(
        self, newcomer: Sequence, cells: int, running: list[Sequence], first_of_b: Sequence | None
    ) -> bool:
        """Whether pool A takes this one, whose prompt and first token add `cells` cells.
        `first_of_b`: of those of B that wait."""
        if not self._admission:
            return True
        kept = min(self.b_cells, self._wanted_by_b(running, first_of_b))
        return self._admits(newcomer, cells, running, self._kv.total - kept)

    def b_takes(
        self, newcomer: Sequence, cells: int, running: list[Sequence], *, contended: bool
    ) -> bool:
        """The same of pool B. `contended`: one of A waits for its pool to take it."""
        if not self._admission:
            return True
        capacity = self.b_cells
        if not contended:
            wanted = max(self.peak(running, batch=False), self.held(batch=False))
            capacity = max(capacity, self._kv.total - wanted)
        return self._admits(newcomer, cells, running, capacity)

    def peak(self, running: Iterable[Sequence], *, batch: bool) -> int:
        """The most cells that these, which are all that run of one pool, should come to hold."""
        return self._peak([s for s in running if s.batch is batch], [], batch)

    def held(self, *, batch: bool) -> int:
        """Cells of that pool, of which it is said here who holds them."""
        return self._kv.batch if batch else self._kv.pinned - self._kv.batch

    def overflown(self, loser: Sequence, running: list[Sequence]) -> bool:
        """Whether it is the rule's fault that `loser` has to give way: all were let in by it, and
        this is not pool B giving back what it borrowed."""
        lent = loser.batch and self.borrowed > 0
        return self._admission == "peak" and not lent and not any(s.bold for s in running)

    def _admits(
        self, newcomer: Sequence, cells: int, running: list[Sequence], capacity: int
    ) -> bool:
        mine = [s for s in running if s.batch is newcomer.batch]
        newcomer.bold = self._needed(newcomer, cells, mine) > capacity
        return not newcomer.bold or not mine or self._joins(newcomer, mine, capacity)

    def _joins(self, newcomer: Sequence, mine: list[Sequence], capacity: int) -> bool:
        """Whether it is worth the risk that one of them has to give way."""
        if newcomer.batch or self._admission != "peak" or len(mine) >= HANDFUL:
            return False
        return self._keeping.cheap and self.held(batch=False) < FILL * capacity

    def _wanted_by_b(self, running: list[Sequence], first: Sequence | None) -> int:
        mine = [s for s in running if s.batch]
        if first is None:
            return self._peak(mine, [], True) if mine else 0
        growing = (self._expectations.remaining(first), len(first.tokens))
        return self._peak(mine, [growing], True)

    def _needed(self, newcomer: Sequence, cells: int, mine: list[Sequence]) -> int:
        if self._admission == "reserve":
            return sum(self._longest(s) for s in [*mine, newcomer])
        if self._admission == "fill":
            return int(self.held(batch=newcomer.batch) / FILL) + 1
        growing = [(self._expectations.remaining(newcomer), cells - 2)]
        return self._peak(mine, growing, newcomer.batch)

    def _longest(self, sequence: Sequence) -> int:
        return min(sequence.n_prompt + sequence.request.max_tokens, self._kv.total)

    def _peak(self, mine: list[Sequence], growing: list[Growing], batch: bool) -> int:
        kv, remaining = self._kv, self._expectations.remaining
        shared = self.held(batch=batch)
        for sequence in mine:
            own = kv.sole(sequence.cells)
            shared -= own
            # The last token of all is never computed, nor is that which was sampled last.
            prompt = max(len(sequence.tokens) - 1 - len(sequence.cells), 0)
            growing.append((remaining(sequence), own + prompt))
        return predicted_peak(growing, shared)


def sane(steer: Steer) -> Steer:
    """The same with numbers that can be counted with, whatever the daemon worked out."""
    return replace(
        steer,
        tau=min(max(_or(steer.tau, _DEFAULT.tau), 0.0), 0.999),
        b_cells=max(steer.b_cells, 0),
        ageing=min(max(_or(steer.ageing, _DEFAULT.ageing), 0.0), 100.0),
        max_wait_s=max(_or(steer.max_wait_s, _DEFAULT.max_wait_s), 0.0),
    )


def _or(value: float, default: float) -> float:
    return value if isfinite(value) else default
