"""What the machine's own sensors say. Pure: `hwmon`, `rapl` and `nvml` read files and libraries.

A sensor that could not be read is `unknown` and has no value: never 0, never "nominal". What a
reader tells is worth what its source is worth, so every reading names it.
"""

from dataclasses import dataclass, replace
from typing import Literal, Protocol

Quality = Literal["ok", "stale", "unknown"]
"""stale: once read, but not lately. unknown: not read; `why` says what to do."""

BOARD = "board"
"""The source that measures the whole box, at its supply."""
MOST = 256
"""Sensors of one source: a server has dozens; more is a broken driver."""
MOST_WATTS = 20_000
"""Of one device. A counter that grew faster was reset or is garbage."""
MOST_GAP_S = 60.0
"""Between two reads of a counter. After more (the machine slept) it may have wrapped unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One sensor, once. None: unknown, or that the sensor does not tell."""

    name: str
    unit: str
    """C, V, A, W, rpm."""
    source: str
    """hwmon, RAPL, NVML."""
    quality: Quality
    at: float
    """Monotonic, when it was read or tried."""
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    """The band in which the sensor itself says it should be."""
    sigma: float | None = None
    crit: float | None = None
    """The sensor's own critical limit: beyond it the hardware is in danger, or throttles."""
    chip: bool = False
    """A temperature of what computes (CPU or GPU), not of a disk or a board."""
    why: str = ""
    """Why it is unknown, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyCounter:
    """What a device has drawn since some moment, in microjoules."""

    name: str
    source: str
    uj: int
    wraps_uj: int = 0
    """After this value it begins anew; 0: it does not wrap."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a device without such a counter draws now: its energy is power times time."""

    name: str
    source: str
    watts: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that one look came to."""

    readings: tuple[Reading, ...] = ()
    counters: tuple[EnergyCounter, ...] = ()
    draws: tuple[Draw, ...] = ()

    def __add__(self, other: "Found") -> "Found":
        return Found(
            readings=self.readings + other.readings,
            counters=self.counters + other.counters,
            draws=self.draws + other.draws,
        )


class Reader(Protocol):
    """One source. Belongs to the sampling thread and may block it; raises nothing."""

    def read(self, now: float) -> Found: ...


def grown(before: EnergyCounter | None, after: EnergyCounter) -> int | None:
    """Microjoules between two looks at a counter. None: there is nothing to tell it from, too much
    time has passed, or the counter was set back or speaks nonsense."""
    if before is None or not 0 < after.at - before.at <= MOST_GAP_S:
        return None
    gain = after.uj - before.uj
    if gain < 0:
        gain += after.wraps_uj
    most = MOST_WATTS * 1e6 * (after.at - before.at)
    return gain if 0 <= gain <= most else None


def lost(reading: Reading, now: float, why: str) -> Reading:
    """The same sensor, not read."""
    return replace(reading, quality="unknown", value=None, at=now, why=why)
