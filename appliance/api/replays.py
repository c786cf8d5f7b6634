"""Replays: recorded answers run through the engine again, their own tokens forced.

Rules
1. One at a time in the box, in the order in which they were asked for; few may wait.
2. One per answer, ever: its report is stored, and a wrong digest cannot make the box work twice.
   One that failed may be tried again, but not often.
3. A replay is a request like any other: admitted, accounted, cancelled by an operator.
"""

import asyncio
import dataclasses
import logging
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from appliance.api import replay_report as reports
from appliance.api.audit_faults import NotReplayable
from appliance.api.boarding import board
from appliance.api.box import Box
from appliance.api.faults import Internal
from appliance.api.passes import Pass
from appliance.api.replay_report import Report
from appliance.api.trace import Trace
from appliance.engine.commands import Submit
from appliance.engine.reports import Counts, Delta, Finished, TokenLogprob
from appliance.errors import ApiError, Overloaded
from appliance.ledger.audits import Audit, Found
from appliance.ledger.books import unavailable
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Payload, Replay

log = logging.getLogger("appliance.api")

SCENARIO = "audit.replay"
MOST_WAITING = 16
MOST_FAILED = 3


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to replay."""

    found: Found
    choice: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    trace: Trace
    """The request that asks for it."""

    @property
    def key(self) -> tuple[int, int]:
        return self.found.row.number, self.choice


@dataclass(frozen=True, slots=True)
class Done:
    """A replay and its place in the ledger."""

    seq: int
    report: Report


Outcome = Done | ApiError
"""An ApiError: it could not be run, or not be written down."""


class Replays:
    """The one queue of replays. Belongs to the event loop."""

    def __init__(self, run: Callable[[Job], Awaitable[Outcome]]) -> None:
        self._run = run
        self._asked: dict[tuple[int, int], tuple[Job, asyncio.Future[Outcome]]] = {}
        self._worker: asyncio.Task[None] | None = None

    def waits(self, number: int, choice: int) -> bool:
        """Whether this answer's replay runs or waits."""
        return (number, choice) in self._asked

    def ask(self, job: Job) -> tuple[asyncio.Future[Outcome], bool]:
        """The future of this answer's replay, and whether it is the one that runs now. Raises
        Overloaded."""
        if job.key not in self._asked:
            if len(self._asked) > MOST_WAITING:
                raise Overloaded(
                    f"{len(self._asked)} replays wait already: ask again later", retry_after=30
                )
            future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            self._asked[job.key] = job, future
            if self._worker is None or self._worker.done():
                self._worker = asyncio.create_task(self._work(), name="replays")
        return self._asked[job.key][1], next(iter(self._asked)) == job.key

    async def close(self) -> None:
        """Ends what runs; what waits is lost, and can be asked for again."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        while self._asked:
            key, (job, future) = next(iter(self._asked.items()))
            try:
                outcome = await self._run(job)
            except ApiError as fault:
                outcome = fault
            except Exception:
                log.exception("the replay of %s failed by a bug of ours", job.found.row.id)
                outcome = Internal(job.trace.request_id)
            finally:
                del self._asked[key]
            future.set_result(outcome)


def replayer(box: Callable[[], Box]) -> Replays:
    """The queue of this box; `box` is asked when a replay's turn has come."""

    def run(job: Job) -> Awaitable[Outcome]:
        return replay(box(), job)

    return Replays(run)


async def replay(box: Box, job: Job) -> Done:
    """Runs the job and writes its report down. Raises ApiError when it could not even start, or
    not be written down."""
    if job.found.row.model_sha256 != box.model.sha256:
        raise NotReplayable(
            f"the box went over to the model {box.model.name} before its turn came, and another "
            "model would say nothing of it"
        )
    entries, end, note = await _forced(box, job) if job.answer else ([], None, "")
    report = _report(box, job, entries, end, note)
    row = job.found.row
    entry = Replay(
        wall_ns=report.replayed_wall_ns,
        number=row.number,
        id=row.id,
        trace_id=row.trace_id,
        key_id=job.trace.key_id,
        choice=job.choice,
        result=report.result,
        positions=report.positions,
        differing=report.differing,
        facts=report.facts,
    )
    payload = Payload(report=zlib.compress(msgspec.json.encode(report)))
    try:
        return Done(await asyncio.wrap_future(box.ledger.act(entry, payload)), report)
    except LedgerError as error:
        raise unavailable(error) from error


async def _forced(box: Box, job: Job) -> tuple[list[TokenLogprob], Counts | None, str]:
    """What the engine says at every position, and why it stopped early, if it did."""
    # A trace of its own: the request that asked may have been answered long before.
    quota = Pass(box.quotas, job.trace.holder)
    trace = dataclasses.replace(
        job.trace, scenario=SCENARIO, admitted=False, tickets="", quota=quota
    )
    quota.knock()
    submit = Submit(
        id="replay-" + secrets.token_hex(12),
        prompt=job.prompt,
        max_tokens=len(job.answer),
        sampling=reports.replayed_sampling(reports.sampling_of(job.found.row), job.choice),
        stream=True,
        cache_prompt=False,
        exclusive=box.config.limits.exclusive,
        forced=job.answer,
        budget=reports.budget_of(job.found.row),
        lora=box.adapters.of_record(reports.lora_of(job.found.row)),
    )
    flight = await board(box, trace, [submit], [""], tier="default", allowed_s=None)
    entries: list[TokenLogprob] = []
    try:
        while not flight.landed:
            got = await flight.next()
            event = got[1] if got is not None else None
            if isinstance(event, Delta):
                entries += event.logprobs
            elif isinstance(event, Finished):
                return entries, event.counts, event.message
    except ApiError as fault:
        return entries, None, fault.message
    finally:
        await flight.land()
    return entries, None, ""


def _report(
    box: Box, job: Job, entries: Sequence[TokenLogprob], end: Counts | None, note: str
) -> Report:
    row = job.found.row
    unknown = reports.grammar_unknown(row)
    budget = reports.budget_of(row)
    steps = reports.steps_of(entries, len(job.prompt), grammar_unknown=unknown, budget=budget)
    differing = [step.position for step in steps if step.equal is False]
    return Report(
        id=row.id,
        number=row.number,
        choice=job.choice,
        digest=row.choices[job.choice].digest,
        replayed_wall_ns=time.time_ns(),
        result=reports.result_of(steps, len(job.answer)),
        positions=len(steps),
        differing=len(differing),
        first_difference=differing[0] if differing else None,
        facts=reports.facts_of(row, box.books.identity, replay=end),
        note=note,
        steps=steps,
    )


def settled(audits: Sequence[Audit], choice: int) -> Audit | None:
    """The replay that stands for this choice; None when one may (still) be run."""
    ran = [a for a in audits if isinstance(a.row, Replay) and a.row.choice == choice]
    for audit in reversed(ran):
        if isinstance(audit.row, Replay) and audit.row.result != "failed":
            return audit
    return ran[-1] if len(ran) >= MOST_FAILED else None
