"""One request's hold on the engine, seen from the API: its events, its place, its cancellation."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

from appliance.engine.commands import Expect, Submit
from appliance.engine.reports import Counts, Delta, Event, Finished, FirstLogits, Signals, Started
from appliance.errors import ApiError
from appliance.ledger.recovery import Recovered

CancelReason = Literal["cancelled", "deadline"]
Canceller = Literal["client", "operator", "box"]


class Account(Protocol):
    """What keeps the books of one request; `ledger.entry.Entry` is the real one. It hears every
    event, also those that nobody reads."""

    def event(self, event: Event) -> None: ...

    def cancelled(self, by: str) -> None:
        """Somebody (a `Canceller`) asked for its end."""
        ...

    def failed(self, error: ApiError) -> None:
        """The client was told this; what the engine did for it is not known yet."""
        ...

    def settle(self, lost: Recovered | None) -> None:
        """The engine is gone, and this is what its journal tells of a failed request."""
        ...


class Relay:
    """An `Account` that passes on all it hears, for those that listen in on some of it."""

    __slots__ = ("_account",)

    def __init__(self, account: Account) -> None:
        self._account = account

    def event(self, event: Event) -> None:
        self._account.event(event)

    def cancelled(self, by: str) -> None:
        self._account.cancelled(by)

    def failed(self, error: ApiError) -> None:
        self._account.failed(error)

    def settle(self, lost: Recovered | None) -> None:
        self._account.settle(lost)


class Ticket:
    """Made by `Supervisor.submit`. Belongs to the event loop.

    Every choice ends with one `Finished`, or all end at once with an exception from `next`.
    """

    def __init__(
        self,
        request: Submit,
        now: float,
        *,
        place: Callable[["Ticket"], int],
        cancel: Callable[["Ticket", CancelReason], None],
        account: Account | None = None,
    ) -> None:
        self.request = request
        self.account = account
        self.id = request.id
        self.submitted_at = now
        self.expect: Expect | None = None
        """How long it may become, as the engine was last told."""
        self.started_at: float | None = None
        self.first_at: float | None = None
        """When its first tokens were reported."""
        self.generated = 0
        """Tokens that have been reported, all choices together."""
        self._place = place
        self._cancel = cancel
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._open = request.n
        self._failure: ApiError | None = None
        self.on_signal: Callable[[Signals | FirstLogits], None] | None = None
        """Hears the model's signals, which neither the reader nor the account gets. On the event
        loop, once a step at most for each choice: it must be quick, and must not raise."""
        self.cancelled: CancelReason | None = None
        """Asked to end, for this reason; the engine may not have confirmed it yet."""

    @property
    def position(self) -> int:
        """Requests that start before this one; 0 once it has started."""
        return 0 if self.started_at is not None else self._place(self)

    @property
    def done(self) -> bool:
        """Nothing more will come (what came may still be unread)."""
        return self._open == 0 or self._failure is not None

    async def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None when none came within `timeout` seconds. Raises the ApiError that
        ended the request, and StopAsyncIteration after the last choice's Finished was read."""
        if not self._events and not self.done and not await self._wait(timeout):
            return None
        if self._events:
            return self._events.popleft()
        if self._failure is not None:
            raise self._failure
        if self.done:
            raise StopAsyncIteration
        return None

    async def _wait(self, timeout: float | None) -> bool:
        self._arrived.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def cancel(self, reason: CancelReason = "cancelled", by: Canceller = "operator") -> None:
        """Ends the request in whatever state; more than once is fine."""
        if self.cancelled is None and not self.done:
            self.cancelled = reason
            if self.account is not None:
                self.account.cancelled(by)
            self._cancel(self, reason)

    # -- for the supervisor ----------------------------------------------------------------------

    def put(self, event: Event) -> None:
        """An event from the engine, or one that the supervisor makes in its stead."""
        if self.done:
            return
        if isinstance(event, Signals | FirstLogits):
            if self.on_signal is not None:
                self.on_signal(event)
            return
        if self.account is not None:
            self.account.event(event)
        if isinstance(event, Started):
            self.started_at = event.at
        elif isinstance(event, Delta):
            self.generated += len(event.token_ids)
            if self.first_at is None:
                self.first_at = time.monotonic()
        elif isinstance(event, Finished):
            self._open -= 1
        self._events.append(event)
        self._arrived.set()

    def fail(self, error: ApiError) -> None:
        """All open choices end with this error, after what has already arrived."""
        if not self.done:
            self._failure = error
            if self.account is not None:
                self.account.failed(error)
            self._arrived.set()

    def end_unstarted(self, reason: CancelReason, now: float) -> None:
        """The request leaves the queue without ever having run: nothing was computed for it."""
        waited = (now - self.submitted_at) * 1e3
        counts = Counts(len(self.request.prompt), 0, 0, 0, 0, 0, 0.0, 0.0, waited, 0)
        for choice in range(self.request.n):
            self.put(Finished(self.id, choice, reason, "none", "", counts))
