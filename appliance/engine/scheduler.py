"""Who computes what in the next step. Pure: no clock, no threads, no llama.cpp.

Rules, in this order:
1. Every decoding sequence of pool A gets its one token (and drafts, where they should pay).
2. Prompts of A fill what is left of the step, in the order of the queue, at most `prefill_tokens`
   while others decode, so that a long prompt does not stall them.
3. Sequences of pool B do the same with what is left, if it is their turn (`turns`).
4. A waiting sequence starts, in its order (`order`), when a place and the cells of its prompt are
   there, and its pool takes it (`pools`); for one of A, B gives up places and borrowed cells. It
   reuses the longest prefix that a resident sequence of its scope holds; if one that is just being
   prefilled will hold more of it, it waits for that instead of computing the same twice (one of A
   not for one of B).
5. Cells run out: finished sequences kept for reuse go first, oldest first; then a running one gives
   up its cells (`pressure`) and has them restored (`keeping`) or computed again later. None is ever
   cut short.
6. An exclusive sequence starts in its turn once nothing runs, on an emptied cache; until it has
   ended nothing else starts. While it waits for that, nothing behind it overtakes it.
7. All of a step have the same LoRA adapters (`sets`); the rules above are of those.
"""

from bisect import insort

from appliance.engine.cache import Cache
from appliance.engine.commands import Expect, Pool, Steer, Submit
from appliance.engine.drafting import Drafting
from appliance.engine.drafts import Drafter
from appliance.engine.expectations import Expectations
from appliance.engine.gate import Gate
from appliance.engine.limits import Limits
from appliance.engine.order import Order, rank_of
from appliance.engine.plan import Chunk, Plan, note_company
from appliance.engine.pools import Pools, sane
from appliance.engine.pressure import victim
from appliance.engine.sequence import Sequence, State
from appliance.engine.sets import Sets
from appliance.engine.turns import Turns

_PREFILL, _DECODE = State.PREFILL, State.DECODE

WORTH_WAITING = 32
"""Tokens a running prefill must still add to a shared prefix for a newcomer to wait for it."""


SLOWED = 4
"""What a hot machine's steps are divided by."""


