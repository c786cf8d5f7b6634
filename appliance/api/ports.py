"""What the HTTP interface needs of the parts behind it, and no more.

The daemon's supervisor and admission fit these; so do the scripted ones of the tests.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Literal, Protocol

from appliance.engine.messages import Event, Signals, Submit
from appliance.ledger.books import Ledger as Recording
from appliance.ledger.rows import Action, Archived, Conflict, Note, Payload, Replay, RequestRow
from appliance.ledger.writer import LedgerSnapshot
from appliance.snapshot import EngineSnapshot, QueueSnapshot
from appliance.ticket import Account


class Ticket(Protocol):
    """One submitted request."""

    on_signal: Callable[[Signals], None] | None
    """Hears what the model's own distribution tells; nobody else does."""

    @property
    def id(self) -> str: ...

    @property
    def request(self) -> Submit: ...

    @property
    def submitted_at(self) -> float: ...

    @property
    def started_at(self) -> float | None: ...

    @property
    def first_at(self) -> float | None: ...

    @property
    def generated(self) -> int: ...

    @property
    def position(self) -> int: ...

    async def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None when none came in time. Raises ApiError when the request is over
        without an answer, StopAsyncIteration after the last choice."""
        ...

    def cancel(
        self,
        reason: Literal["cancelled", "deadline"] = "cancelled",
        by: Literal["client", "operator", "box"] = "operator",
    ) -> None: ...


class Supervisor(Protocol):
    """The engine, from outside."""

    @property
    def snapshot(self) -> EngineSnapshot: ...

    @property
    def queue(self) -> QueueSnapshot: ...

    @property
    def tickets(self) -> Mapping[str, Ticket]: ...

    def submit(self, request: Submit, account: Account | None = None) -> Ticket: ...

    def pause(self, on: bool) -> None: ...

    async def restart(self, reason: str) -> None: ...


class Admission(Protocol):
    """Whether one more request is let in."""

    @property
    def draining(self) -> bool: ...

    def admit(self, prompt_tokens: int, max_tokens: int, deadline_s: float | None) -> None:
        """Raises Overloaded or Unavailable."""
        ...

    def drain(self, on: bool) -> None: ...


class Ledger(Recording, Protocol):
    """The ledger's writing side; `ledger.writer.Ledger` is the real one."""

    @property
    def snapshot(self) -> LedgerSnapshot: ...

    def act(
        self,
        row: Action | Archived | Conflict | Note | Replay | RequestRow,
        payload: Payload | None = None,
    ) -> "Future[int]": ...
