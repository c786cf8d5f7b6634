"""The account of one request, from its admission to its one final row.

An entry hears every event of its ticket, read by a client or not. It closes by itself when the
engine has ended every choice. Where a client was told of a failure first (the engine died, the box
stops), it waits for `settle`: what the engine had computed is then read from the token journal.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from msgspec.structs import replace

from appliance.engine.commands import Submit
from appliance.engine.reports import Counts, Delta, Event, Finished, Started
from appliance.errors import ApiError, EngineFailed, usage
from appliance.ledger.recovery import Recovered
from appliance.ledger.rows import Admitted, ChoiceRow, Costs, Facts, Outcome, Payload, RequestRow
from appliance.ledger.verify import pack_tokens, token_digest

_CANCELLED: Mapping[str, tuple[str, int]] = {
    "client": ("client_gone", 0),
    "operator": ("cancelled", 499),
    "box": ("unavailable", 503),
}
"""Who ended a request: the row's code, and the HTTP status where it had none yet."""
_STATUS: Mapping[Outcome, int] = {"stop": 200, "length": 200, "deadline": 408}
_WORST: tuple[Outcome, ...] = (
    "interrupted", "failed", "deadline", "cancelled", "length", "stop",
)  # fmt: skip
"""Of several choices, the row's outcome is the first of these that occurs."""
_SHUTDOWN = frozenset({"shutting_down"})


@dataclass(frozen=True, slots=True)
class Texts:
    """Which texts are stored, and what strikes out of them what must not be. None: not stored."""

    prompts: Callable[[str], str] | None = None
    answers: Callable[[str], str] | None = None


Energy = tuple[int | None, str]
"""What a request drew, in microjoules, and what measured it. None: not measured."""


def unmeasured(row: RequestRow) -> Energy:
    """Where nothing measures."""
    return None, ""


def unforeseen() -> Mapping[str, Any] | None:
    """Where nothing is forecast."""
    return None


def unjudged() -> Mapping[str, Any]:
    """Where nothing is told of an answer that has ended."""
    return {}


class Recorder(Protocol):
    """Takes final rows; `writer.Ledger` is the real one."""

    def record_made(self, make: Callable[[], tuple[RequestRow, Payload | None]]) -> object: ...


