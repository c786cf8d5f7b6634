"""From checked submissions to tickets: admission, ledger, engine; all of them, or none.

The engine is given its work at once; the client is told nothing before the ledger has every
admission on disk. What is computed in the meantime is not wasted, and not lost either: should the
box die now, the token journal has it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from appliance.api.box import Aboard, Box
from appliance.api.flight import Flight
from appliance.api.passes import Pass
from appliance.api.ports import Ticket
from appliance.api.trace import Trace
from appliance.engine.commands import Expect, Submit
from appliance.engine.journal import SEGMENT_RECORDS
from appliance.engine.landing import SLACK
from appliance.engine.reports import FirstLogits, Signals
from appliance.errors import ApiError, Unavailable
from appliance.expected import Table
from appliance.forecast.question import Question
from appliance.ledger.books import Caller, unavailable, until_durable
from appliance.ledger.entry import Entry, unforeseen, unjudged
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import RequestRow
from appliance.outlook import Outlook, Watched
from appliance.snapshot import EngineSnapshot

JOURNAL_LOW = SEGMENT_RECORDS // 2
"""Records that must fit on a full disk for anything new to start: room for what already runs."""


@dataclass(slots=True)
class _Boarded:
    tickets: list[Ticket] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    outlooks: list[Outlook] = field(default_factory=list)
    signals: list[list[Signals | FirstLogits]] = field(default_factory=list)
    cut: bool = False
    """It came to nothing: no client is told of what the engine computes for it."""
    ended_tok: int = 0
    """Completion tokens of the rows that were made by then."""


def pass_of(trace: Trace) -> Pass:
    """The pass that the request got at the door."""
    assert trace.quota is not None, "every generating route gives one"
    return trace.quota


def caller_of(trace: Trace, route: str) -> Caller:
    """Who asks, as the ledger keeps it."""
    return Caller(
        trace_id=trace.trace_id,
        request_id=trace.request_id,
        route=route,
        key_id=trace.key_id,
        key_name=trace.key_name,
        tenant=trace.tenant,
        scenario=trace.scenario,
        received=trace.started,
    )


async def board(
    box: Box,
    trace: Trace,
    submits: Sequence[Submit],
    texts: Sequence[str],
    *,
    tier: str,
    allowed_s: float | None,
    questions: Sequence[Question] = (),
    keep_signals: bool = False,
) -> Flight:
    """The flight of these submissions. Raises Overloaded or Unavailable; nothing is left in the
    engine then. `allowed_s`: the time that the request may take, if bounded. `questions`: what is
    to be forecast, one a submission; none where nothing is. `keep_signals`: for the answer."""
    _check_accountable(box)
    boarded, quota = _Boarded(), pass_of(trace)
    quota.enter([len(submit.prompt) for submit in submits], tier)
    try:
        for part, (submit, text) in enumerate(zip(submits, texts, strict=True)):
            box.admission.admit(len(submit.prompt), submit.max_tokens * submit.n, allowed_s)
            outlook = _outlook(box, boarded, submit, questions[part : part + 1])
            _submit(box, trace, boarded, submit, text, tier, part, len(submits), outlook)
            if keep_signals:
                boarded.signals.append(_kept(boarded.tickets[-1]))
        # The engine has its work by now: forecasts are made beside it.
        for ticket in boarded.tickets:
            _expect_agreed(box, ticket)
        tells = [partial(_expect, box, ticket.id) for ticket in boarded.tickets]
        for outlook, question, tell in zip(boarded.outlooks, questions, tells, strict=False):
            box.forecasts.begin(outlook, question, tell)
        await until_durable(boarded.entries)
    except BaseException:
        quota.cut(len(boarded.entries))
        boarded.cut = True
        box.metrics.pulse.tokens_sent += boarded.ended_tok
        for ticket in boarded.tickets:
            ticket.cancel(by="box")
        raise
    flight = Flight(boarded.tickets, trace, box.metrics, boarded.outlooks)
    flight.signals = boarded.signals
    return flight


def _outlook(
    box: Box, boarded: _Boarded, submit: Submit, questions: Sequence[Question]
) -> Outlook | None:
    """What is foreseen of a submission; None where nothing is to be."""
    if not questions or not box.forecasts.enabled:
        return None
    boarded.outlooks.append(box.forecasts.outlook(questions[0], submit.n))
    return boarded.outlooks[-1]


def _submit(
    box: Box,
    trace: Trace,
    boarded: _Boarded,
    submit: Submit,
    text: str,
    tier: str,
    part: int,
    parts: int,
    outlook: Outlook | None,
) -> None:
    submit = box.books.number(submit, trace.key_id)
    caller = caller_of(trace, trace.route)
    verdicts = outlook.verdicts if outlook is not None else None
    entry = box.books.open(
        caller,
        submit,
        tier=tier,
        prompt_text=text,
        part=part,
        parts=parts,
        on_close=lambda row: _closed(box, trace, row, outlook, boarded),
        forecast=outlook.row if outlook is not None else unforeseen,
        judged=verdicts.row if verdicts is not None else unjudged,
        lora=box.adapters.recorded(submit.lora),
    )
    if verdicts is not None:
        verdicts.answers = entry.tokens
    trace.admitted = True
    box.aboard[submit.id] = Aboard(trace.key_name, trace.tenant, trace.scenario, tier, outlook)
    boarded.entries.append(entry)
    account = pass_of(trace).metered(entry, part)
    try:
        if outlook is None:
            boarded.tickets.append(box.supervisor.submit(submit, account))
        else:
            ticket = box.supervisor.submit(submit, Watched(account, outlook))
            ticket.on_signal = outlook.signal
            boarded.tickets.append(ticket)
    except ApiError as error:
        entry.failed(error)
        entry.settle(None)
        raise


def _expect(box: Box, id: str, table: Table) -> None:
    """The engine learns how long an answer may become."""
    box.supervisor.orders.expect(Expect(id, table.tokens, table.survival))


def _expect_agreed(box: Box, ticket: Ticket) -> None:
    """Where a length was agreed on, that is how long the answer becomes."""
    budget = ticket.request.budget
    if budget is not None:
        ends = (max(0, budget.tokens - SLACK - 1), budget.tokens + SLACK)
        _expect(box, ticket.id, Table(ends, (1.0, 0.0)))


def _kept(ticket: Ticket) -> list[Signals | FirstLogits]:
    """Where the ticket's signals are kept from now on."""
    kept: list[Signals | FirstLogits] = []
    hears = ticket.on_signal

    def keep(signal: Signals | FirstLogits) -> None:
        kept.append(signal)
        if hears is not None:
            hears(signal)

    ticket.on_signal = keep
    return kept


