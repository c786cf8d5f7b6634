"""The board's clock as the host sees it: a line through the fastest of many probes.

A probe's answer is late by an unknown share of its round trip, and never early. So only the
quickest quarter of the probes is believed; what jitter delayed is left out, not averaged.
"""

from collections import deque
from dataclasses import dataclass

WINDOW = 64
"""Probes remembered, one a second."""
BEST_SHARE = 4
MIN_FOR_RATE = 8
MIN_SPAN = 4.0
"""Seconds between the oldest and newest believed probe before a rate is fitted."""
MAX_RATE_ERROR = 500e-6
"""A crystal is within 100 ppm; what is beyond this is a bad fit."""
MAX_ROUND_TRIP = 1.0


@dataclass(frozen=True, slots=True)
class ClockFit:
    """host = host_at + (ticks − ticks_at) · seconds_per_tick, within ± `uncertainty` seconds."""

    ticks_at: int
    host_at: float
    seconds_per_tick: float
    uncertainty: float
    probes: int

    def host_time(self, ticks: int) -> float:
        return self.host_at + (ticks - self.ticks_at) * self.seconds_per_tick


@dataclass(frozen=True, slots=True)
class _Probe:
    middle: float
    round_trip: float
    ticks: int


class Clock:
    """Collects probes and publishes `fit`, replaced whole."""

    def __init__(self) -> None:
        self.fit: ClockFit | None = None
        self._probes: deque[_Probe] = deque(maxlen=WINDOW)
        self._newest = 0

    def restart(self) -> None:
        self.fit = None
        self._probes.clear()
        self._newest = 0

    def add(self, sent: float, received: float, ticks: int) -> None:
        """A probe that left at `sent` and whose answer, of `ticks`, came at `received`."""
        round_trip = received - sent
        if not 0 <= round_trip <= MAX_ROUND_TRIP or ticks < self._newest:
            return
        self._newest = ticks
        self._probes.append(_Probe((sent + received) / 2, round_trip, ticks))
        self.fit = _fit(self._probes)

    def extend(self, ticks32: int) -> int:
        """The full tick count nearest to the newest known one; without a probe, as it came."""
        if not self._newest:
            return ticks32
        return self._newest + ((ticks32 - self._newest + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def _fit(probes: deque[_Probe]) -> ClockFit:
    best = sorted(probes, key=lambda probe: probe.round_trip)
    best = best[: max(1, min(len(best), MIN_FOR_RATE), len(best) // BEST_SHARE)]
    quickest = best[0]
    rate = _rate(best)
    if rate is None:
        return ClockFit(quickest.ticks, quickest.middle, 1e-6, quickest.round_trip / 2, len(probes))
    ticks = sum(p.ticks for p in best) // len(best)
    host = sum(p.middle - (p.ticks - ticks) * rate for p in best) / len(best)
    return ClockFit(ticks, host, rate, best[-1].round_trip / 2, len(probes))


def _rate(best: list[_Probe]) -> float | None:
    """Seconds per tick by least squares, or None while too little is known."""
    ticks0, host0 = best[0].ticks, best[0].middle
    xs = [(p.ticks - ticks0) * 1e-6 for p in best]
    ys = [p.middle - host0 for p in best]
    if len(best) < MIN_FOR_RATE or max(xs) - min(xs) < MIN_SPAN:
        return None
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    return slope * 1e-6 if abs(slope - 1) <= MAX_RATE_ERROR else None