class Entry:
    """One submission. Belongs to the event loop; implements `ticket.Account`."""

    def __init__(
        self,
        recorder: Recorder,
        facts: Admitted,
        request: Submit,
        durable: "Future[int]",
        *,
        costing: Callable[[RequestRow], Costs | None],
        on_close: Callable[[RequestRow], None],
        prompt_text: str,
        texts: Texts,
        energy: Callable[[RequestRow], Energy] = unmeasured,
        forecast: Callable[[], Mapping[str, Any] | None] = unforeseen,
        judged: Callable[[], Mapping[str, Any]] = unjudged,
    ) -> None:
        """`judged`: what the row's forecast gains by the answers; asked on the ledger's thread."""
        self.durable = durable
        """Resolved once the `admitted` row is on disk."""
        self.open = True
        self._recorder = recorder
        self._facts = facts
        self._request = request
        self._costing = costing
        self._energy = energy
        self._forecast = forecast
        self._judged = judged
        self._on_close = on_close
        self._prompt_text = prompt_text
        self._texts = texts
        self._submitted_ns = time.monotonic_ns()
        self._tokens: list[list[int]] = [[] for _ in range(request.n)]
        self._said: list[list[str]] = [[] for _ in range(request.n)]
        self._ends: dict[int, Finished] = {}
        self._started_ns = 0
        self._cached = 0
        self._cancelled_by = ""
        self._error: ApiError | None = None

    # -- what happens ----------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """One event of the engine, or of the supervisor in its stead."""
        if isinstance(event, Started):
            self._started_ns, self._cached = _ns(event.at), event.cached_tokens
        elif isinstance(event, Delta):
            self._tokens[event.choice].extend(event.token_ids)
            if self._texts.answers is not None:
                self._said[event.choice].append(event.text)
        elif isinstance(event, Finished):
            self._ends[event.choice] = event
            if len(self._ends) == self._request.n and self._error is None:
                self._close(self._row())

    def cancelled(self, by: str) -> None:
        """Somebody asked for its end."""
        self._cancelled_by = by

    def failed(self, error: ApiError) -> None:
        """Its client was told this. `settle` follows."""
        self._error = error

    def settle(self, lost: Recovered | None) -> None:
        """The engine is gone; `lost` is what its journal tells of this request, if anything."""
        if self.open:
            if lost is not None:
                self._tokens = [lost.tokens.get(i, []) for i in range(self._request.n)]
            row = self._interrupted(lost)
            if isinstance(self._error, EngineFailed):
                self._error.extra["usage"] = usage(row.prompt_tokens, row.completion_tokens)
            self._close(row)

    # -- the row ---------------------------------------------------------------------------------

    def _close(self, row: RequestRow) -> None:
        self.open = False
        uj, source = self._energy(row)
        row = replace(row, energy_uj=uj, energy_source=source, forecast=self._forecast())
        row = replace(row, costs=self._costing(row))

        @cache
        def packed() -> tuple[RequestRow, Payload]:
            return self._with_digests(row), self._payload()

        # Called on the ledger's thread, so that hashing and packing hold up no stream; again at
        # each attempt to write, so they are done once.
        self._recorder.record_made(lambda: (self._as_told(packed()[0]), packed()[1]))
        self._on_close(row)

    @property
    def tokens(self) -> Sequence[Sequence[int]]:
        """Token ids of each choice so far."""
        return self._tokens

    def _with_digests(self, row: RequestRow) -> RequestRow:
        choices = with_digests(row.choices, self._request.prompt, self._tokens)
        forecast = {**row.forecast, **self._judged()} if row.forecast is not None else None
        return replace(row, choices=choices, forecast=forecast)

    def _as_told(self, row: RequestRow) -> RequestRow:
        """Where the admission could not be written the client got an error, whatever the engine
        made of the request."""
        if self.durable.done() and self.durable.exception() is not None:
            return replace(row, outcome="cancelled", code="ledger_unavailable", status=503)
        return row

    def _payload(self) -> Payload:
        return Payload(
            tokens=pack_tokens([self._request.prompt, *self._tokens]),
            prompt=_kept(self._prompt_text, self._texts.prompts),
            answers=_kept("\x1e".join("".join(said) for said in self._said), self._texts.answers),
        )

    def _row(self) -> RequestRow:
        counts = [self._ends[choice].counts for choice in sorted(self._ends)]
        outcome = _worst([_outcome(end) for end in self._ends.values()])
        code, status = self._ending(outcome)
        return request_row(
            self._facts,
            outcome=outcome,
            status=200 if self._facts.stream else status,
            code=code,
            choices=tuple(self._choice(self._ends[i]) for i in sorted(self._ends)),
            submitted_ns=self._submitted_ns,
            counts=counts,
        )

    def _ending(self, outcome: Outcome) -> tuple[str, int]:
        if outcome == "cancelled":
            return _CANCELLED.get(self._cancelled_by, ("cancelled", 499))
        if outcome == "deadline":
            return "deadline_exceeded", 408
        if outcome == "failed":
            # As api/flight.py tells it: a grammar that cannot be kept is the client's fault.
            return ("grammar_failed", 400) if self._request.grammar is not None else ("failed", 500)
        return "", _STATUS[outcome]

    def _choice(self, end: Finished) -> ChoiceRow:
        return ChoiceRow(
            outcome=_outcome(end),
            stop_type=end.stop_type,
            completion_tokens=end.counts.completion_tokens,
            hidden_tokens=end.counts.hidden_tokens,
            digest="",
            landing=end.landing,
        )

    def _interrupted(self, lost: Recovered | None) -> RequestRow:
        error = self._error
        code = str(error.code or error.type) if error is not None else "interrupted"
        outcome: Outcome = "interrupted" if code in _SHUTDOWN or error is None else "failed"
        row = lost_row(self._facts, self._tokens, lost, outcome=outcome, code=code)
        status = 200 if self._facts.stream and self._started_ns else error.status if error else 0
        return replace(
            row,
            status=status,
            submitted_ns=self._submitted_ns,
            started_ns=row.started_ns or self._started_ns,
            cached_tokens=row.cached_tokens or self._cached,
        )


