"""Who computes what in the next step. Pure: no clock, no threads, no llama.cpp.

Rules, in this order:
1. Every decoding sequence gets its one token (and drafts, where they should pay).
2. Prompts fill what is left of the step, in order of arrival, at most `prefill_tokens` while
   others decode, so that a long prompt does not stall them.
3. A waiting sequence starts when a place and the cells of its prompt are there. It reuses the
   longest prefix that a resident sequence of its scope holds; if a sequence that is just being
   prefilled will hold more of it, it waits for that instead of computing the same tokens twice.
4. Cells run out: finished sequences kept for reuse go first, oldest first; then the sequence that
   arrived last gives up its cells and computes them again later. None is ever cut short.
5. An exclusive sequence starts in its turn once nothing runs, on an emptied cache; until it has
   ended nothing else starts. While it waits for that, nothing behind it overtakes it.
"""

from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass

from appliance.engine.drafting import Drafting
from appliance.engine.drafts import Drafter
from appliance.engine.kv import KvPool
from appliance.engine.messages import Submit
from appliance.engine.plan import Chunk, Clear, Copy, Move, Plan, Remove
from appliance.engine.prefix import PrefixTree
from appliance.engine.sequence import Sequence, State

_PREFILL, _DECODE = State.PREFILL, State.DECODE

WORTH_WAITING = 32
"""Tokens a running prefill must still add to a shared prefix for a newcomer to wait for it."""


@dataclass(frozen=True, slots=True)
class Limits:
    n_cells: int
    max_sequences: int
    cached_sequences: int
    step_tokens: int
    prefill_tokens: int
    draft_tokens: int = 0


SLOWED = 4
"""What a hot machine's steps are divided by."""


