"""What happened, kept until the host acknowledged it, over resets and power cuts too."""

import struct

from firmware_bridge import messages as m

KEPT = 32
AGAIN_MS = 200
AT_ONCE = 4
"""Events sent in one go: the line is not for events alone."""


class EventLog:
    def __init__(self, saved: list[str], number: int) -> None:
        """`saved` and `number` are what `dump()` and `number` were before the reset."""
        self.number = number
        self.dropped = 0
        self._pending = [bytes.fromhex(text) for text in saved][-KEPT:]
        for event in self._pending:
            m.unpack(m.EVENT_TELL, event)
        self._due = 0

    def add(self, kind: int, argument: int, ticks: int) -> None:
        """Beyond 32 the oldest is lost, and counted."""
        self.number = (self.number + 1) & 0xFFFF
        event = struct.pack(m.EVENT_TELL, kind, self.number, argument & 0xFFFFFFFF, ticks)
        if len(self._pending) >= KEPT:
            self._pending.pop(0)
            self.dropped += 1
        self._pending.append(event)
        self._due = 0

    def acknowledge(self, number: int) -> bool:
        """Whether there was such an event."""
        kept = [e for e in self._pending if struct.unpack(m.EVENT_TELL, e)[1] != number]
        found = len(kept) < len(self._pending)
        self._pending = kept
        return found

    def to_send(self, now: int) -> list[bytes]:
        """What is to be sent now, oldest first: at once, then every 200 ms."""
        if not self._pending or now < self._due:
            return []
        self._due = now + AGAIN_MS
        return self._pending[:AT_ONCE]

    def dump(self) -> list[str]:
        return [event.hex() for event in self._pending]
