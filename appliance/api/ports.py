"""What the HTTP interface needs of the parts behind it, and no more.

The daemon's supervisor and admission fit these; so do the scripted ones of the tests.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol

from appliance.board.orders import Outcome
from appliance.engine.commands import Expect, Pool, Submit
from appliance.engine.reports import Event, FirstLogits, Signals
from appliance.errors import ApiError
from appliance.ledger.books import Ledger as Recording
from appliance.ledger.rows import Action, Archived, Conflict, Note, Payload, Replay, RequestRow
from appliance.ledger.writer import LedgerSnapshot
from appliance.snapshot import EngineSnapshot, ModelSwitch, QueueSnapshot
from appliance.ticket import Account
from firmware_bridge.commands import Command, Refusal
from firmware_bridge.update import Image


class Ticket(Protocol):
    """One submitted request."""

    on_signal: Callable[[Signals | FirstLogits], None] | None
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
        """The next event; None when none came in `timeout` seconds. Raises ApiError when the
        request is over without an answer, StopAsyncIteration after the last choice."""
        ...

    def cancel(
        self,
        reason: Literal["cancelled", "deadline"] = "cancelled",
        by: Literal["client", "operator", "box"] = "operator",
    ) -> None: ...


class Orders(Protocol):
    """What the engine is told beside requests."""

    def expect(self, expect: Expect) -> None: ...

    def reprioritise(self, ticket: Any, priority: int, pool: Pool) -> None: ...


class Supervisor(Protocol):
    """The engine, from outside."""

    @property
    def orders(self) -> Orders: ...

    def waiting(self) -> Sequence[Ticket]:
        """Those that wait, in the order in which they will start as far as that is known."""
        ...

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


class Switch(Protocol):
    """What goes over from one model to another; `switching.Switch` is the real one."""

    @property
    def state(self) -> ModelSwitch: ...

    def refusal(self) -> ApiError | None:
        """What a request for the model is told that comes now; None where it may come in."""
        ...

    def begin(self, target: str, by: Action) -> bool:
        """False, and nothing happens, while one runs."""
        ...


class NoSwitch:
    """The model is the one that it is."""

    state = ModelSwitch()

    def refusal(self) -> ApiError | None:
        return None

    def begin(self, target: str, by: Action) -> bool:
        return False


class BoardKeeper(Protocol):
    """What may be asked of the board; `board.service.BoardService` is the real one."""

    def ask(self, command: Command) -> "Future[Outcome]": ...

    def drive(self, name: str, value: float | None, seconds: float) -> "Future[Outcome] | None":
        """None: there is no such output. Raises ValueError with the bounds of its values."""

    def update(self, image: Image) -> Refusal | None: ...


class Ledger(Recording, Protocol):
    """The ledger's writing side; `ledger.writer.Ledger` is the real one."""

    @property
    def snapshot(self) -> LedgerSnapshot: ...

    def act(
        self,
        row: Action | Archived | Conflict | Note | Replay | RequestRow,
        payload: Payload | None = None,
    ) -> "Future[int]": ...
