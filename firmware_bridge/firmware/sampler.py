"""Samples at a steady rate, numbered from boot; five of them to a frame.

A turn of the main loop that comes late takes the samples that it owes, and counts that. When it
owes too many, they are skipped: their numbers pass unused, so the host sees what is missing.
"""

import array
import struct

from firmware_bridge import messages as m
from firmware_bridge.firmware.schema import CHANNELS

PERIOD_US = 1000
PER_FRAME = 5
LATE_US = 2 * PERIOD_US
MOST_OWED = 50
WIDTH = len(CHANNELS)


class Sampler:
    def __init__(self, now_us: int) -> None:
        self.index = 0
        """The number of the next sample."""
        self.next_us = now_us
        self.late = 0
        self.skipped = 0
        self._rows = array.array("h", [0] * (WIDTH * PER_FRAME))
        self._filled = 0
        self._first = 0
        self._references = b""
        self._reference_count = 0

    def due(self, now_us: int) -> int:
        """How many samples are owed now. Too many are skipped, and the frame begun is dropped."""
        if now_us < self.next_us:
            return 0
        behind = now_us - self.next_us
        owed = behind // PERIOD_US + 1
        if owed > MOST_OWED:
            self.skipped += owed - 1 + self._filled
            self.index += owed - 1
            self.next_us += (owed - 1) * PERIOD_US
            self._filled = 0
            return 1
        if behind > LATE_US:
            self.late += 1
        return owed

    def take(self, sample, reference) -> bytes | None:  # type: ignore[no-untyped-def]
        """Take one sample; the payload of a frame when it is full. `sample(array, offset)` fills a
        row, `reference()` gives (channel, true value) or None."""
        if not self._filled:
            self._first = self.index
            self._references = b""
            self._reference_count = 0
        sample(self._rows, self._filled * WIDTH)
        known = reference()
        if known is not None:
            self._references += struct.pack(m.REFERENCE, self._filled, known[0], known[1])
            self._reference_count += 1
        self._filled += 1
        self.index += 1
        self.next_us += PERIOD_US
        return self._finish() if self._filled == PER_FRAME else None

    def _finish(self) -> bytes:
        self._filled = 0
        head = struct.pack(
            m.TELEMETRY_TELL,
            self._first & 0xFFFFFFFF,
            PER_FRAME,
            WIDTH,
            self._reference_count,
            0,
        )
        return head + bytes(self._rows) + self._references