def _closed(
    box: Box, trace: Trace, row: RequestRow, outlook: Outlook | None, boarded: _Boarded
) -> None:
    """A final row was made: what else counts it."""
    pass_of(trace).closed(row)
    boarded.ended_tok += row.completion_tokens
    if boarded.cut:
        box.metrics.pulse.tokens_sent += row.completion_tokens
    box.aboard.pop(row.id, None)
    if outlook is not None:
        box.forecasts.ended(outlook, row)
    box.metrics.pulse.close(row.outcome, row.completion_tokens, time.monotonic())
    box.metrics.pulse.forecasts.ended(row)
    if row.costs is not None:
        box.metrics.cost(row.model, row.tenant, row.costs)


def _check_accountable(box: Box) -> None:
    """Raises Unavailable while tokens could not be written down."""
    ledger = box.ledger.snapshot
    if not ledger.ok:
        raise unavailable(LedgerError(ledger.problem))
    if journal_low(box.supervisor.snapshot):
        raise Unavailable(
            "the disk is full: the box has no room to write down the tokens of another answer. "
            "Free some space; it goes on by itself",
            retry_after=5,
            code="journal_full",
        )


def journal_low(engine: EngineSnapshot) -> bool:
    """Whether the engine could not get room for another journal segment."""
    return engine.stats.journal_records > 0 and engine.stats.journal_room < JOURNAL_LOW
