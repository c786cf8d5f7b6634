"""A box to watch that is not there: temperatures, rails, currents and fans after a script."""

import array
import math
import struct

from firmware_bridge import messages as m
from firmware_bridge.firmware import schema

NOISE = 64


def parse_script(text: str) -> list[tuple[float, float]]:
    """`0:45,5:85` → at 0 s 45 °C, at 5 s 85 °C, straight between, level outside."""
    points = []
    for point in text.split(","):
        at, _, value = point.partition(":")
        points.append((float(at), float(value)))
    return points


def at(points: list[tuple[float, float]], seconds: float) -> float:
    before = points[0]
    for point in points:
        if seconds < point[0]:
            span = point[0] - before[0]
            share = (seconds - before[0]) / span if span else 1.0
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


class Plant:
    """`update()` now and then; `sample()` for every sample."""

    def __init__(
        self,
        temperatures: list[tuple[float, float]],
        seed: int,
        broken: list[int],
        references: bytes = b"",
    ) -> None:
        """`references`: what the reference channel reads and what is true, a pair of int16 each
        sample, over and over; UNREAD as the truth: not told."""
        self.duty = [0, 0]
        self.relay = True
        self.down = False
        self.speed = [0.0, 0.0]
        self.temperature = 0
        self.truth = 10_000
        self._script = temperatures
        self._broken = broken
        self._row = array.array("h", [0] * len(schema.CHANNELS))
        self._noise = array.array("h", [0] * NOISE)
        self._at = seed & (NOISE - 1)
        self._references = references
        self._sampled = 0
        for i in range(NOISE):
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
            self._noise[i] = ((seed >> 16) & 7) - 3

    def update(self, seconds: float) -> None:
        self.temperature = int(100 * at(self._script, seconds))
        load = max(0.0, min(1.0, (self.temperature - 3000) / 5000))
        for fan in (0, 1):
            self.speed[fan] += (3 * self.duty[fan] - self.speed[fan]) * 0.1
        self._set_row(load if self.relay else 0.0, 1 if self.relay else 0)
        self._row[schema.REFERENCE] = self.truth + int(30 * math.sin(seconds / 3.7))

    def _set_row(self, load: float, on: int) -> None:
        hot = self.temperature
        temperatures = (hot, 2400, 2400 + (hot - 2400) // 3, 3100)
        rails = ((12_000 - int(120 * load)) * on, 5000 * on, 3300)
        currents = (int((2000 + 10_000 * load) * on), 800 * on)
        fans = (int(self.speed[0]), int(self.speed[1]), self.duty[0], self.duty[1])
        row = temperatures + rails + currents + fans + (self.truth, on, 1 if self.down else 0)
        for channel, value in enumerate(row):
            self._row[channel] = value

    def sample(self, rows, offset: int) -> None:  # type: ignore[no-untyped-def]
        """A row of 16 with noise on the ten that are analog."""
        row, noise = self._row, self._noise
        self._at = start = (self._at + 7) & (NOISE - 1)
        rows[offset : offset + len(row)] = row
        for channel in range(schema.FAN0_SPEED):
            rows[offset + channel] += noise[(start + channel) & 63]
        rows[offset + schema.REFERENCE] += noise[(start + 11) & 63]
        if self._references:
            place = 4 * self._sampled % len(self._references)
            read, self.truth = struct.unpack_from("<hh", self._references, place)
            rows[offset + schema.REFERENCE] = read
            self._sampled += 1
        for channel in self._broken:
            rows[offset + channel] = m.UNREAD
