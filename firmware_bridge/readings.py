"""What the board sends of its own accord: samples, events (each once), and its clock."""

from collections import deque

from firmware_bridge import messages as m
from firmware_bridge import parse
from firmware_bridge.account import IndexAccount
from firmware_bridge.clock import Clock
from firmware_bridge.events import Event, Happened, Lost, Samples
from firmware_bridge.wire import Frame, encode

PROBE_EVERY = 0.983
"""Seconds between clock probes: no multiple of anything that the board does periodically."""
PROBE_EVERY_AT_FIRST = 0.11
PROBES_AT_FIRST = 10
EVENTS_REMEMBERED = 256
"""Board events of which a repetition is recognized; the board keeps 32."""


class Readings:
    """Of one session. `now` is in monotonic seconds everywhere."""

    def __init__(self) -> None:
        self.account = IndexAccount()
        self.clock = Clock()
        self.probe_at = 0.0
        """When the next probe is due."""
        self._probe = (0, 0.0)
        self._probes = 0
        self._seen: deque[bytes] = deque(maxlen=EVENTS_REMEMBERED)

    def restart(self) -> None:
        """The board booted: its clock and its index begin anew."""
        self.account.restart()
        self.clock.restart()

    def begin_probing(self, now: float) -> None:
        self._probes = 0
        self.probe_at = now

    def probe(self, now: float) -> bytes:
        """A probe to send; an answer to an earlier one is no longer believed."""
        number = (self._probe[0] + 1) & 0xFFFF
        self._probe = (number, now)
        self._probes += 1
        every = PROBE_EVERY if self._probes > PROBES_AT_FIRST else PROBE_EVERY_AT_FIRST
        self.probe_at = now + every
        return encode(0, m.CLOCK, number, 0)

    def on_clock(self, frame: Frame, now: float) -> bool:
        """Whether it answers the last probe."""
        number, sent = self._probe
        if frame.seq != number:
            return False
        (ticks,) = m.unpack(m.CLOCK_TELL, frame.payload)
        self.clock.add(sent, now, ticks)
        return True

    def on_samples(self, frame: Frame, channels: int) -> list[Event]:
        index, rows, truths = parse.samples(frame.payload, channels)
        first = self.account.extend(index)
        new, missing = self.account.take(first, len(rows))
        events: list[Event] = []
        if missing:
            events.append(Lost(first - missing, missing))
        if new:
            ticks = self.clock.extend(frame.ticks)
            events.append(Samples(first, rows, parse.references(first, truths), ticks))
        return events

    def on_event(self, payload: bytes) -> tuple[Happened, bool]:
        """The event, and whether it is told for the first time."""
        happened = parse.happened(payload)
        new = payload not in self._seen
        if new:
            self._seen.append(payload)
        return happened, new
