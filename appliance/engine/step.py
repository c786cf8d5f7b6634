"""One turn of the engine: drain, schedule, run, sample, journal, report.

`Engine` owns everything between the daemon's commands and llama.cpp, and nothing else does. It
knows no sockets: `process.py` feeds it commands and takes its reports.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from appliance.engine.answer import Answer
from appliance.engine.constrain import ConstraintError
from appliance.engine.journal import REASONS, Kind
from appliance.engine.messages import (
    Batch,
    Cancel,
    Command,
    Event,
    Pause,
    Ping,
    Pong,
    Prefill,
    Report,
    SlotState,
    Started,
    Stats,
    Submit,
)
from appliance.engine.plan import Chunk, Move, Plan
from appliance.engine.sampling import SamplingError
from appliance.engine.scheduler import Scheduler
from appliance.engine.sequence import End, Sequence, State
from appliance.engine.totals import Totals
from appliance.engine.vocab import Vocab

_log = logging.getLogger(__name__)


class Decoder(Protocol):
    """What a step needs of the model; `runner.Runner` is the real one."""

    vocab: Vocab
    n_ctx: int

    def move(self, moves: tuple[Move, ...]) -> None: ...

    def run(self, chunks: tuple[Chunk, ...]) -> NDArray[np.float32]: ...


class TokenJournal(Protocol):
    """Where a step writes down what it computed; `journal.Journal` is the real one."""

    @property
    def records(self) -> int: ...

    @property
    def room(self) -> int: ...

    def write(self, kind: Kind, number: int, choice: int, a: int, b: int) -> None: ...

    def flush(self) -> None: ...


JOURNAL_RESERVE = 8192
"""Records kept for what runs: a step and the ends of all that is running fit well within."""


class Engine:
    """The loop's state. `handle` takes a command, `step` does one step's work."""

    def __init__(
        self,
        runner: Decoder,
        scheduler: Scheduler,
        lltokenizer: Callable[[], LLTokenizer],
        publish: Callable[[Report], None],
        journal: TokenJournal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        self._runner = runner
        self._scheduler = scheduler
        self._lltokenizer = lltokenizer
        self._publish = publish
        self._clock = clock
        self._requests: dict[str, list[Sequence]] = {}
        self._answers: dict[Sequence, Answer] = {}
        self._events: list[Event] = []
        self._totals = Totals()

    # -- commands --------------------------------------------------------------------------------

    def handle(self, command: Command) -> None:
        """Takes one command between two steps; what it ends is published with the next step."""
        match command:
            case Submit():
                self._submit(command)
            case Cancel():
                self._cancel(command)
            case Pause():
                self._scheduler.paused = command.on
            case Ping():
                self._publish(Pong(command.at, self.stats(), self.slots(), self._queue()))
            case _:
                raise AssertionError(f"unexpected command {command!r}")

    def _submit(self, request: Submit) -> None:
        now = self._clock()
        sequences = self._scheduler.add(request, now)
        self._requests[request.id] = sequences
        try:
            for sequence in sequences:
                self._answers[sequence] = Answer(sequence, self._runner.vocab, self._lltokenizer)
        except ConstraintError as error:
            message = f"the grammar cannot be used: {error}"
            self._end_all(sequences, End("error", message=message), now)
            return
        if request.max_tokens == 0:
            self._end_all(sequences, End("length", "limit"), now)

    def _cancel(self, command: Cancel) -> None:
        sequences = self._requests.get(command.id, [])
        self._end_all(sequences, End(command.reason), self._clock())

    # -- the step --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a step would do anything, be it only to tell what a command ended."""
        scheduler = self._scheduler
        queued = scheduler.waiting and not scheduler.paused
        return bool(scheduler.running or queued or self._events)

    def step(self) -> None:
        """One step. Its events are published when it is done; before it computes, which requests
        it starts (should it kill this process, the daemon knows what was in it) and which ended
        since the last one."""
        began = self._clock()
        self._enforce_deadlines(began)
        self._check_journal(began)
        plan = self._scheduler.schedule(began)
        self._announce(plan, began)
        self._runner.move(plan.moves)
        if plan.chunks:
            self._run(plan, began)
        self._report()

    def _check_journal(self, now: float) -> None:
        """Better no answer than one whose tokens cannot be written down."""
        if self._journal.room < JOURNAL_RESERVE:
            message = "the disk is full: the box cannot write down the tokens of this answer"
            for sequences in list(self._requests.values()):
                self._end_all(sequences, End("error", message=message), now)

    def _note(self, kind: Kind, sequence: Sequence, a: int, b: int) -> None:
        self._journal.write(kind, sequence.request.number, sequence.choice, a, b)

    def _report(self) -> None:
        """Journal first: what is told is on disk."""
        self._journal.flush()
        if self._events:
            events, self._events = tuple(self._events), []
            self._publish(Batch(events, self.stats()))

    def _run(self, plan: Plan, began: float) -> None:
        before = self._clock()
        logits = self._runner.run(plan.chunks)
        after = self._clock()
        self._share_time(plan, round((after - before) * 1e9))
        row = 0
        for chunk in plan.chunks:
            self._note_prefill(chunk)
            self._scheduler.computed(chunk)
            if chunk.outputs:
                self._sample(chunk, logits[row : row + chunk.outputs], after)
            elif chunk.sequence.request.progress:
                self._progress(chunk.sequence, after)
            row += chunk.outputs
        self._learn(plan, (after - before) * 1e3)
        self._totals.step(plan, after - before, self._clock() - began, self._scheduler.pool.used)

    def _share_time(self, plan: Plan, ns: int) -> None:
        """Parts the step's device time by tokens; the parts sum to the whole."""
        total, seen, given = plan.n_tokens, 0, 0
        for chunk in plan.chunks:
            seen += len(chunk.tokens)
            part = ns * seen // total - given
            given += part
            if chunk.sequence.state is State.PREFILL:
                chunk.sequence.prefill_ns += part
            else:
                chunk.sequence.decode_ns += part

    def _note_prefill(self, chunk: Chunk) -> None:
        if chunk.sequence.state is State.PREFILL:
            count = len(chunk.tokens)
            chunk.sequence.prefill_tokens += count
            self._totals.prefilled(count)
            self._note(Kind.PREFILL, chunk.sequence, count, chunk.start)

    def _sample(self, chunk: Chunk, rows: NDArray[np.float32], now: float) -> None:
        """Samples row by row as long as each token confirms the next one of the draft."""
        sequence = chunk.sequence
        if sequence.times.first_token == 0.0:
            self._first_token(sequence, now)
        answer = self._answers[sequence]
        draft, accepted, end = chunk.draft, 0, None
        before = sequence.generated
        for i in range(chunk.outputs):
            end = self._take(answer, rows[i])
            confirmed = i < len(draft) and sequence.tokens[-1] == draft[i]
            if end is not None or not confirmed:
                break
            accepted += 1
        self._totals.sampled(sequence.generated - before)
        for place in range(before + 1, sequence.generated + 1):
            token = sequence.tokens[sequence.n_prompt + place - 1]
            self._note(Kind.TOKEN, sequence, token, place)
        if draft:
            self._settle_draft(sequence, len(draft), accepted)
        if end is not None:
            self._end(sequence, end, now)
        elif sequence.request.stream:
            self._events.extend(answer.delta())

    def _take(self, answer: Answer, row: NDArray[np.float32]) -> End | None:
        try:
            return answer.take(row, self._runner.n_ctx)
        except (SamplingError, ConstraintError) as error:
            return End("error", message=str(error))

    def _settle_draft(self, sequence: Sequence, proposed: int, accepted: int) -> None:
        """Forgets the part of the draft that did not hold."""
        sequence.drafted += proposed
        sequence.accepted += accepted
        self._totals.draft(proposed, accepted)
        self._scheduler.observe_draft(sequence, proposed, accepted)
        self._scheduler.rewind(sequence, len(sequence.tokens) - 1)

    def _first_token(self, sequence: Sequence, now: float) -> None:
        sequence.times.first_token = now
        if sequence.request.progress:
            self._progress(sequence, now)

    def _progress(self, sequence: Sequence, now: float) -> None:
        if sequence.choice == 0:
            done = min(sequence.computed, sequence.n_prompt)
            ms = (now - sequence.times.started) * 1e3
            self._events.append(
                Prefill(sequence.request.id, sequence.n_prompt, sequence.cached_tokens, done, ms)
            )

    def _learn(self, plan: Plan, ms: float) -> None:
        """Steps that only decode teach what a token more costs."""
        if all(chunk.outputs == len(chunk.tokens) for chunk in plan.chunks):
            self._scheduler.drafter.observe_step(plan.n_tokens, ms)

    def _announce(self, plan: Plan, began: float) -> None:
        self._totals.moved(plan)
        for sequence in plan.started:
            resumed = sequence.times.started != began
            if resumed:
                sequence.preemptions += 1
            else:
                self._totals.started(sequence)
                self._note(Kind.START, sequence, sequence.request.key, sequence.cached_tokens)
            if sequence.choice == 0 and not resumed:
                started = Started(
                    sequence.request.id, sequence.times.started, sequence.cached_tokens
                )
                self._events.append(started)
        self._report()

    # -- endings ---------------------------------------------------------------------------------

    def _enforce_deadlines(self, now: float) -> None:
        late = [
            sequences
            for sequences in self._requests.values()
            if (deadline := sequences[0].request.deadline) is not None and now >= deadline
        ]
        for sequences in late:
            self._end_all(sequences, End("deadline"), now)

    def _end_all(self, sequences: list[Sequence], end: End, now: float) -> None:
        for sequence in list(sequences):  # `_end` takes them out of the very list
            self._end(sequence, end, now)

    def _end(self, sequence: Sequence, end: End, now: float) -> None:
        """Exactly one Finished per choice, whatever the end."""
        sequence.times.ended = now
        self._totals.finished(sequence, now)
        if sequence.times.started:
            self._note(Kind.END, sequence, REASONS.index(end.reason), sequence.hidden)
        self._scheduler.finish(sequence)
        answer = self._answers.pop(sequence, None)
        if answer is None:
            answer = Answer.unstarted(sequence, self._runner.vocab)
        self._events.extend(answer.finish(end, now))
        siblings = self._requests[sequence.request.id]
        siblings.remove(sequence)
        if not siblings:
            del self._requests[sequence.request.id]

    # -- looking ---------------------------------------------------------------------------------

    def stats(self) -> Stats:
        scheduler = self._scheduler
        pool = scheduler.pool
        return self._totals.stats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            kv_used=pool.used,
            kv_cached=pool.used - pool.pinned,
            kv_total=pool.total,
            journal_records=self._journal.records,
            journal_room=self._journal.room,
        )

    def slots(self) -> tuple[SlotState, ...]:
        return tuple(
            SlotState(
                id=sequence.place,
                request=sequence.request.id,
                choice=sequence.choice,
                state=sequence.wire_state,
                prompt_tokens=sequence.n_prompt,
                prompt_done=min(sequence.computed, sequence.n_prompt),
                cached_tokens=sequence.cached_tokens,
                generated=sequence.generated,
                max_tokens=sequence.request.max_tokens,
            )
            for sequence in self._scheduler.running
        )

    def _queue(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.request.id for s in self._scheduler.waiting))
