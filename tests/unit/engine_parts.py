"""Builders for the engine's tests, and a mirror of what llama.cpp does with a plan."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from appliance.engine.commands import LoraSet, Submit
from appliance.engine.limits import Limits
from appliance.engine.plan import Chunk, Clear, Move, Plan, Remove, Restore, Save
from appliance.engine.scheduler import Scheduler
from appliance.engine.sequence import SavedState, Sequence, State
from appliance.engine.vocab import Vocab


def make_submit(
    name: str = "r", prompt: Iterable[int] = (1, 2, 3), max_tokens: int = 8, **fields: Any
) -> Submit:
    return Submit(id=name, prompt=tuple(prompt), max_tokens=max_tokens, **fields)


def make_sequence(prompt: Iterable[int] = (1, 2, 3), **fields: Any) -> Sequence:
    request = make_submit(prompt=prompt, **fields)
    return Sequence(request, 0, 0, list(request.prompt))


def make_scheduler(
    n_cells: int = 256,
    max_sequences: int = 4,
    cached_sequences: int = 4,
    step_tokens: int = 64,
    prefill_tokens: int = 64,
    draft_tokens: int = 0,
) -> Scheduler:
    scheduler = Scheduler(
        Limits(n_cells, max_sequences, cached_sequences, step_tokens, prefill_tokens, draft_tokens)
    )
    # A token more costs next to nothing, so whatever may be drafted is.
    scheduler.drafter.observe_step(1, 10.0)
    scheduler.drafter.observe_step(64, 10.1)
    return scheduler


def next_token(prefix: Iterable[int]) -> int:
    """A model in one line. Every token depends on all before it, so one that is lost, doubled or
    another's changes the rest of the answer; of only three, so that drafts hold now and then."""
    return zlib.crc32(bytes(token % 256 for token in prefix)) % 3


def answer_to(prompt: Iterable[int], count: int) -> list[int]:
    """Prompt and answer as they must come out, alone or in company."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens


@dataclass(frozen=True, eq=False)
class Cell:
    """One KV cell; identity is what counts."""

    token: int
    scope: str
    shareable: bool
    lora: LoraSet = ()


class Mirror:
    """What llama.cpp holds: for each sequence id, the cells of positions 0, 1, 2 …"""

    def __init__(self) -> None:
        self.cache: dict[int, list[Cell]] = {}
        self.refuses = False
        """No state can be put back."""
        self._saved: dict[SavedState, list[Cell]] = {}

    def apply(self, plan: Plan) -> None:
        for move in plan.moves:
            self._move(move)
        for chunk in plan.chunks:
            self._decode(chunk)

    def tokens(self, seq_id: int) -> list[int]:
        return [cell.token for cell in self.cache.get(seq_id, [])]

    @property
    def used(self) -> int:
        return len({id(cell) for cells in self.cache.values() for cell in cells})

    def _move(self, move: Move) -> None:
        if isinstance(move, Clear):
            assert not any(self.cache.values()), "cleared what somebody holds"
            return
        if isinstance(move, Remove):
            del self.cache.get(move.seq_id, [])[move.start :]
            return
        if isinstance(move, Save):
            assert len(self.cache[move.seq_id]) == move.state.tokens, "saved another length"
            self._saved[move.state] = list(self.cache[move.seq_id])
            move.state.data = bytearray(1)
            return
        if isinstance(move, Restore):
            assert not self.cache.get(move.seq_id), "restored over what is there"
            if not self.refuses:
                self.cache[move.seq_id] = [replace(cell) for cell in self._saved[move.state]]
                move.state.restored = True
            return
        assert not self.cache.get(move.target), "copied over what is there"
        assert len(self.cache[move.source]) >= move.length, "copied more than there is"
        self.cache[move.target] = self.cache[move.source][: move.length]

    def _decode(self, chunk: Chunk) -> None:
        request = chunk.sequence.request
        cells = self.cache.setdefault(chunk.sequence.seq_id, [])
        assert len(cells) == chunk.start, "a gap or an overlap in the positions"
        for cell in cells:
            assert cell.scope == request.scope, "reused another tenant's cells"
            assert cell.lora == request.lora, "reused what other adapters computed"
            assert cell.shareable or not request.cache_prompt
        cells += [
            Cell(token, request.scope, request.cache_prompt, request.lora) for token in chunk.tokens
        ]


class Simulation:
    """A scheduler with `next_token` for a model. Every step checks all that can be checked."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.mirror = Mirror()
        self.finished: list[Sequence] = []
        self.now = 0.0

    def add(self, request: Submit) -> list[Sequence]:
        return self.scheduler.add(request, self.now)

    def step(self) -> Plan:
        self.now += 1.0
        plan = self.scheduler.schedule(self.now)
        self._check_plan(plan)
        self.mirror.apply(plan)
        refused = self.mirror.refuses and any(isinstance(move, Restore) for move in plan.moves)
        assert refused or self.mirror.used == self.scheduler.pool.used
        assert self.scheduler.pool.used <= self.scheduler.limits.n_cells
        for chunk in plan.chunks:
            self.scheduler.computed(chunk)
            self._check_cache(chunk.sequence)
            if chunk.outputs:
                self._sample(chunk)
        self.scheduler.check()
        return plan

    def run(self, most: int) -> None:
        """Until nothing is left to do, within `most` steps."""
        for _ in range(most):
            if not self.scheduler.running and not self.scheduler.waiting:
                return
            self.step()
        raise AssertionError(f"not done after {most} steps")

    def _sample(self, chunk: Chunk) -> None:
        sequence, accepted = chunk.sequence, 0
        for i in range(chunk.outputs):
            sequence.tokens.append(next_token(sequence.tokens))
            ended = self._ended(sequence)
            confirmed = i < len(chunk.draft) and sequence.tokens[-1] == chunk.draft[i]
            accepted += confirmed and not ended
            if ended or not confirmed:
                break
        if chunk.draft:
            self.scheduler.observe_draft(sequence, len(chunk.draft), accepted)
            self.scheduler.rewind(sequence, len(sequence.tokens) - 1)
        if self._ended(sequence):
            self.finish(sequence)

    def _ended(self, sequence: Sequence) -> bool:
        full = len(sequence.tokens) >= self.scheduler.limits.n_cells
        return full or sequence.generated >= sequence.request.max_tokens

    def finish(self, sequence: Sequence) -> None:
        assert sequence.tokens == answer_to(sequence.request.prompt, sequence.generated)
        self.scheduler.finish(sequence)
        self.finished.append(sequence)

    def _check_plan(self, plan: Plan) -> None:
        limits = self.scheduler.limits
        planned = [chunk.sequence for chunk in plan.chunks]
        assert len(set(planned)) == len(planned)
        assert plan.n_tokens <= limits.step_tokens
        running = [s for s in self.scheduler.running if not s.batch]
        decoding = [s for s in running if s.state is State.DECODE]
        loras = {sequence.request.lora for sequence in planned}
        assert len(loras) <= 1, "one step, two sets of adapters"
        theirs = {s for s in decoding if not loras or s.request.lora in loras}
        assert theirs <= set(planned), "a decoding sequence was left out"
        prompts = sum(len(c.tokens) for c in plan.chunks if c.sequence.state is State.PREFILL)
        assert not decoding or prompts <= limits.prefill_tokens
        for chunk in plan.chunks:
            left = chunk.sequence.request.max_tokens - chunk.sequence.generated
            assert len(chunk.draft) < left, "drafted past max_tokens"

    def _check_cache(self, sequence: Sequence) -> None:
        held = self.mirror.tokens(sequence.seq_id)
        certain = min(sequence.computed, len(sequence.tokens))
        assert held[:certain] == sequence.tokens[:certain], "another sequence's tokens"
        assert len(held) == sequence.computed


