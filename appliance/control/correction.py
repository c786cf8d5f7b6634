"""What the control loop says of its channels. Frozen: any thread may read it."""

from dataclasses import dataclass
from typing import Literal

MOST = 0.7
"""Log units: lengths are never corrected by more than a factor of 2."""

FIRST = " first logits"
"""What a route is called after, where the forecast has seen the first token's logits."""

Kind = Literal["tokens", "sensor"]
Mode = Literal["rr", "nice", "plain", "off"]
"""How the ticker is scheduled: ahead of all else (SCHED_RR), with the engine behind it, as anything
else; or not at all."""


@dataclass(frozen=True, slots=True)
class Correction:
    """Of one channel. Token channels: natural logarithms of factors on lengths; a forecast's median
    `m` (log tokens, as calibrated) is moved to `m + at(m)`."""

    channel: str
    raw: float | None = None
    """Median of log(length / calibrated median) over the window; None: nothing ended by itself."""
    filtered: float = 0.0
    """What is applied at the pivot: shrunk, 0 within the dead-band, bounded."""
    valid: bool = False
    """There is enough to go by; else nothing is applied and `filtered` is 0."""
    n: int = 0
    """Samples in the window."""
    std: float | None = None
    """Of the window, robustly: its interquartile range / 1.349."""
    at: float = 0.0
    """On the clock of time.monotonic(): when it was made."""
    sigma: float | None = None
    """What the forecaster's calibration says the deviation should be."""
    shift: float = 0.0
    """Learned by gradient steps; in `filtered`."""
    scale: float = 1.0
    """Learned likewise: what the logarithm of a median is stretched by about the pivot."""
    pivot: float = 0.0
    """Log tokens."""
    steps: int = 0
    """Gradient steps taken."""
    clipped: int = 0
    """Those not taken because the correction was at its bound."""
    rejected: int = 0
    """Samples that were no finite numbers."""

    def log_factor(self, median: float) -> float:
        """For a forecast whose calibrated median is exp(`median`) tokens."""
        if not self.valid:
            return 0.0
        return bounded(self.filtered + (self.scale - 1.0) * (median - self.pivot))


def bounded(value: float) -> float:
    return min(max(value, -MOST), MOST)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel as an operator sees it."""

    kind: Kind
    channel: str
    """`MODEL/ROUTE` of token channels, the channel's own name of sensors."""
    unit: str
    """`log` or the sensor's."""
    correction: Correction
    window: tuple[float | None, ...]
    """Newest last, at most 64: residuals before correction, in `unit`. None: not known there."""
    cut: tuple[bool, ...] = ()
    """Beside `window`: known to be at least that much. Empty: none."""
    running: int = 0
    """Requests that run, as known to exceed what they have."""
    quality: str = ""
    """Of sensors: ok, sparse, holdover, none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickerSnapshot:
    """How the ticker does."""

    mode: Mode = "off"
    period_s: float = 0.010
    ticks: int = 0
    overruns: int = 0
    """Ticks not done when the next one was due."""
    skipped: int = 0
    """Deadlines for which no tick ran, since it would have been a whole period late."""
    late_p50_s: float = 0.0
    late_p99_s: float = 0.0
    late_max_s: float = 0.0
    """Of the newest 2,048 ticks: from the deadline to the tick's first instruction."""
    cost_p50_s: float = 0.0
    cost_p99_s: float = 0.0
    """Of the same: how long the work took."""
    at: float = 0.0
    degraded: str = ""
    """What does not run, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSnapshot:
    """All channels now. Replaced whole."""

    channels: tuple[ChannelState, ...] = ()
    ticker: TickerSnapshot = TickerSnapshot()
    logged: int = 0
    """Corrections on their way to the ledger since the start."""
    unlogged: int = 0
    """Those that the ledger could not take: `steelyard control replay` begins anew after them."""
    at: float = 0.0
    degraded: str = ""
    """What does not run as it should, and what to do; empty where all does."""

    def correction(self, channel: str) -> Correction | None:
        return next((one.correction for one in self.channels if one.channel == channel), None)