class Scheduler:
    """Owns the queue, the running sequences, the cells and the prefix trees."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = KvPool(limits.n_cells)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        """In the order of the queue, like `waiting`."""
        self.cached: OrderedDict[int, Sequence] = OrderedDict()
        """Finished sequences whose cells are kept, oldest first."""
        self.paused = False
        self.slowed = False
        """Computes a quarter of the tokens per step, and drafts nothing."""
        self.drafter = Drafter(limits.draft_tokens)
        self._drafting = Drafting(self.drafter, self.pool)
        self._trees: dict[str, PrefixTree] = {}
        self._residents: dict[int, Sequence] = {}
        # One for each that may run or be kept: a newcomer always finds one free.
        self._ids = list(range(limits.max_sequences + limits.cached_sequences - 1, -1, -1))
        self._places = list(range(limits.max_sequences - 1, -1, -1))
        self._order = 0
        self._moves: list[Move] = []
        self._preempted = 0
        self._evicted = 0

    # -- the queue -------------------------------------------------------------------------------

    def add(self, request: Submit, now: float) -> list[Sequence]:
        """Queues the choices of a request, in order of priority, then arrival."""
        made = []
        for choice in range(request.n):
            sequence = Sequence(request, choice, self._order, list(request.prompt))
            sequence.times.arrived = now
            self._order += 1
            made.append(sequence)
        self.waiting.extend(made)
        self.waiting.sort(key=_queue_order)
        return made

    def finish(self, sequence: Sequence) -> None:
        """Takes a sequence out, in whatever state. Its cells stay for reuse if it allows that."""
        if sequence.state is State.WAITING:
            self.waiting.remove(sequence)
        elif sequence in self.running:
            self._leave(sequence)
            self._retire(sequence)
        sequence.state = State.FINISHED

    def _leave(self, sequence: Sequence) -> None:
        """It no longer runs; what it holds in the cache is for the caller to settle."""
        self.running.remove(sequence)
        self._drafting.forget(sequence)
        self._places.append(sequence.place)
        sequence.place = -1

    def _retire(self, sequence: Sequence) -> None:
        keep = _shares(sequence) and self.limits.cached_sequences > 0
        if not keep or sequence.computed == 0:
            self._drop(sequence)
            return
        self._index(sequence, tuple(sequence.tokens[: sequence.computed]))
        self.pool.unpin(sequence.cells)
        self.cached[sequence.seq_id] = sequence
        while len(self.cached) > self.limits.cached_sequences:
            self._evict()

    # -- the step --------------------------------------------------------------------------------

    def schedule(self, now: float) -> Plan:
        """Plans the next step; an empty plan when there is nothing to do."""
        chunks = self._decode_chunks()
        started: list[Sequence] = []
        if self.waiting or len(chunks) < len(self.running):
            self._fill_up(chunks, started, now)
        self._note_company(chunks)
        return self._plan(chunks, started)

    def _plan(self, chunks: list[Chunk], started: list[Sequence]) -> Plan:
        moves, preempted, evicted = tuple(self._moves), self._preempted, self._evicted
        if moves:  # nothing is preempted or evicted without one
            self._moves.clear()
            self._preempted = self._evicted = 0
        return Plan(moves, tuple(chunks), tuple(started), preempted, evicted)

    def _decode_chunks(self) -> list[Chunk]:
        decoding = self._decoding()
        chunks = []
        for sequence, cell in zip(decoding, self.pool.take(len(decoding)), strict=True):
            sequence.cells.append(cell)
            chunks.append(Chunk(sequence, sequence.computed, (sequence.tokens[-1],), 1))
        if self.limits.draft_tokens and not self.slowed:
            # They never displace anything, and leave half of the step to prompts that wait.
            prompts = self.waiting or len(chunks) < len(self.running)
            self._drafting.add(chunks, self.limits.step_tokens // (2 if prompts else 1))
        return chunks

    def _decoding(self) -> list[Sequence]:
        """Those that get their token in this step; there is a cell for each of them."""
        decoding = [s for s in self.running if s.state is _DECODE]
        if len(decoding) <= self.pool.free:
            return decoding
        kept: list[Sequence] = []
        for sequence in decoding:  # the last of them may give way to the first
            if sequence.state is _DECODE and self._make_room(len(kept) + 1, sequence):
                kept.append(sequence)
        return kept

    def _fill_up(self, chunks: list[Chunk], started: list[Sequence], now: float) -> None:
        """Adds prompts to the step: of those that run, then of those that it starts."""
        room = self._prefill_room(chunks)
        for sequence in [s for s in self.running if s.state is _PREFILL]:
            room = self._prefill_chunk(sequence, room, chunks)
        while room > 0 and not self.paused:
            newcomer = self._start_next(now)
            if newcomer is None:
                break
            started.append(newcomer)
            room = self._prefill_chunk(newcomer, room, chunks)

    def _prefill_room(self, chunks: list[Chunk]) -> int:
        used = sum(len(chunk.tokens) for chunk in chunks)
        share = SLOWED if self.slowed else 1
        room = self.limits.step_tokens // share - used
        return min(room, self.limits.prefill_tokens // share) if chunks else room

    def _prefill_chunk(self, sequence: Sequence, room: int, chunks: list[Chunk]) -> int:
        """Adds the next piece of a prompt; returns the room that is left."""
        count = min(room, sequence.pending)
        if count <= 0 or sequence.state is not _PREFILL:
            return room
        stays = self._make_room(count, sequence)
        chunks[:] = [chunk for chunk in chunks if chunk.sequence.seq_id >= 0]
        if not stays:
            return room
        start = sequence.computed
        sequence.cells += self.pool.take(count)
        tokens = tuple(sequence.tokens[start : start + count])
        chunks.append(Chunk(sequence, start, tokens, int(count == sequence.pending)))
        return room - count

    def computed(self, chunk: Chunk) -> None:
        """The step ran: these tokens are in the cache."""
        sequence = chunk.sequence
        sequence.computed = chunk.start + len(chunk.tokens)
        if sequence.state is _PREFILL and sequence.pending == 0:
            sequence.state = _DECODE
            if _shares(sequence):
                self._index(sequence, tuple(sequence.tokens[: sequence.computed]))

    def rewind(self, sequence: Sequence, length: int) -> None:
        """Keeps only the first `length` computed tokens (the rest was a draft that failed)."""
        if length < sequence.computed:
            self.pool.release(sequence.cells[length:])
            del sequence.cells[length:]
            sequence.computed = length
            self._moves.append(Remove(sequence.seq_id, length))

    def observe_draft(self, sequence: Sequence, proposed: int, accepted: int) -> None:
        """How a proposal fared; feeds what is proposed next."""
        self._drafting.observe(sequence, proposed, accepted)

    # -- starting --------------------------------------------------------------------------------

    def _start_next(self, now: float) -> Sequence | None:
        if len(self.running) >= self.limits.max_sequences:
            return None
        if any(sequence.request.exclusive for sequence in self.running):
            return None
        for sequence in self.waiting:
            if sequence.request.exclusive and self.running:
                return None
            source, length, promised = self._reusable(sequence)
            if promised - length >= WORTH_WAITING:
                continue
            if not self._fits(sequence, source, length):
                return None
            self.waiting.remove(sequence)
            self._start(sequence, source, length, now)
            return sequence
        return None

    def _reusable(self, sequence: Sequence) -> tuple[Sequence | None, int, int]:
        """The best resident to copy from, how much it holds now, and how much it will hold once
        its own prompt is computed."""
        tree = self._trees.get(sequence.request.scope)
        if tree is None or not _shares(sequence):
            return None, 0, 0
        holders, matched = tree.match(tuple(sequence.tokens))
        most = min(matched, len(sequence.tokens) - 1)
        residents = [self._residents[holder] for holder in holders]
        if not residents or most == 0:
            return None, 0, 0
        best = max(residents, key=lambda s: (min(s.computed, most), s.state is State.FINISHED))
        return best, min(best.computed, most), most

    def _fits(self, sequence: Sequence, source: Sequence | None, length: int) -> bool:
        """Whether its prompt (and one token) finds cells without displacing a running sequence."""
        need = len(sequence.tokens) + 1 - length
        kept = self.pool.unpinned(source.cells[:length]) if source is not None else 0
        return need + kept <= self.pool.total - self.pool.pinned

    def _start(self, sequence: Sequence, source: Sequence | None, length: int, now: float) -> None:
        if sequence.request.exclusive:
            self._clear()
        if source is not None and length > 0:
            self._reuse(sequence, source, length)
        else:
            sequence.seq_id = self._ids.pop()
        if sequence.times.started == 0.0:
            sequence.times.started = now
            sequence.cached_tokens = length
            sequence.exclusive = self.pool.used == 0
        sequence.state = _PREFILL
        self._residents[sequence.seq_id] = sequence
        sequence.place = self._places.pop()
        insort(self.running, sequence, key=_queue_order)
        if _shares(sequence):
            self._index(sequence, tuple(sequence.tokens))

    def _reuse(self, sequence: Sequence, source: Sequence, length: int) -> None:
        """Moves a finished sequence's cells over where nothing of it is lost, else shares them."""
        whole = source.seq_id in self.cached and length >= source.computed - 1
        if whole:
            del self.cached[source.seq_id]
            self._unindex(source)
            sequence.seq_id, sequence.cells = source.seq_id, source.cells
            source.seq_id, source.cells = -1, []
            self.pool.pin(sequence.cells)
            sequence.computed = len(sequence.cells)
            self.rewind(sequence, length)
            return
        if source.seq_id in self.cached:
            self.cached.move_to_end(source.seq_id)
        sequence.seq_id = self._ids.pop()
        sequence.cells = source.cells[:length]
        self.pool.share(sequence.cells)
        sequence.computed = length
        self._moves.append(Copy(source.seq_id, sequence.seq_id, length))

    # -- making room -----------------------------------------------------------------------------

    def _make_room(self, count: int, wanting: Sequence) -> bool:
        """Frees cells until `count` are there; false if `wanting` itself had to give way."""
        while self.pool.free < count:
            if self.cached:
                self._evict()
                continue
            youngest = self.running[-1]
            self._preempt(youngest)
            if youngest is wanting:
                return False
        return True

    def _evict(self) -> None:
        _, oldest = self.cached.popitem(last=False)
        self._drop(oldest, pinned=False)
        self._evicted += 1

    def _clear(self) -> None:
        """Empties the cache while nothing runs, so that llama.cpp places cells as at its start."""
        while self.cached:
            self._evict()
        self._moves.append(Clear())

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the queue, tokens kept, cells given up."""
        self._leave(sequence)
        self._drop(sequence)
        sequence.state = State.WAITING
        insort(self.waiting, sequence, key=_queue_order)
        self._preempted += 1

    def _drop(self, sequence: Sequence, *, pinned: bool = True) -> None:
        """The sequence leaves the cache: cells, id and place in the tree."""
        self._unindex(sequence)
        self.pool.release(sequence.cells, pinned=pinned)
        sequence.cells = []
        self._moves.append(Remove(sequence.seq_id))
        self._residents.pop(sequence.seq_id, None)
        self._ids.append(sequence.seq_id)
        sequence.seq_id = -1
        sequence.computed = 0

    # -- the trees -------------------------------------------------------------------------------

    def _index(self, sequence: Sequence, tokens: tuple[int, ...]) -> None:
        self._unindex(sequence)
        tree = self._trees.setdefault(sequence.request.scope, PrefixTree())
        tree.insert(sequence.seq_id, tokens)
        sequence.indexed = tokens

    def _unindex(self, sequence: Sequence) -> None:
        if sequence.indexed:
            self._trees[sequence.request.scope].remove(sequence.seq_id, sequence.indexed)
            sequence.indexed = ()

    # -- looking ---------------------------------------------------------------------------------

    def _note_company(self, chunks: list[Chunk]) -> None:
        """Remembers with how many others each sequence shared a step, a fact for replays."""
        company, alone = len(chunks), len(self.running) == 1
        for chunk in chunks:
            sequence = chunk.sequence
            if sequence.parallel < company:
                sequence.parallel = company
            if not alone:
                sequence.exclusive = False

    def check(self) -> None:
        """Raises AssertionError unless every cell and every sequence id is accounted for."""
        holders = [*self.running, *self.cached.values()]
        self.pool.check([s.cells for s in self.running], [s.cells for s in self.cached.values()])
        ids = [sequence.seq_id for sequence in holders]
        assert sorted(ids + self._ids) == list(
            range(self.limits.max_sequences + self.limits.cached_sequences)
        ), "a sequence id is lost or held twice"
        for sequence in holders:
            assert len(sequence.cells) == sequence.computed, "cells and computed tokens differ"
        assert all(s.seq_id == -1 and not s.cells for s in self.waiting)


def _queue_order(sequence: Sequence) -> tuple[int, int]:
    return sequence.request.priority, sequence.order


def _shares(sequence: Sequence) -> bool:
    """Whether it may reuse cells of others and leave its own for them."""
    return sequence.request.cache_prompt and not sequence.request.exclusive
