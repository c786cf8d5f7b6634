"""The requests that the box holds, and their fate when the engine that worked on them is gone.

Rules: a request that has started when the engine dies gets one typed error, at once; one that was
still waiting stays for the next engine. Whatever its client was told, each account is closed
exactly once: by the engine's last word, or with what the dead engine's journal tells.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from appliance.engine.commands import Pool, Submit
from appliance.engine.reports import Event, Started
from appliance.errors import ApiError, EngineFailed
from appliance.ledger.recovery import Lost
from appliance.snapshot import QueueSnapshot
from appliance.ticket import Account, CancelReason, Ticket
from appliance.watchdog import Cause


class Tickets:
    """All open tickets. `cancel` is asked to tell the engine, and says whether there is one."""

    def __init__(self, cancel: Callable[[Ticket, CancelReason], bool]) -> None:
        self._tell_engine = cancel
        self._open: dict[str, Ticket] = {}
        self.starts = 0
        """Requests that have ever started."""
        self.batch = 0
        """Open requests of pool B. Any thread may read both."""
        self.order: Mapping[str, int] = {}
        """The place of each waiting request, as the engine last told."""
        self._unsettled: list[Ticket] = []
        """Failed before the engine told what it had computed for them: its journal knows."""

    @property
    def open(self) -> Mapping[str, Ticket]:
        """Those that have not ended, in the order in which they came."""
        return MappingProxyType(self._open)

    @property
    def queue(self) -> QueueSnapshot:
        waiting = list(self._waiting())
        oldest = min((t.submitted_at for t in waiting), default=0.0)
        return QueueSnapshot(
            running=len(self._open) - len(waiting),
            waiting=len(waiting),
            waiting_tokens=sum(len(t.request.prompt) for t in waiting),
            oldest_wait_s=time.monotonic() - oldest if waiting else 0.0,
        )

    def add(self, request: Submit, account: Account | None) -> Ticket:
        """A ticket for a new request."""
        ticket = Ticket(
            request, time.monotonic(), place=self._place, cancel=self._cancel, account=account
        )
        self._open[request.id] = ticket
        self.batch += request.pool == "b"
        return ticket

    def move(self, ticket: Ticket, priority: int, pool: Pool) -> None:
        """Gives it another priority and pool."""
        self.batch += (pool == "b") - (ticket.request.pool == "b")
        ticket.request = replace(ticket.request, priority=priority, pool=pool)

    def deliver(self, event: Event) -> None:
        """Passes on what the engine says."""
        ticket = self._open.get(event.id)
        if ticket is None:
            return
        self.starts += isinstance(event, Started)
        ticket.put(event)
        if ticket.done:
            self._forget(ticket)

    def expire_waiting(self) -> None:
        """Without an engine, deadlines are ours to keep."""
        now = time.monotonic()
        for ticket in list(self._waiting()):
            deadline = ticket.request.deadline
            if deadline is not None and now >= deadline:
                self._end_unstarted(ticket, "deadline")

    def fail_all(self, error: ApiError) -> None:
        """Every client is told this; the accounts stay open until `settle`."""
        for ticket in list(self._open.values()):
            self._fail(ticket, error)

    def fail_waiting(self, error: ApiError) -> None:
        """The same of those that have not started."""
        for ticket in list(self._waiting()):
            self._fail(ticket, error)

    def engine_died(self, cause: Cause, lost: Lost) -> None:
        """Ends what had started, and what was cancelled: the next engine must not run it. The rest
        stays in the queue."""
        message = f"the engine {cause.message} while it worked on this request; send it again"
        # Known to the journal alone: its start was told, and nobody had read it yet.
        started = [
            ticket
            for ticket in self._open.values()
            if ticket.started_at is not None or ticket.request.number in lost.requests
        ]
        # A request that was alone may be what killed the engine: SDKs must not send it at once
        # again, and again, until the box gives up.
        headers = {"x-should-retry": "false"} if len(started) == 1 else {}
        for ticket in started:
            self._fail(ticket, EngineFailed(message, code=cause.code, headers=headers))
        for ticket in list(self._open.values()):
            if ticket.cancelled is not None:
                self._end_unstarted(ticket, ticket.cancelled)
        self.settle(lost)

    def settle(self, lost: Lost) -> None:
        """Closes the account of every request that failed with what was computed for it."""
        failed, self._unsettled = self._unsettled, []
        for ticket in failed:
            if ticket.account is not None:
                ticket.account.settle(lost.requests.get(ticket.request.number))

    def waiting(self) -> list[Ticket]:
        """Those that wait, in the order in which they will start as far as that is known."""
        return sorted(self._waiting(), key=self.turn)

    def _waiting(self) -> Iterator[Ticket]:
        return (t for t in self._open.values() if t.started_at is None)

    def _place(self, ticket: Ticket) -> int:
        order = self.turn(ticket)
        return sum(1 for other in self._waiting() if self.turn(other) < order)

    def turn(self, ticket: Ticket) -> tuple[Pool, int, int, float]:
        """What waiting requests are sorted by: pool and priority, then the engine's own order as
        far as it has told, and after those by arrival."""
        told, request = self.order.get(ticket.id, len(self.order)), ticket.request
        return request.pool, request.priority, told, ticket.submitted_at

    def _cancel(self, ticket: Ticket, reason: CancelReason) -> None:
        if not self._tell_engine(ticket, reason):
            self._end_unstarted(ticket, reason)

    def _end_unstarted(self, ticket: Ticket, reason: CancelReason) -> None:
        ticket.end_unstarted(reason, time.monotonic())
        self._forget(ticket)

    def _fail(self, ticket: Ticket, error: ApiError) -> None:
        ticket.fail(error)
        self._forget(ticket)
        self._unsettled.append(ticket)

    def _forget(self, ticket: Ticket) -> None:
        if self._open.pop(ticket.id, None) is not None:
            self.batch -= ticket.request.pool == "b"
