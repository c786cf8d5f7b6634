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

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from appliance.engine.drafts import Drafter, Lookup
from appliance.engine.kv import KvPool
from appliance.engine.messages import Submit
from appliance.engine.plan import Chunk, Clear, Copy, Move, Plan, Remove
from appliance.engine.prefix import PrefixTree
from appliance.engine.sequence import Sequence, State

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


class Scheduler:
    """Owns the queue, the running sequences, the cells and the prefix trees."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = KvPool(limits.n_cells)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.cached: OrderedDict[int, Sequence] = OrderedDict()
        """Finished sequences whose cells are kept, oldest first."""
        self.paused = False
        self.drafter = Drafter(limits.draft_tokens)
        self._lookups: dict[int, Lookup] = {}
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
        self._lookups.pop(sequence.seq_id, None)
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
        started: list[Sequence] = []
        chunks = self._decode_chunks()
        room = self._prefill_room(chunks)
        for sequence in self._prefilling():
            room = self._prefill_chunk(sequence, room, chunks)
        while room > 0 and not self.paused:
            newcomer = self._start_next(now)
            if newcomer is None:
                break
            started.append(newcomer)
            room = self._prefill_chunk(newcomer, room, chunks)
        self._note_company(chunks)
        moves, self._moves = tuple(self._moves), []
        preempted, self._preempted = self._preempted, 0
        evicted, self._evicted = self._evicted, 0
        return Plan(moves, tuple(chunks), tuple(started), preempted, evicted)

    def _decode_chunks(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        decoding = sorted(self._in(State.DECODE), key=_queue_order)
        for sequence in decoding:
            if sequence.state is State.DECODE and self._make_room(1, sequence):
                sequence.cells += self.pool.take(1)
                chunks.append(Chunk(sequence, sequence.computed, (sequence.tokens[-1],), 1))
        chunks = [chunk for chunk in chunks if chunk.sequence.state is State.DECODE]
        return self._with_drafts(chunks) if self.limits.draft_tokens else chunks

    def _with_drafts(self, chunks: list[Chunk]) -> list[Chunk]:
        """Adds proposals while cells and the step have room; they never displace anything, and
        leave half of the step to prompts that wait for it."""
        total, expected = len(chunks), float(len(chunks))
        most = self.limits.step_tokens
        if self.waiting or any(self._in(State.PREFILL)):
            most //= 2
        drafted = []
        for chunk in chunks:
            draft, gain = self._draft_for(chunk.sequence, total, expected, most)
            total, expected = total + len(draft), expected + gain
            drafted.append(
                replace(chunk, tokens=chunk.tokens + draft, outputs=1 + len(draft), draft=draft)
            )
        return drafted

    def _draft_for(
        self, sequence: Sequence, base: int, expected: float, most: int
    ) -> tuple[tuple[int, ...], float]:
        request = sequence.request
        left = request.max_tokens - sequence.generated - 1
        limit = min(
            0 if request.exclusive or request.forced else self.limits.draft_tokens,
            left,
            self.pool.free,
            most - base,
            self.limits.n_cells - len(sequence.tokens),
        )
        if limit <= 0:
            return (), 0.0
        lookup = self._lookups.setdefault(sequence.seq_id, Lookup(sequence.tokens))
        proposal = lookup.propose(limit)
        count = self.drafter.worth(lookup.run, len(proposal), base, expected)
        sequence.cells += self.pool.take(count)
        sequence.exclusive = sequence.exclusive and count == 0
        gain, chance = 0.0, 1.0
        for i in range(count):
            chance *= self.drafter.chance(lookup.run + i)
            gain += chance
        return tuple(proposal[:count]), gain

    def _prefill_room(self, chunks: list[Chunk]) -> int:
        used = sum(len(chunk.tokens) for chunk in chunks)
        room = self.limits.step_tokens - used
        return min(room, self.limits.prefill_tokens) if chunks else room

    def _prefill_chunk(self, sequence: Sequence, room: int, chunks: list[Chunk]) -> int:
        """Adds the next piece of a prompt; returns the room that is left."""
        count = min(room, sequence.pending)
        if count <= 0 or sequence.state is not State.PREFILL:
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
        if sequence.state is State.PREFILL and sequence.pending == 0:
            sequence.state = State.DECODE
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
        lookup = self._lookups.get(sequence.seq_id)
        if lookup is None:
            return
        self.drafter.observe_draft(lookup.run, proposed, accepted)
        lookup.run = lookup.run + accepted if accepted == proposed else 0

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
        sequence.state = State.PREFILL
        self._residents[sequence.seq_id] = sequence
        sequence.place = self._places.pop()
        self.running.append(sequence)
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
            youngest = max(self.running, key=_queue_order)
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
        self.waiting.append(sequence)
        self.waiting.sort(key=_queue_order)
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

    def _in(self, state: State) -> Iterator[Sequence]:
        return (sequence for sequence in self.running if sequence.state is state)

    def _prefilling(self) -> list[Sequence]:
        return sorted(self._in(State.PREFILL), key=_queue_order)

    def _note_company(self, chunks: Iterable[Chunk]) -> None:
        """Remembers with how many others each sequence shared a step, a fact for replays."""
        sequences = [chunk.sequence for chunk in chunks]
        for sequence in sequences:
            sequence.parallel = max(sequence.parallel, len(sequences))
            sequence.exclusive = sequence.exclusive and len(self.running) == 1

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
