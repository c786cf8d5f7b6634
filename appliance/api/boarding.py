"""From checked submissions to tickets: admission, ledger, engine; all of them, or none.

The engine is given its work at once; the client is told nothing before the ledger has every
admission on disk. What is computed in the meantime is not wasted, and not lost either: should the
box die now, the token journal has it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from appliance.api.box import Aboard, Box
from appliance.api.flight import Flight
from appliance.api.passes import Pass
from appliance.api.ports import Ticket
from appliance.api.trace import Trace
from appliance.engine.journal import SEGMENT_RECORDS
from appliance.engine.messages import Submit
from appliance.errors import ApiError, Unavailable
from appliance.ledger.books import Caller, unavailable, until_durable
from appliance.ledger.entry import Entry
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import RequestRow
from appliance.snapshot import EngineSnapshot

JOURNAL_LOW = SEGMENT_RECORDS // 2
"""Records that must fit on a full disk for anything new to start: room for what already runs."""


@dataclass(slots=True)
class _Boarded:
    tickets: list[Ticket] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


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
) -> Flight:
    """The flight of these submissions. Raises Overloaded or Unavailable; nothing is left in the
    engine then. `allowed_s`: the time that the request may take, if bounded."""
    _check_accountable(box)
    boarded, quota = _Boarded(), pass_of(trace)
    quota.enter([len(submit.prompt) for submit in submits], tier)
    try:
        for part, (submit, text) in enumerate(zip(submits, texts, strict=True)):
            box.admission.admit(len(submit.prompt), submit.max_tokens * submit.n, allowed_s)
            _submit(box, trace, boarded, submit, text, tier, part, len(submits))
        await until_durable(boarded.entries)
    except BaseException:
        quota.cut(len(boarded.entries))
        for ticket in boarded.tickets:
            ticket.cancel(by="box")
        raise
    return Flight(boarded.tickets, trace, box.metrics)


def _submit(
    box: Box,
    trace: Trace,
    boarded: _Boarded,
    submit: Submit,
    text: str,
    tier: str,
    part: int,
    parts: int,
) -> None:
    submit = box.books.number(submit, trace.key_id)
    caller = caller_of(trace, trace.route)
    entry = box.books.open(
        caller,
        submit,
        tier=tier,
        prompt_text=text,
        part=part,
        parts=parts,
        on_close=lambda row: _closed(box, trace, row),
    )
    trace.admitted = True
    box.aboard[submit.id] = Aboard(trace.key_name, trace.tenant, trace.scenario, tier)
    boarded.entries.append(entry)
    try:
        boarded.tickets.append(box.supervisor.submit(submit, pass_of(trace).metered(entry, part)))
    except ApiError as error:
        entry.failed(error)
        entry.settle(None)
        raise


def _closed(box: Box, trace: Trace, row: RequestRow) -> None:
    """A final row was made: what else counts it."""
    pass_of(trace).closed(row)
    box.aboard.pop(row.id, None)
    box.metrics.pulse.close(row.outcome, row.completion_tokens, time.monotonic())
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