EOS = 30
LETTERS = b"abcdefghijklmnopqrstuvwxyz"


class FakeVocab:
    """Token 0 is "a", 1 is "b", …; `EOS` ends and shows nothing."""

    n_tokens = 32
    eogs = frozenset({EOS})

    def piece(self, token: int, special: bool = False) -> bytes:
        if token == EOS:
            return b"<eos>" if special else b""
        return LETTERS[token : token + 1]


class FakeRunner:
    """A scripted model behind a mirrored cache: it answers from what the cache holds, so a wrong
    move shows as a wrong answer. `write` maps all tokens so far to the next one."""

    def __init__(self, write: Callable[[list[int]], int] = next_token, n_ctx: int = 256) -> None:
        self.vocab = cast(Vocab, FakeVocab())
        self.n_ctx = n_ctx
        self.now = 100.0
        self.step_s = 0.01
        self.steps = 0
        self.before_run: Callable[[], None] = lambda: None
        self._write = write
        self._mirror = Mirror()

    def clock(self) -> float:
        """Monotonic seconds; a step takes `step_s`."""
        return self.now

    def move(self, moves: tuple[Move, ...]) -> None:
        self._mirror.apply(Plan(moves, (), (), 0, 0))

    def run(self, chunks: tuple[Chunk, ...]) -> NDArray[np.float32]:
        self.before_run()
        self._mirror.apply(Plan((), chunks, (), 0, 0))
        self.steps += 1
        self.now += self.step_s
        rows = [self._row(chunk, i) for chunk in chunks for i in range(chunk.outputs)]
        return np.array(rows, dtype=np.float32).reshape(len(rows), FakeVocab.n_tokens)

    def _row(self, chunk: Chunk, i: int) -> NDArray[np.float32]:
        seen = chunk.start + len(chunk.tokens) - chunk.outputs + i + 1
        token = self._write(self._mirror.tokens(chunk.sequence.seq_id)[:seen])
        row = np.zeros(FakeVocab.n_tokens, dtype=np.float32)
        row[token] = 20.0
        return row if token >= 0 else row * np.nan
