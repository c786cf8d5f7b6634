"""One turn of the engine: drain, schedule, run, sample, journal, report.

`Engine` owns everything between the daemon's commands and llama.cpp, and nothing else does. It
knows no sockets: `process.py` feeds it commands and takes its reports.
"""

import logging
import math
import time
from collections.abc import Callable

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from appliance.engine.answer import Answer
from appliance.engine.commands import (
    Cancel,
    Command,
    Expect,
    LoraSet,
    Pause,
    Ping,
    Reprioritise,
    Slow,
    Steer,
    Submit,
)
from appliance.engine.constrain import ConstraintError
from appliance.engine.journal import REASONS, Kind
from appliance.engine.landings import answer_for
from appliance.engine.plan import Chunk, Plan
from appliance.engine.ports import Decoder, TokenJournal
from appliance.engine.reports import (
    Batch,
    Event,
    FirstLogits,
    Pong,
    Prefill,
    Report,
    SlotState,
    Started,
    Stats,
)
from appliance.engine.rows import Reader, Rows, first_tokens, first_values
from appliance.engine.sampling import SamplingError
from appliance.engine.scheduler import Scheduler
from appliance.engine.sequence import End, Sequence, State
from appliance.engine.totals import Totals

log = logging.getLogger(__name__)


_PREFILL, _TOKEN = State.PREFILL, Kind.TOKEN

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
        reader: Reader | None = None,
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
        self._reader = reader or Reader(runner.vocab.eogs)
        self._first_tokens = first_tokens(runner.vocab.n_tokens)
        self._deadline = math.inf
        """No request's is earlier."""
        self._lora: LoraSet = ()
        """Of the last step."""

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
            case Slow():
                self._scheduler.slowed = command.on
            case Steer():
                self._scheduler.steer(command)
            case Expect() | Reprioritise():
                self._inform(command)
            case Ping():
                self._totals.look(self._scheduler, self._clock())
                self._publish(Pong(command.at, self.stats(), self.slots(), self._queue()))
            case _:
                raise AssertionError(f"unexpected command {command!r}")

    def _submit(self, request: Submit) -> None:
        now = self._clock()
        sequences = self._scheduler.add(request, now)
        self._requests[request.id] = sequences
        if request.deadline is not None:
            self._deadline = min(self._deadline, request.deadline)
        try:
            for sequence in sequences:
                self._answers[sequence] = answer_for(
                    sequence, self._runner.vocab, self._lltokenizer
                )
        except ConstraintError as error:
            message = f"the grammar cannot be used: {error}"
            self._end_all(sequences, End("error", message=message), now)
            return
        if request.max_tokens == 0:
            self._end_all(sequences, End("length", "limit"), now)

    def _inform(self, command: Expect | Reprioritise) -> None:
        now = self._clock()
        for sequence in self._requests.get(command.id, []):
            if isinstance(command, Expect):
                self._scheduler.expect(sequence, command, now)
            else:
                self._scheduler.reprioritise(sequence, command.priority, command.pool, now)

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

    @property
    def slowed(self) -> bool:
        """Steps are small, and the loop is to rest after each as long as it took."""
        return self._scheduler.slowed

    def step(self) -> None:
        """One step. Its events are published when it is done; before it computes, which requests
        it starts (should it kill this process, the daemon knows what was in it) and which ended
        since the last one."""
        began = self._clock()
        if began >= self._deadline:
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
        rows = self._reader.read(logits)
        n_tokens = plan.n_tokens
        ns, tokens, given, row = round((after - before) * 1e9), 0, 0, 0
        for chunk in plan.chunks:
            tokens += len(chunk.tokens)  # the step's time by tokens; the parts sum to the whole
            part = ns * tokens // n_tokens - given
            given += part
            if chunk.sequence.state is _PREFILL:
                self._note_prefill(chunk, part)
            else:
                chunk.sequence.decode_ns += part
            self._scheduler.computed(chunk)
            if chunk.outputs:
                self._sample(chunk, logits, rows, row, after)
            elif chunk.sequence.request.progress:
                self._progress(chunk.sequence, after)
            row += chunk.outputs
        lora = plan.chunks[0].sequence.request.lora
        if row == n_tokens and lora == self._lora:
            # Steps that only decode teach what a token more costs; other adapters cost once.
            self._scheduler.drafter.observe_step(n_tokens, (after - before) * 1e3)
        self._lora = lora
        self._totals.step(plan, after - before, self._clock() - began, self._scheduler.pool.used)

    def _note_prefill(self, chunk: Chunk, ns: int) -> None:
        """`ns`: the chunk's share of the step's device time."""
        sequence, count = chunk.sequence, len(chunk.tokens)
        sequence.prefill_ns += ns
        sequence.prefill_tokens += count
        self._totals.prefilled(count)
        self._note(Kind.PREFILL, sequence, count, chunk.start)

    def _sample(
        self, chunk: Chunk, logits: NDArray[np.float32], rows: Rows, first: int, now: float
    ) -> None:
        """Samples row by row, from `first` on, as long as each token confirms the next one of the
        draft."""
        sequence, draft = chunk.sequence, chunk.draft
        answer = self._answers[sequence]
        before = answer.settled
        if len(sequence.tokens) == sequence.n_prompt and not sequence.dropped:
            self._first_token(sequence, now)
            if answer.signalled and sequence.choice == 0 and rows.best[first] >= 0:
                self._first_logits(sequence, logits[first], rows.highest[first])
        for row in range(first, first + chunk.outputs):
            try:
                end = answer.take(logits[row], self._runner.n_ctx, rows.best[row])
            except (SamplingError, ConstraintError) as error:
                end = End("error", message=str(error))
            if answer.signalled and answer.near_end(rows.ends[row] - rows.highest[row]):
                self._signal(answer, end, logits[row], rows.highest[row])
            accepted = row - first
            confirmed = accepted < len(draft) and sequence.tokens[-1] == draft[accepted]
            if end is not None or not confirmed:
                break
        self._note_tokens(sequence, before, answer.settled)
        if answer.undone >= 0:
            self._take_back(answer)
        if draft:
            self._settle_draft(sequence, len(draft), accepted)
        if end is not None:
            self._end(sequence, end, now)
        elif answer.streamed:
            self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        delta = answer.delta()
        if delta is not None:
            self._events.append(delta)

    def _signal(
        self, answer: Answer, end: End | None, row: NDArray[np.float32], highest: float
    ) -> None:
        """`row` is that of the token which was just taken, if one was. Where the text is streamed,
        the text up to this token goes first."""
        if end is None and answer.streamed:
            self._tell(answer)
        if end is None or end.reason != "error":
            self._events.append(answer.signals(row, self._reader.spread(row, highest)))

    def _take_back(self, answer: Answer) -> None:
        """The cache forgets the tokens that the answer took back."""
        sequence = answer.sequence
        self._scheduler.rewind(sequence, min(answer.undone, len(sequence.tokens) - 1))
        answer.undone = -1

    def _note_tokens(self, sequence: Sequence, before: int, settled: int) -> None:
        """Journals what was settled in this step: there were `before` tokens in all."""
        number, choice = sequence.request.number, sequence.choice
        sampled = sequence.tokens[before:settled]
        self._totals.sampled(len(sampled))
        for place, token in enumerate(sampled, before - sequence.n_prompt + 1):
            self._journal.write(_TOKEN, number, choice, token, place)

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

    def _first_logits(self, sequence: Sequence, row: NDArray[np.float32], highest: float) -> None:
        values = first_values(row, highest, self._first_tokens)
        self._events.append(FirstLogits(sequence.request.id, values))

    def _progress(self, sequence: Sequence, now: float) -> None:
        if sequence.choice == 0:
            done = min(sequence.computed, sequence.n_prompt)
            ms = (now - sequence.times.started) * 1e3
            self._events.append(
                Prefill(sequence.request.id, sequence.n_prompt, sequence.cached_tokens, done, ms)
            )

    def _announce(self, plan: Plan, began: float) -> None:
        if plan.moves:
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
        if plan.started or self._events:
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
        left = (sequences[0].request.deadline for sequences in self._requests.values())
        self._deadline = min((at for at in left if at is not None), default=math.inf)

    def _end_all(self, sequences: list[Sequence], end: End, now: float) -> None:
        for sequence in list(sequences):  # `_end` takes them out of the very list
            self._end(sequence, end, now)

    def _end(self, sequence: Sequence, end: End, now: float) -> None:
        """Exactly one Finished per choice, whatever the end."""
        sequence.times.ended = now
        answer = self._answers.pop(sequence, None)
        if answer is not None:
            answer.give_up()
            if answer.undone >= 0:
                self._take_back(answer)
        self._totals.finished(sequence, now)
        if sequence.times.started:
            self._note(Kind.END, sequence, REASONS.index(end.reason), sequence.hidden)
        self._scheduler.finish(sequence)
        if answer is None:
            answer = Answer.unstarted(sequence, self._runner.vocab)
        self._events.extend(answer.finish(end, now))
        siblings = self._requests[sequence.request.id]
        siblings.remove(sequence)
        if not siblings:
            del self._requests[sequence.request.id]

    # -- looking ---------------------------------------------------------------------------------

    def stats(self) -> Stats:
        return self._totals.stats(self._scheduler, self._journal.records, self._journal.room)

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
                pool=sequence.pool,
            )
            for sequence in self._scheduler.running
        )

    def _queue(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.request.id for s in self._scheduler.waiting))
