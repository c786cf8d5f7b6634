"""One HTTP request in the engine: its tickets followed as one, until every choice has ended."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Literal

from msgspec import UNSET, UnsetType
from starlette.types import Receive

from appliance.api.answers import (
    Expected,
    Judged,
    Landed,
    Signal,
    Timings,
    bounded,
    landed,
    timings_from,
)
from appliance.api.faults import Cancelled
from appliance.api.ports import Ticket
from appliance.api.trace import ClientGone, Trace
from appliance.engine.reports import Counts, Delta, Event, Finished, FirstLogits, Signals, Started
from appliance.errors import ApiError, BadRequest, DeadlineExceeded, EngineFailed, usage
from appliance.observe.metrics import Metrics
from appliance.outlook import Band, Foreseen, Outlook, together

log = logging.getLogger("appliance.api")

HEADER_WAIT_S = 0.004
"""How long headers wait for a forecast; the first token comes later than that in any case."""
LINGER_S = 5.0
"""How long the counts of a cancelled request are waited for."""


class Flight:
    """The tickets of one request (one per prompt). Choices are numbered through: choice j of
    prompt i is i * n + j."""

    def __init__(
        self,
        tickets: Sequence[Ticket],
        trace: Trace,
        metrics: Metrics,
        outlooks: Sequence[Outlook] = (),
    ) -> None:
        """`outlooks`: what is foreseen, one a ticket; none while forecasts are off."""
        self.tickets = tickets
        self.outlooks = outlooks
        self.signals: Sequence[Sequence[Signals | FirstLogits]] = ()
        """Of each ticket, where they are kept."""
        self.trace = trace
        self.gone = False
        self._metrics = metrics
        self._n = tickets[0].request.n
        self._open = [self._n] * len(tickets)
        self._counts: list[dict[int, Counts]] = [{} for _ in tickets]
        self._waiting: dict[int, asyncio.Task[Event | None]] = {}
        self._first_delta = self._last_delta = 0.0
        self._told: dict[int, Foreseen] = {}
        self._came_at = self.position
        trace.tickets = tickets[0].id if len(tickets) == 1 else f"{tickets[0].id}x{len(tickets)}"
        trace.prompt_tokens = sum(len(ticket.request.prompt) for ticket in tickets)

    @property
    def position(self) -> int:
        """Requests that go first."""
        return max(ticket.position for ticket in self.tickets)

    @property
    def started(self) -> bool:
        return all(ticket.started_at is not None for ticket in self.tickets)

    @property
    def landed(self) -> bool:
        """Every choice has ended."""
        return not any(self._open)

    def timings_so_far(self) -> Timings:
        """For the chunk that is being written: measured here, exact only at the end."""
        ticket = self.tickets[0]
        decoding = max(0.0, self._last_delta - self._first_delta)
        started = ticket.started_at if ticket.started_at is not None else ticket.submitted_at
        return timings_from(
            cached=self.trace.cached_tokens,
            prompt=self.trace.prompt_tokens,
            prompt_ms=max(0.0, self._first_delta - started) * 1000,
            predicted=sum(ticket.generated for ticket in self.tickets),
            predicted_ms=decoding * 1000,
            choices=self._n * len(self.tickets),
        )

    @property
    def counts(self) -> list[list[Counts]]:
        """The costs of all ended choices, per prompt, in the order of the choices."""
        return [[found[choice] for choice in sorted(found)] for found in self._counts]

    def news(self, choice: int) -> Expected | UnsetType:
        """What is expected of a choice, if that has changed since this was last asked."""
        if not self.outlooks:
            return UNSET
        found = self.outlooks[choice // self._n].at(choice % self._n)
        told = self._told.get(choice)
        if told is not None and (found.p10, found.p50, found.p90) == (told.p10, told.p50, told.p90):
            return UNSET
        self._told[choice] = found
        return Expected(found.generated, found.p10, found.p50, found.p90, choice)

    @property
    def forecast(self) -> Band | None:
        """What was expected before it ran, all choices together; None while forecasts are off."""
        return together([outlook.first for outlook in self.outlooks]) if self.outlooks else None

    def expected(self) -> Expected | UnsetType:
        """The same beside what it came to."""
        band = self.forecast
        if band is None:
            return UNSET
        return Expected(self.trace.completion_tokens, band.p10, band.p50, band.p90)

    def judged(self, choice: int, asked: bool | None) -> Judged | UnsetType:
        """How likely a choice that has ended is right, for who asked; UNSET where nobody can
        tell."""
        verdicts = self.outlooks[choice // self._n].verdicts if asked and self.outlooks else None
        if verdicts is None:
            return UNSET
        value = verdicts.of(choice % self._n)
        return Judged(value, verdicts.claim) if value is not None else UNSET

    def signals_of(self, choice: int) -> list[Signal] | UnsetType:
        """As the answer has them; UNSET where nobody asked for them."""
        if not self.signals:
            return UNSET
        return [
            (one.generated, bounded(one.eos_margin), one.entropy, bounded(one.logprob))
            for one in self.signals[choice // self._n]
            if isinstance(one, Signals) and one.choice == choice % self._n
        ]

    def first_logits_of(self, choice: int) -> list[float] | UnsetType:
        """Of the first choice; UNSET where nobody asked for them, or none came."""
        if not self.signals or choice % self._n:
            return UNSET
        for one in self.signals[choice // self._n]:
            if isinstance(one, FirstLogits):
                values = memoryview(one.values).cast("f").tolist()
                return [round(bounded(value), 2) for value in values]
        return UNSET

    def landing(self, choice: int, end: Finished) -> Landed | UnsetType:
        """What became of the budget of a choice that ended so; UNSET where there was none."""
        return landed(self.tickets[choice // self._n].request, end)

    async def headers(self) -> dict[str, str]:
        """X-Queue-Position as it was at first, and X-Forecast-*: tokens of all choices together.
        Waits a moment for the forecast; then the rough estimate has to do."""
        found = {"X-Queue-Position": str(self._came_at)}
        until = time.monotonic() + HEADER_WAIT_S
        for outlook in self.outlooks:
            await outlook.within(until - time.monotonic())
        band = self.forecast
        if band is not None:
            found["X-Forecast-Tokens"] = str(band.p50)
            found["X-Forecast-Range"] = f"{band.p10}-{band.p90}"
        return found

    def cancel(self, by: Literal["client", "box"] = "box") -> None:
        """End every choice that is still open."""
        for ticket in self.tickets:
            ticket.cancel(by=by)

    def leave(self) -> None:
        """The client is gone: nobody reads the answer."""
        self.gone = True
        self.cancel(by="client")

    async def next(self, timeout: float | None = None) -> tuple[int, Event] | None:
        """The next event and the choice it is about (0 for `Started` and `Prefill`); None when
        nothing came in `timeout` seconds. Raises what ended the request early."""
        index = 0
        if len(self.tickets) == 1:
            event = await self._hear(0, self._ask(0, timeout))
        else:
            index, said = await self._ask_all(timeout)
            event = await self._hear(index, said) if said is not None else None
        if event is None:
            return None
        if isinstance(event, Finished):
            self._land(index, event)
        elif isinstance(event, Started):
            self.trace.cached_tokens += event.cached_tokens
        elif isinstance(event, Delta):
            self._count(index, event)
        choice = event.choice if isinstance(event, Delta | Finished) else 0
        return index * self._n + choice, event

    async def _hear(self, index: int, said: Awaitable[Event | None]) -> Event | None:
        """What a ticket says. An error ends its choices when it is heard, not when it came: nobody
        else would tell of it."""
        try:
            return await said
        except ApiError as fault:
            self._open[index] = 0
            self._metrics.pulse.tokens_sent += _told(fault)
            raise

    async def _ask(self, index: int, timeout: float | None) -> Event | None:
        try:
            return await self.tickets[index].next(timeout)
        except StopAsyncIteration:
            raise EngineFailed(
                "the engine ended the request before every choice was complete", code="incomplete"
            ) from None

    async def _ask_all(
        self, timeout: float | None
    ) -> tuple[int, asyncio.Task[Event | None] | None]:
        """Whichever ticket has something first; None when none has."""
        for index, left in enumerate(self._open):
            if left and index not in self._waiting:
                self._waiting[index] = asyncio.create_task(self._ask(index, None))
        done, _ = await asyncio.wait(
            self._waiting.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        for index, task in self._waiting.items():
            if task in done:
                del self._waiting[index]
                return index, task
        return 0, None

    def _count(self, index: int, delta: Delta) -> None:
        """Latencies as the client sees them; without streaming it sees none but the last."""
        if not self.tickets[index].request.stream:
            return
        now = time.monotonic()
        if not self.trace.ttft_ms:
            self._first((now - self.trace.started) * 1000, now)
            self._first_delta = now
        elif delta.token_ids and self._n == len(self.tickets) == 1:
            self._metrics.between((now - self._last_delta) / len(delta.token_ids), now)
        self._last_delta = now

    def _first(self, ttft_ms: float, now: float) -> None:
        self.trace.ttft_ms = ttft_ms
        self._metrics.first_token(ttft_ms, now)

    def _land(self, index: int, end: Finished) -> None:
        counts = end.counts
        self._open[index] -= 1
        self._counts[index][end.choice] = counts
        trace = self.trace
        trace.completion_tokens += counts.completion_tokens
        self._metrics.pulse.tokens_sent += counts.completion_tokens
        trace.queue_ms = max(trace.queue_ms, counts.queue_ms)
        if counts.completion_tokens and not trace.ttft_ms:
            waited = (self.tickets[index].submitted_at - trace.started) * 1000
            self._first(waited + counts.queue_ms + counts.prompt_ms, time.monotonic())
        self._raise_for(end)

    def _raise_for(self, end: Finished) -> None:
        """An end that is no answer, as the fault to tell the client, with what it cost."""
        if end.reason == "cancelled" and self.gone:
            raise ClientGone
        fault = self._fault(end)
        if fault is not None:
            if len(self.tickets) == self._n == 1:  # else the other choices' costs are still to come
                counts = end.counts
                fault.extra["usage"] = usage(counts.prompt_tokens, counts.completion_tokens)
            raise fault

    def _fault(self, end: Finished) -> ApiError | None:
        if end.reason == "cancelled":
            return Cancelled()
        if end.reason == "deadline":
            return DeadlineExceeded(
                "the request's deadline passed before its answer was complete: allow more time "
                "with deadline_s, or ask for fewer tokens"
            )
        return self._failed(end) if end.reason == "error" else None

    def _failed(self, end: Finished) -> ApiError:
        """A grammar can outgrow its limits, or forbid every token, long after it was proven to
        compile. That is the client's fault: to try it again would only cost as much again."""
        if self.tickets[0].request.grammar is not None:
            reason = end.message.replace("<non-verbose/>", "").strip()
            return BadRequest(
                "the answer could not be kept within the grammar, schema or tools of the request: "
                f"{reason}",
                code="grammar_failed",
            )
        return EngineFailed(end.message or "the engine gave up on this request", code="failed")

    async def land(self) -> None:
        """However the request ended: nothing of it stays in the engine, and its counts are in."""
        if not self.landed:
            self.cancel()
            await self._linger()
        for task in self._waiting.values():
            task.cancel()
        self._observe()

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                while not self.landed:
                    with suppress(ApiError, ClientGone):
                        await self.next()
        except TimeoutError:
            log.warning("request %s was cancelled, but its counts did not come", self.trace.tickets)

    def _observe(self) -> None:
        trace, now = self.trace, time.monotonic()
        if trace.ttft_ms:
            self._metrics.generated(
                prompt_tokens=trace.prompt_tokens,
                completion_tokens=trace.completion_tokens,
                queue_s=trace.queue_ms / 1000,
                ttft_s=trace.ttft_ms / 1000,
                latency_s=now - trace.started,
                now=now,
            )


def _told(fault: ApiError) -> int:
    """Completion tokens that an error tells of."""
    usage = fault.extra.get("usage")
    found = usage.get("completion_tokens") if isinstance(usage, dict) else 0
    return found if isinstance(found, int) else 0


@asynccontextmanager
async def following(flight: Flight, receive: Receive) -> AsyncIterator[None]:
    """Cancels the flight as soon as its client hangs up, and lands it at the end."""
    watcher = asyncio.create_task(_watch(flight, receive))
    try:
        yield
    finally:
        watcher.cancel()
        await flight.land()


async def _watch(flight: Flight, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    flight.leave()
