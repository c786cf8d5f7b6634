"""Commands on their way: one at a time, repeated until answered, carried out at most once.

The board obeys a number only when it is newer than the last one, and answers a repeated one from
memory. One command in flight is all that this needs, and a line that carries it in a millisecond.
"""

from collections import deque
from dataclasses import dataclass

from firmware_bridge.commands import Command
from firmware_bridge.wire import ACKREQ, encode

MAX_WAITING = 64
TRIES = 5
FIRST_WAIT = 0.1
MIN_WAIT = 0.025
MAX_WAIT = 0.5
"""Seconds until a command is sent again: four round trips, within these, doubled at each try."""


@dataclass(slots=True)
class Entry:
    """A command that waits or is in flight. `command` is None for the session's own (greeting)."""

    id: int
    command: Command | None
    type: int = 0
    payload: bytes = b""
    seq: int = 0
    tries: int = 0
    sent: float = 0.0
    due: float = 0.0
    again: bool = True
    """Whether a stale challenge may be answered with a second attempt."""


class Outbox:
    """Of one session. `now` is in monotonic seconds everywhere."""

    def __init__(self, seq: int) -> None:
        self.in_flight: Entry | None = None
        self.retries = 0
        self._seq = seq
        self._round_trip: float | None = None
        self._waiting: deque[Entry] = deque()

    @property
    def full(self) -> bool:
        return len(self._waiting) >= MAX_WAITING

    def put(self, entry: Entry, *, first: bool = False) -> None:
        """`first`: ahead of all others (heartbeats, the greeting)."""
        if first:
            self._waiting.appendleft(entry)
        else:
            self._waiting.append(entry)

    def take_next(self) -> Entry | None:
        """The next command, when none is in flight. It gets its number now."""
        if self.in_flight is not None or not self._waiting:
            return None
        entry = self.in_flight = self._waiting.popleft()
        self._seq = (self._seq + 1) & 0xFFFF
        entry.seq = self._seq
        return entry

    def transmit(self, entry: Entry, now: float) -> bytes:
        wait = FIRST_WAIT if self._round_trip is None else 4 * self._round_trip
        wait = min(MAX_WAIT, max(MIN_WAIT, wait) * 2**entry.tries)
        self.retries += entry.tries > 0
        entry.tries += 1
        entry.sent = now
        entry.due = now + wait
        return encode(ACKREQ, entry.type, entry.seq, 0, entry.payload)

    def answered(self, kind: int, seq: int, now: float) -> Entry | None:
        """The command that this answers, or None for an answer that nobody waits for."""
        entry = self.in_flight
        if entry is None or (entry.type, entry.seq) != (kind, seq):
            return None
        self.in_flight = None
        if entry.tries == 1:  # of a repeated one it is unknown which try was answered
            taken = now - entry.sent
            before = taken if self._round_trip is None else self._round_trip
            self._round_trip = before + (taken - before) / 8
        return entry

    def give_up(self) -> Entry | None:
        entry, self.in_flight = self.in_flight, None
        return entry

    def drain(self) -> list[Entry]:
        """Everything that waits or is in flight, forgotten."""
        entries = [*([self.in_flight] if self.in_flight else []), *self._waiting]
        self.in_flight = None
        self._waiting.clear()
        return entries
