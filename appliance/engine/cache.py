"""Who holds what in the KV cache: sequence ids, cells, prefixes, what finished sequences left, what
was saved of those that gave way; and the moves that llama.cpp is to make before the next step."""

from collections import OrderedDict

from appliance.engine.keeping import Keeping
from appliance.engine.kv import KvPool
from appliance.engine.plan import Clear, Copy, Move, Remove
from appliance.engine.residents import Residents, shares
from appliance.engine.sequence import Sequence, State


class Cache:
    """The account of the cache; every change of it is a move or a chunk of the plan."""

    def __init__(self, n_cells: int, most_running: int, most_finished: int) -> None:
        self.pool = KvPool(n_cells)
        self.keeping = Keeping()
        self.finished: OrderedDict[int, Sequence] = OrderedDict()
        """Those whose cells are kept for reuse, oldest first."""
        self.moves: list[Move] = []
        self.evicted = 0
        """Finished ones that were given up since the last plan."""
        # One id for each that may run or be kept: a newcomer always finds one free.
        self.ids = list(range(most_running + most_finished - 1, -1, -1))
        self._n_ids = len(self.ids)
        self._most_finished = most_finished
        self._residents = Residents()
        self._restoring: list[Sequence] = []

    # -- coming in -------------------------------------------------------------------------------

    def reusable(self, sequence: Sequence) -> tuple[Sequence | None, int, int]:
        """As `Residents.reusable`; what was saved of the sequence is better than any prefix."""
        if sequence.saved is not None and sequence.saved.data is not None:
            return None, 0, 0
        return self._residents.reusable(sequence)

    def cells_for(self, sequence: Sequence, source: Sequence | None, length: int) -> int:
        """Cells that its prompt and one token need beyond those that running sequences hold, if it
        reuses `length` tokens of `source`."""
        kept = self.pool.unpinned(source.cells[:length]) if source is not None else 0
        return len(sequence.tokens) + 1 - length + kept

    def enter(self, sequence: Sequence, source: Sequence | None, length: int) -> None:
        """It runs from now on, with `length` tokens of `source`."""
        if sequence.request.exclusive:
            self.clear()
        if source is not None and length > 0:
            self._reuse(sequence, source, length)
        else:
            sequence.seq_id = self.ids.pop()
        self._residents.enter(sequence)
        if not self._restore(sequence):
            self._residents.index(sequence, tuple(sequence.tokens))

    def _reuse(self, sequence: Sequence, source: Sequence, length: int) -> None:
        """Moves a finished sequence's cells over where nothing of it is lost, else shares them."""
        whole = source.seq_id in self.finished and length >= source.computed - 1
        if whole:
            del self.finished[source.seq_id]
            self._residents.forget(source)
            sequence.seq_id, sequence.cells = source.seq_id, source.cells
            source.seq_id, source.cells = -1, []
            self.pool.pin(sequence.cells, batch=sequence.batch)
            sequence.computed = len(sequence.cells)
            self.rewind(sequence, length)
            return
        if source.seq_id in self.finished:
            self.finished.move_to_end(source.seq_id)
        sequence.seq_id = self.ids.pop()
        sequence.cells = source.cells[:length]
        self.pool.share(sequence.cells, batch=sequence.batch)
        sequence.computed = length
        self.moves.append(Copy(source.seq_id, sequence.seq_id, length))

    def _restore(self, sequence: Sequence) -> bool:
        """Puts back what was saved of it, if anything. It goes on in the next step, when it is
        known whether that worked."""
        restore = self.keeping.restore(sequence)
        if restore is None:
            return False
        count = restore.state.tokens
        while self.pool.free < count:
            self.evict()
        sequence.cells, sequence.computed = self.pool.take(count, batch=sequence.batch), count
        self.moves.append(restore)
        self._restoring.append(sequence)
        return True

    def settle(self) -> None:
        """The step ran: those whose state could not be put back compute their tokens again."""
        for sequence in self._restoring:
            if sequence.state is not State.PREFILL or sequence.saved is None:
                continue  # it is gone again
            if not self.keeping.settle(sequence):
                self.pool.release(sequence.cells, batch=sequence.batch)
                sequence.cells, sequence.computed = [], 0
                self.moves.append(Remove(sequence.seq_id))
        self._restoring.clear()

    # -- being there -----------------------------------------------------------------------------

    def computed(self, sequence: Sequence) -> None:
        """All of its prompt is in the cache, for others to share."""
        self._residents.index(sequence, tuple(sequence.tokens[: sequence.computed]))

    def rewind(self, sequence: Sequence, length: int) -> None:
        """Keeps only the first `length` computed tokens."""
        if length < sequence.computed:
            self.pool.release(sequence.cells[length:], batch=sequence.batch)
            del sequence.cells[length:]
            sequence.computed = length
            self.moves.append(Remove(sequence.seq_id, length))

    # -- going out -------------------------------------------------------------------------------

    def retire(self, sequence: Sequence) -> None:
        """It has ended. Its cells stay for reuse if it allows that."""
        keep = shares(sequence) and self._most_finished > 0 and sequence.saved is None
        self.keeping.drop(sequence)
        if not keep or sequence.computed == 0:
            self.drop(sequence)
            return
        self._residents.index(sequence, tuple(sequence.tokens[: sequence.computed]))
        self.pool.unpin(sequence.cells, batch=sequence.batch)
        self.finished[sequence.seq_id] = sequence
        while len(self.finished) > self._most_finished:
            self.evict()

    def preempt(self, sequence: Sequence) -> None:
        """It gives up its cells; its state is kept in memory where that pays."""
        save = self.keeping.save(sequence)
        if save is not None:
            self.moves.append(save)
        self.drop(sequence)

    def evict(self) -> None:
        """Gives up what the oldest of the finished ones left."""
        _, oldest = self.finished.popitem(last=False)
        self.drop(oldest, pinned=False)
        self.evicted += 1

    def clear(self) -> None:
        """Empties the cache while nothing runs, so that llama.cpp places cells as at its start."""
        while self.finished:
            self.evict()
        self.moves.append(Clear())

    def drop(self, sequence: Sequence, *, pinned: bool = True) -> None:
        """The sequence leaves the cache: cells, id and place in the tree."""
        self._residents.leave(sequence)
        self.pool.release(sequence.cells, pinned=pinned, batch=sequence.batch)
        sequence.cells = []
        self.moves.append(Remove(sequence.seq_id))
        self.ids.append(sequence.seq_id)
        sequence.seq_id = -1
        sequence.computed = 0

    def check(self, running: list[Sequence]) -> None:
        """Raises AssertionError unless every cell and every sequence id is accounted for."""
        holders = [*running, *self.finished.values()]
        self.pool.check(
            [sequence.cells for sequence in running],
            [sequence.cells for sequence in self.finished.values()],
            [sequence.cells for sequence in running if sequence.batch],
        )
        ids = [sequence.seq_id for sequence in holders]
        assert sorted(ids + self.ids) == list(range(self._n_ids)), "an id is lost or held twice"
        for sequence in holders:
            assert len(sequence.cells) == sequence.computed, "cells and computed tokens differ"