class Scheduler:
    """Owns the queue, the running sequences, the cells and the prefix trees."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.cache = Cache(limits.n_cells, limits.max_sequences, limits.cached_sequences)
        self.pool = self.cache.pool
        self.cached = self.cache.finished
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        """Pool A first, then by priority, then in order of arrival."""
        self.paused = False
        self.slowed = False
        """Computes a quarter of the tokens per step, and drafts nothing."""
        self.drafter = Drafter(limits.draft_tokens)
        self.expectations = Expectations()
        self.pools = Pools(self.pool, self.expectations, self.cache.keeping)
        self.order = Order(self.expectations)
        self.sets = Sets()
        self.overflows = 0
        """Times that cells ran out although all that ran had been let in by predicted peak."""
        self.batch_evictions = 0
        self._turns = Turns(self.drafter)
        self._gate = Gate(limits.max_sequences, self.cache, self.pools, self._turns)
        self._drafting = Drafting(self.drafter, self.pool)
        self._places = list(range(limits.max_sequences - 1, -1, -1))
        self._now = 0.0
        """Of the step that is planned."""
        self._arrivals = 0
        self._preempted = 0

    # -- the queue -------------------------------------------------------------------------------

    def add(self, request: Submit, now: float) -> list[Sequence]:
        """Queues the choices of a request."""
        made = []
        for choice in range(request.n):
            sequence = Sequence(request, choice, self._arrivals, list(request.prompt))
            sequence.times.arrived = now
            self._arrivals += 1
            self.order.arrives(sequence)
            self.sets.arrives(sequence)
            self._queue(sequence, now)
            made.append(sequence)
        if request.pool == "a":
            self._turns.seen(now)
        return made

    def steer(self, steer: Steer) -> None:
        """Other rules from now on, for those that wait as for those that come."""
        steer = sane(steer)
        self.expectations.steer(steer)
        self.pools.steer(steer)
        self.order.steer(steer, self.waiting)

    def expect(self, sequence: Sequence, expect: Expect, now: float) -> None:
        """What is known of the length of this sequence now."""
        sequence.told, sequence.reach = expect, (-1, -1, 0)
        if sequence.state is State.WAITING:
            self.waiting.remove(sequence)
            self._queue(sequence, now)

    def reprioritise(self, sequence: Sequence, priority: int, pool: Pool, now: float) -> None:
        """Moves it, whether it waits or runs, to another priority and pool."""
        before = sequence.batch
        self.order.moves(sequence, priority, pool)
        if sequence.state is State.WAITING:
            self.waiting.remove(sequence)
            self._queue(sequence, now)
        elif sequence in self.running:
            self.running.sort(key=_running_order)
            if sequence.batch != before:
                self.pool.move(sequence.cells, to_batch=sequence.batch)

    def finish(self, sequence: Sequence) -> None:
        """Takes a sequence out, in whatever state. Its cells stay for reuse if it allows that."""
        if sequence.state is State.FINISHED:
            return
        if sequence.state is State.WAITING:
            self.waiting.remove(sequence)
            self.cache.keeping.drop(sequence)
        else:
            self._leave(sequence)
            self.cache.retire(sequence)
        sequence.state = State.FINISHED
        self.order.leaves(sequence)
        self.sets.leaves(sequence)

    def _queue(self, sequence: Sequence, now: float) -> None:
        self.order.place(sequence, now)
        insort(self.waiting, sequence, key=rank_of)

    def _leave(self, sequence: Sequence) -> None:
        """It no longer runs; what it holds in the cache is for the caller to settle."""
        self.running.remove(sequence)
        self._drafting.forget(sequence)
        self._places.append(sequence.place)
        sequence.place = -1

    # -- the step --------------------------------------------------------------------------------

    def schedule(self, now: float) -> Plan:
        """Plans the next step; an empty plan when there is nothing to do."""
        self.order.turns += 1
        self._now = now
        self.cache.settle()
        started: list[Sequence] = []
        chunks: list[Chunk] = []
        for _ in self.sets.turns(self.running, self.waiting):
            most = self.limits.step_tokens - self._reserved
            chunks = self._decode_chunks(batch=False, most=most)
            if self.waiting or len(chunks) < len(self._mine):
                self._fill_step(chunks, started, now)
            if chunks:
                break
        note_company(chunks, alone=len(self.running) == 1)
        return self._plan(chunks, started)

    @property
    def _mine(self) -> list[Sequence]:
        """Those of the running ones that may be in this step."""
        return self.sets.of(self.running)

    def _plan(self, chunks: list[Chunk], started: list[Sequence]) -> Plan:
        cache = self.cache
        moves, preempted, evicted = tuple(cache.moves), self._preempted, cache.evicted
        if moves:  # nothing is preempted or evicted without one
            cache.moves.clear()
            self._preempted = cache.evicted = 0
        return Plan(moves, tuple(chunks), tuple(started), preempted, evicted)

    def _decode_chunks(self, *, batch: bool, most: int) -> list[Chunk]:
        """One token of each that decodes, and drafts as long as that makes fewer than `most`."""
        decoding = self._decoding(batch)
        chunks = []
        for sequence, cell in zip(
            decoding, self.pool.take(len(decoding), batch=batch), strict=True
        ):
            sequence.cells.append(cell)
            chunks.append(Chunk(sequence, sequence.computed, (sequence.tokens[-1],), 1))
        if self.limits.draft_tokens and not self.slowed and most > 0:
            # They never displace anything, and leave half of the step to prompts that wait.
            prompts = self.waiting or len(chunks) < len(self._mine)
            self._drafting.add(chunks, most // (2 if prompts else 1))
        return chunks

    def _decoding(self, batch: bool) -> list[Sequence]:
        """Those that get their token in this step; there is a cell for each of them."""
        decoding = [s for s in self._mine if s.state is _DECODE and s.batch is batch]
        if len(decoding) <= self.pool.free:
            return decoding
        kept: list[Sequence] = []
        for sequence in decoding:  # some of them may give way to others
            if sequence.state is _DECODE and self._make_room(len(kept) + 1, sequence):
                kept.append(sequence)
        return [sequence for sequence in kept if sequence.state is _DECODE]

    def _fill_step(self, chunks: list[Chunk], started: list[Sequence], now: float) -> None:
        """Adds the prompts of pool A to the step, then what pool B may have of it."""
        if self.waiting:
            self.order.arrange(self.waiting, self.running, now)
        self._gate.open(now, self.waiting)
        room = self._prefill_room(chunks, self._reserved)
        crowded = room <= 0 and not self._turns.due
        if crowded:  # B alone would fill the step: it waits if A has prompts
            room = self._prefill_room(chunks, 0)
        left = self._prompts(chunks, started, room, batch=False)
        if crowded and left < room:
            self._turns.held()
        elif self._has_batch:
            self._fill_batch(chunks, started, left, now)

    @property
    def _has_batch(self) -> bool:
        """Whether a request of pool B runs or waits; they come last in either list."""
        return any(queue and queue[-1].batch for queue in (self.running, self.waiting))

    @property
    def _reserved(self) -> int:
        """Tokens of the step that pool A leaves for those of pool B that run."""
        if not self.running or not self.running[-1].batch:
            return 0
        return sum([sequence.batch for sequence in self._mine])

    def _fill_batch(
        self, chunks: list[Chunk], started: list[Sequence], left: int, now: float
    ) -> None:
        """`left`: the prompt tokens for which pool A left room."""
        before = sum([len(chunk.tokens) for chunk in chunks])
        if chunks:
            self._turns.seen(now)
        if not self._turns.allows(before, self._pressed(chunks)):
            return
        most = 0 if chunks else self.limits.step_tokens
        chunks += self._decode_chunks(batch=True, most=most)
        # Those whose prompt is being read have a token each, however many A's prompts took.
        least = sum([s.batch and s.state is _PREFILL for s in self._mine])
        room = min(max(left, least), self._prefill_room(chunks, 0))
        self._prompts(chunks, started, self._turns.piece(room, now), batch=True)
        if before:
            self._turns.took(before, sum([len(chunk.tokens) for chunk in chunks]) - before)

    def _pressed(self, chunks: list[Chunk]) -> bool:
        """Whether pool A, of which these are, needs the step for itself: for prompts, because some
        of it wait, or because it fills a quarter of the places."""
        prompts = any(chunk.sequence.state is _PREFILL for chunk in chunks)
        waits = bool(self.waiting) and not self.waiting[0].batch
        return prompts or waits or len(chunks) > max(self.limits.max_sequences // 4, 1)

    def _prompts(
        self, chunks: list[Chunk], started: list[Sequence], room: int, *, batch: bool
    ) -> int:
        """Adds prompts of a pool: of those that run, then of those that it starts. Returns the
        room that is left."""
        for sequence in [s for s in self._mine if s.state is _PREFILL and s.batch is batch]:
            room = self._prefill_chunk(sequence, room, chunks)
        while room > 0 and not self.paused:
            newcomer = self._start_next(batch)
            if newcomer is None:
                break
            started.append(newcomer)
            if newcomer.saved is None:
                room = self._prefill_chunk(newcomer, room, chunks)
        return room

    def _prefill_room(self, chunks: list[Chunk], reserved: int) -> int:
        used = sum(len(chunk.tokens) for chunk in chunks) + reserved
        share = SLOWED if self.slowed else 1
        room = self.limits.step_tokens // share - used
        if not chunks and not self.sets.others_decode(self.running):
            return room
        return min(room, self.limits.prefill_tokens // share)

    def _prefill_chunk(self, sequence: Sequence, room: int, chunks: list[Chunk]) -> int:
        """Adds the next piece of a prompt; returns the room that is left."""
        if sequence.request.exclusive:  # in the same pieces, whatever the machine does
            room = self.limits.step_tokens
        count = min(room, sequence.pending)
        if count <= 0 or sequence.state is not _PREFILL:
            return room
        stays = self._make_room(count, sequence)
        chunks[:] = [chunk for chunk in chunks if chunk.sequence.seq_id >= 0]
        if not stays:
            return room
        start = sequence.computed
        sequence.cells += self.pool.take(count, batch=sequence.batch)
        tokens = tuple(sequence.tokens[start : start + count])
        chunks.append(Chunk(sequence, start, tokens, int(count == sequence.pending)))
        return room - count

    def computed(self, chunk: Chunk) -> None:
        """The step ran: these tokens are in the cache."""
        sequence = chunk.sequence
        sequence.computed = chunk.start + len(chunk.tokens)
        if sequence.state is _PREFILL and sequence.pending == 0:
            sequence.state = _DECODE
            self.cache.computed(sequence)

    def rewind(self, sequence: Sequence, length: int) -> None:
        """Keeps only the first `length` computed tokens (the rest was a draft that failed)."""
        self.cache.rewind(sequence, length)

    def observe_draft(self, sequence: Sequence, proposed: int, accepted: int) -> None:
        """How a proposal fared; feeds what is proposed next."""
        self._drafting.observe(sequence, proposed, accepted)

    # -- starting --------------------------------------------------------------------------------

    def _start_next(self, batch: bool) -> Sequence | None:
        """Starts the next that can of a pool. Those of A wait in front of those of B."""
        if (batch and self._gate.blocked) or any(s.request.exclusive for s in self.running):
            return None
        self._gate.passed.clear()
        for sequence in self.waiting:
            if sequence.batch is not batch:
                if batch:  # one of A, which had its own call
                    continue
                return None  # nothing of A is behind the first of B
            apart = self.sets.apart(sequence)
            if sequence.request.exclusive and (self.running or apart):
                if not batch and self.running and self.running[0].batch:
                    self._preempt(self.running[-1])  # one of A never waits for those of B
                    return self._start_next(batch)
                self._gate.blocked = True  # nothing starts before it, so that all that runs ends
                return None
            source, length, promised = self.cache.reusable(sequence)
            if promised - length >= WORTH_WAITING and (batch or not (source and source.batch)):
                continue  # more of its prompt is being computed now; those behind may start
            if not self._gate.takes(sequence, source, length, self.running):
                return None
            if apart:  # its adapters' turn is yet to come: what it needs is kept for it
                self._gate.passed.append((sequence, source, length))
                continue
            if self._gate.needs_more(sequence, source, length, self.running):
                self._preempt(victim(self.running))
                return self._start_next(batch)
            self.waiting.remove(sequence)
            self._start(sequence, source, length)
            return sequence
        return None

    def _start(self, sequence: Sequence, source: Sequence | None, length: int) -> None:
        self.cache.enter(sequence, source, length)
        if sequence.times.started == 0.0:
            sequence.times.started = self._now
            sequence.cached_tokens = length
            sequence.exclusive = self.pool.used == 0
        sequence.state = _PREFILL
        sequence.place = self._places.pop()
        insort(self.running, sequence, key=_running_order)
        self.order.starts(sequence)

    # -- making room -----------------------------------------------------------------------------

    def _make_room(self, count: int, wanting: Sequence) -> bool:
        """Frees cells until `count` are there; false if `wanting` itself had to give way."""
        while self.pool.free < count:
            if self.cached:
                self.cache.evict()
                continue
            loser = victim(self.running)
            self.overflows += self.pools.overflown(loser, self.running)
            self._preempt(loser)
            if loser is wanting:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the queue, tokens kept, cells given up."""
        self._leave(sequence)
        self.cache.preempt(sequence)
        sequence.state = State.WAITING
        sequence.evictions += 1
        self._queue(sequence, self._now)
        self._preempted += 1
        self.batch_evictions += sequence.batch

    # -- looking ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises AssertionError unless every cell and every sequence id is accounted for."""
        self.cache.check(self.running)
        assert all(s.seq_id == -1 and not s.cells for s in self.waiting)


def _running_order(sequence: Sequence) -> tuple[bool, int, int]:
    return sequence.batch, sequence.priority, sequence.order
