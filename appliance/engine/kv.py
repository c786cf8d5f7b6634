"""The account of KV cells: which are held, which are pinned by running sequences, what is free.

llama.cpp's unified cache hands out cells itself and shares them when a sequence is copied, but it
tells nobody how many are left. This pool mirrors it one to one: a cell is taken when a token is
computed, shared when a prefix is copied and free again when its last holder lets go. A cell held
by a running sequence is pinned; the others that are held belong to finished sequences and can be
had back. A pinned cell is pool B's if none but sequences of pool B pin it, else pool A's: A's, B's
and those that are not pinned always make up the whole. So the scheduler knows before it decodes
that the tokens of a step fit, and a test can check the sum.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence


class KvPool:
    """`total` cells, each free or held by one or more sequences."""

    __slots__ = ("_batch_pins", "_free", "_holders", "_pins", "batch", "pinned", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.pinned = 0
        self.batch = 0
        """Those of the pinned cells that are pool B's."""
        self._free = list(range(total - 1, -1, -1))
        self._holders = [0] * total
        self._pins = [0] * total
        self._batch_pins = [0] * total

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def take(self, count: int, *, batch: bool = False) -> list[int]:
        """`count` fresh cells, pinned; by a sequence of pool B if `batch`. The caller has checked
        `free`."""
        assert count <= len(self._free), "scheduled more tokens than there are free cells"
        split = len(self._free) - count
        cells = self._free[split:]
        del self._free[split:]
        for cell in cells:
            self._holders[cell] = 1
            self._pins[cell] = 1
        self.pinned += count
        if batch:
            self.batch += count
            for cell in cells:
                self._batch_pins[cell] = 1
        return cells

    def share(self, cells: Iterable[int], *, batch: bool = False) -> None:
        """One more sequence, a running one, holds each of these cells."""
        for cell in cells:
            assert self._holders[cell] > 0, "shared a cell that nobody holds"
            self._holders[cell] += 1
            self._pin(cell, batch)

    def pin(self, cells: Iterable[int], *, batch: bool = False) -> None:
        """The holder of these cells runs again."""
        for cell in cells:
            self._pin(cell, batch)

    def unpin(self, cells: Iterable[int], *, batch: bool = False) -> None:
        """The holder of these cells has finished and keeps them for reuse."""
        for cell in cells:
            self._unpin(cell, batch)

    def move(self, cells: Iterable[int], *, to_batch: bool) -> None:
        """The running holder of these cells goes from one pool to the other."""
        for cell in cells:
            self._pin(cell, to_batch)
            self._unpin(cell, not to_batch)

    def release(self, cells: Iterable[int], *, pinned: bool = True, batch: bool = False) -> None:
        """One sequence lets go of each of these cells; `pinned` tells whether it was running."""
        for cell in cells:
            if pinned:
                self._unpin(cell, batch)
            self._holders[cell] -= 1
            assert self._holders[cell] >= 0, "released a cell that nobody holds"
            if self._holders[cell] == 0:
                self._free.append(cell)

    def unpinned(self, cells: Iterable[int]) -> int:
        """How many of these no running sequence holds."""
        return sum(1 for cell in cells if self._pins[cell] == 0)

    def sole(self, cells: Sequence[int]) -> int:
        """How many cells of a running sequence no other that runs holds. Only prefixes are ever
        shared, so what it shares comes first."""
        pins = self._pins
        if not cells or pins[cells[0]] == 1:
            return len(cells)
        return len(cells) - bisect_left(cells, True, key=lambda cell: pins[cell] == 1)

    def check(
        self,
        running: Iterable[Sequence[int]],
        cached: Iterable[Sequence[int]],
        batch: Iterable[Sequence[int]] = (),
    ) -> None:
        """Raises AssertionError unless these cell lists are exactly what is held and pinned;
        `batch`: those of the running ones that are of pool B."""
        holders, pins, batch_pins = [0] * self.total, [0] * self.total, [0] * self.total
        for cells in running:
            for cell in cells:
                holders[cell] += 1
                pins[cell] += 1
        for cells in batch:
            for cell in cells:
                batch_pins[cell] += 1
        for cells in cached:
            for cell in cells:
                holders[cell] += 1
        assert holders == self._holders, "a cell is held by nobody we know"
        assert pins == self._pins, "a cell is pinned by nobody that runs"
        assert batch_pins == self._batch_pins, "a cell is counted to the wrong pool"
        assert self.pinned == sum(1 for pin in pins if pin)
        assert self.batch == sum(1 for pin, b in zip(pins, batch_pins, strict=True) if pin == b > 0)
        assert sorted(self._free) == [c for c in range(self.total) if holders[c] == 0]

    def _pin(self, cell: int, batch: bool) -> None:
        pins, of_batch = self._pins[cell], self._batch_pins[cell]
        self.pinned += pins == 0
        if batch:
            self.batch += pins == 0
            self._batch_pins[cell] = of_batch + 1
        else:
            self.batch -= pins == of_batch > 0
        self._pins[cell] = pins + 1

    def _unpin(self, cell: int, batch: bool) -> None:
        pins, of_batch = self._pins[cell] - 1, self._batch_pins[cell]
        assert pins >= 0, "unpinned a cell that no running sequence holds"
        self.pinned -= pins == 0
        if batch:
            assert of_batch > 0, "unpinned a cell that no sequence of pool B holds"
            self.batch -= pins == 0
            self._batch_pins[cell] = of_batch - 1
        else:
            self.batch += pins == of_batch > 0
        self._pins[cell] = pins
