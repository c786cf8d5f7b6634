"""The open connections of the box, counted and bounded.

A place is *waiting* from the start until a request has arrived, and again after each answer. When
all places are taken, one that waits is closed for the newcomer, so that who holds connections open
without using them keeps nobody out: the one that has waited longest, of the address that has most
of them waiting. Where none waits, the newcomer is refused.
"""

import socket
from collections import Counter
from collections.abc import Callable

SPARE = 64
"""Refused connections that may be open beside the bound, to be told why; more are just closed."""

_IDLE_S, _BETWEEN_S, _PROBES = 60, 10, 3
"""A peer that answers nothing for so long is gone."""


class Place:
    """One connection's place. `drop` closes the connection at once."""

    __slots__ = ("_room", "drop", "host", "refused")

    def __init__(
        self, room: "Connections", host: str, drop: Callable[[], None], refused: bool
    ) -> None:
        self._room = room
        self.host = host
        self.drop = drop
        self.refused = refused
        """The connection is open only to be told that there is no room."""

    def wait(self) -> None:
        """No request is being worked on."""
        self._room.wait(self)

    def work(self) -> None:
        """A request has arrived."""
        self._room.work(self)

    def leave(self) -> None:
        """The connection is closed."""
        self._room.leave(self)


class Connections:
    """Belongs to the event loop. `per_host` 0 means no bound for one address."""

    def __init__(self, most: int, per_host: int = 0) -> None:
        self._most = most
        self._per_host = per_host
        self._in: set[Place] = set()
        self._refused: set[Place] = set()
        self._of_host: Counter[str] = Counter()
        self._waiting: dict[str, dict[Place, None]] = {}
        """By address, each in the order in which they began to wait."""

    def __len__(self) -> int:
        return len(self._in)

    def enter(self, host: str, drop: Callable[[], None]) -> Place | None:
        """A place for a connection from `host`; None when it is to be closed without a word."""
        refused = self._too_many_of(host) or not self._has_room()
        if refused and len(self._refused) >= SPARE:
            return None
        place = Place(self, host, drop, refused)
        if refused:
            self._refused.add(place)
        else:
            self._in.add(place)
            self._of_host[host] += 1
            place.wait()
        return place

    def wait(self, place: Place) -> None:
        if place in self._in:
            self._waiting.setdefault(place.host, {})[place] = None

    def work(self, place: Place) -> None:
        waiting = self._waiting.get(place.host, {})
        waiting.pop(place, None)
        if not waiting:
            self._waiting.pop(place.host, None)

    def leave(self, place: Place) -> None:
        """Gives the place back; a second time changes nothing."""
        self._refused.discard(place)
        self.work(place)
        if place in self._in:
            self._in.remove(place)
            self._of_host[place.host] -= 1
            if not self._of_host[place.host]:
                del self._of_host[place.host]

    def _too_many_of(self, host: str) -> bool:
        return 0 < self._per_host <= self._of_host[host]

    def _has_room(self) -> bool:
        """Makes room if it can."""
        if len(self._in) < self._most:
            return True
        if not self._waiting:
            return False
        host = max(self._waiting, key=lambda host: len(self._waiting[host]))
        oldest = next(iter(self._waiting[host]))
        oldest.leave()
        oldest.drop()
        return True


def watch_peers(listener: socket.socket, stall_s: float) -> None:
    """Has the kernel end connections whose peer is gone, or takes nothing for `stall_s`. What is
    accepted from the listener inherits it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    tcp = {
        socket.TCP_KEEPIDLE: _IDLE_S,
        socket.TCP_KEEPINTVL: _BETWEEN_S,
        socket.TCP_KEEPCNT: _PROBES,
        socket.TCP_USER_TIMEOUT: int(stall_s * 1000),
    }
    for option, value in tcp.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