def request_row(
    facts: Facts,
    *,
    outcome: Outcome,
    status: int,
    code: str,
    choices: tuple[ChoiceRow, ...],
    submitted_ns: int,
    counts: list[Counts],
) -> RequestRow:
    """The final row of a request whose engine told its counts, one per choice."""
    first = counts[0]
    started = [_ns(c.started) for c in counts if c.started]
    first_token = [_ns(c.first_token) for c in counts if c.first_token]
    return RequestRow(
        **{**asdict_of(facts), "wall_ns": time.time_ns()},
        outcome=outcome,
        status=status,
        code=code,
        choices=choices,
        submitted_ns=submitted_ns,
        started_ns=min(started, default=0),
        first_token_ns=min(first_token, default=0),
        ended_ns=max((_ns(c.ended) for c in counts), default=0) or time.monotonic_ns(),
        cached_tokens=first.cached_tokens,
        prefill_tokens=sum(c.prefill_tokens for c in counts),
        completion_tokens=sum(c.completion_tokens for c in counts),
        hidden_tokens=sum(c.hidden_tokens for c in counts),
        computed_tokens=sum(c.computed_tokens for c in counts),
        drafted_tokens=sum(c.drafted_tokens for c in counts),
        accepted_tokens=sum(c.accepted_tokens for c in counts),
        prefill_ns=sum(c.prefill_ns for c in counts),
        decode_ns=sum(c.decode_ns for c in counts),
        parallel=max(c.parallel for c in counts),
        preemptions=sum(c.preemptions for c in counts),
        exclusive=all(c.exclusive for c in counts),
    )


def lost_row(
    facts: Facts,
    tokens: list[list[int]],
    lost: Recovered | None,
    *,
    outcome: Outcome,
    code: str,
) -> RequestRow:
    """The final row of a request whose engine is gone: exact in tokens, without device time (what
    the box itself broke costs its tenant nothing). Tokens alone are known when `lost` is None."""
    ended = lost.ended if lost is not None else {}
    return RequestRow(
        **{**asdict_of(facts), "wall_ns": time.time_ns()},
        outcome=outcome,
        status=0,
        code=code,
        choices=_lost_choices(tokens, ended, outcome),
        submitted_ns=0,
        started_ns=lost.started_ns if lost is not None else 0,
        first_token_ns=lost.first_token_ns if lost is not None else 0,
        ended_ns=lost.last_ns if lost is not None else time.monotonic_ns(),
        cached_tokens=lost.cached_tokens if lost is not None else 0,
        prefill_tokens=lost.prefill_tokens if lost is not None else 0,
        completion_tokens=sum(map(len, tokens)),
        hidden_tokens=lost.hidden_tokens if lost is not None else 0,
        drafted_tokens=0,
        accepted_tokens=0,
        prefill_ns=0,
        decode_ns=0,
        parallel=0,
        preemptions=0,
        exclusive=False,
        recovered=lost is not None,
        exact=lost is None or not lost.gaps,
    )


def with_digests(
    choices: Sequence[ChoiceRow], prompt: Sequence[int], tokens: Sequence[Sequence[int]]
) -> tuple[ChoiceRow, ...]:
    """The same, each with the digest over the prompt and its own tokens."""
    return tuple(
        replace(choice, digest=token_digest(prompt, ids))
        for choice, ids in zip(choices, tokens, strict=True)
    )


def _lost_choices(
    tokens: list[list[int]],
    ended: Mapping[int, tuple[str, int]],
    outcome: Outcome,
) -> tuple[ChoiceRow, ...]:
    """Without digests: they are over the prompt too, which the journal does not have."""
    made = []
    for choice, ids in enumerate(tokens):
        reason, hidden = ended.get(choice, ("", 0))
        made.append(
            ChoiceRow(
                outcome=_OUTCOMES.get(reason, outcome),
                stop_type="none",
                completion_tokens=len(ids),
                hidden_tokens=hidden,
                digest="",
            )
        )
    return tuple(made)


_OUTCOMES: Mapping[str, Outcome] = {
    "stop": "stop",
    "length": "length",
    "cancelled": "cancelled",
    "deadline": "deadline",
    "error": "failed",
}


def _kept(text: str, keep: Callable[[str], str] | None) -> str | None:
    return keep(text) if keep is not None else None


def _outcome(end: Finished) -> Outcome:
    return _OUTCOMES[end.reason]


def _worst(outcomes: list[Outcome]) -> Outcome:
    return min(outcomes, key=_WORST.index)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def asdict_of(facts: Facts) -> dict[str, Any]:
    """The members that every entry of a request shares."""
    return {name: getattr(facts, name) for name in Facts.__struct_fields__}
