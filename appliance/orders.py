"""What the engine is told beside requests, and what every new one must be told again."""

from collections.abc import Callable

from appliance.engine.commands import Command, Expect, Pause, Pool, Reprioritise, Slow, Steer
from appliance.ticket import Ticket
from appliance.tickets import Tickets


class Orders:
    """Belongs to the event loop. `send` reaches an engine that is ready, or nobody."""

    def __init__(self, tickets: Tickets, send: Callable[[Command], None]) -> None:
        self._tickets = tickets
        self._send = send
        self._steer = Steer()

    @property
    def starts(self) -> int:
        """Requests that have ever started. Any thread."""
        return self._tickets.starts

    @property
    def batch(self) -> int:
        """Open requests of pool B. Any thread."""
        return self._tickets.batch

    def steer(self, steer: Steer) -> None:
        """How the queue is ordered and the cells are parted, from now on and for every engine."""
        self._steer = steer
        self._send(steer)

    def expect(self, expect: Expect) -> None:
        """How long a request may become; nothing when it has ended."""
        ticket = self._tickets.open.get(expect.id)
        if ticket is not None:
            ticket.expect = expect
            self._send(expect)

    def reprioritise(self, ticket: Ticket, priority: int, pool: Pool) -> None:
        """Another priority and pool for a request that waits or runs."""
        self._tickets.move(ticket, priority, pool)
        self._send(Reprioritise(ticket.id, priority, pool))

    def welcome(self, *, paused: bool, slowed: bool) -> None:
        """A new engine: how things stand, then the requests that wait, in order of arrival."""
        if paused:
            self._send(Pause(True))
        if slowed:
            self._send(Slow(True))
        self._send(self._steer)
        for ticket in self._tickets.open.values():
            self._send(ticket.request)
            if ticket.expect is not None:
                self._send(ticket.expect)
