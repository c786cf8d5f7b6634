"""What the HTTP interface needs of the parts behind it, and no more.

The daemon's supervisor and admission fit these; so do the scripted ones of the tests.
"""

from collections.abc import Mapping
from typing import Protocol

from appliance.engine.messages import Event, Submit
from appliance.snapshot import EngineSnapshot, QueueSnapshot


class Ticket(Protocol):
    """One submitted request."""

    @property
    def id(self) -> str: ...

    @property
    def request(self) -> Submit: ...

    @property
    def submitted_at(self) -> float: ...

    @property
    def started_at(self) -> float | None: ...

    @property
    def generated(self) -> int: ...

    @property
    def position(self) -> int: ...

    async def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None when none came in time. Raises ApiError when the request is over
        without an answer, StopAsyncIteration after the last choice."""
        ...

    def cancel(self) -> None: ...


class Supervisor(Protocol):
    """The engine, from outside."""

    @property
    def snapshot(self) -> EngineSnapshot: ...

    @property
    def queue(self) -> QueueSnapshot: ...

    @property
    def tickets(self) -> Mapping[str, Ticket]: ...

    def submit(self, request: Submit) -> Ticket: ...

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
