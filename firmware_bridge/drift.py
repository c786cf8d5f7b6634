"""How far a channel reads off, from samples whose truth is known. Pure: no clock, no I/O.

A window holds the newest 64 residuals (reading minus truth) of each channel. The estimate is a
function of that window alone, so the same samples always give the same correction:

1. A residual farther than 5 sigma from both its neighbours is an outlier and left out.
2. Where the mean steps (generalised likelihood ratio of two means, n1 n2 / N (m1 - m2)^2 / sigma^2
   above 25, three samples at least on either side), only what came after the step counts.
3. What is left and lies within 3.5 sigma of its median is averaged.

A step is known only some samples after it. So those that came in since the last look can be
corrected once more by what the look found (`biases`): before the step by what was true before it.

With fewer than 16 references in the window a step cannot be told from noise; a scalar Kalman filter
that two samples must move together stands in (`sparse`). Without any, the last one known holds.
`python -m bench.compensator --sensors` simulates steps, drifts and outliers (docs/control.md).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

WINDOW = 64
STEP = 25.0
"""Of the likelihood ratio: about five false steps per channel and hour on pure noise, harmless."""
BESIDE = 3
"""Samples on either side of a step: fewer cannot be told from outliers."""
DENSE = 16
OUTLIER = 5.0
TRIM = 3.5
"""Both in sigmas."""
WALK = 0.01
"""Of the Kalman filter: how far the truth may wander per sample, in the residual's unit."""
WIDEST = 4.0
"""The filter's variance at most, in squared units: it must not learn to believe anything."""
GATE = 4.5

Quality = Literal["ok", "sparse", "holdover", "none"]
"""none: there was never a reference, so nothing is corrected."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Drift:
    """One channel's state after a look."""

    bias: float
    """What to take off a reading, in its own unit."""
    quality: Quality
    references: int
    """In the window."""
    stepped: bool = False
    """The mean stepped within the window."""
    before: float = 0.0
    """What it was off by before that step; `bias` where there was none."""
    since: int = WINDOW
    """How many of the newest samples came after it."""


class DriftWindow:
    """One channel. `sigma`: white noise of a reading, in its unit, above zero."""

    def __init__(self, sigma: float) -> None:
        if not sigma > 0:
            raise ValueError("a channel without noise needs no window")
        self._sigma = sigma
        self._residuals: Floats = np.full(WINDOW, np.nan)
        self._filter = _Filter(sigma)
        self._last = Drift(0.0, "none", 0)

    @property
    def residuals(self) -> tuple[float | None, ...]:
        """The window, oldest first; None where a sample had no reference."""
        return tuple(None if np.isnan(one) else float(one) for one in self._residuals)

    def push(self, residuals: Floats) -> None:
        """The next samples, shape (n,); NaN where there was no reference."""
        if self._last.quality != "ok":
            for one in residuals.tolist():
                self._filter.push(one)
        self._residuals = np.concatenate([self._residuals, residuals])[-WINDOW:]

    def estimate(self) -> Drift:
        """What is known now."""
        known = np.flatnonzero(~np.isnan(self._residuals))
        if len(known) >= DENSE:
            self._last = _dense(self._residuals, known, self._sigma)
            self._filter.settle(self._last.bias)
        elif len(known):
            self._last = _plain(self._filter.bias, "sparse", len(known))
        elif self._last.quality != "none":
            self._last = _plain(self._last.bias, "holdover", 0)
        return self._last

    def biases(self, count: int) -> Floats:
        """What to take off each of the newest `count` samples, as the last look found it."""
        found = np.full(count, self._last.bias)
        found[: max(0, count - self._last.since)] = self._last.before
        return found


def _plain(bias: float, quality: Quality, references: int) -> Drift:
    return Drift(bias, quality, references, before=bias)


def _dense(residuals: Floats, known: Places, sigma: float) -> Drift:
    sound = known[_sound(residuals[known], sigma)]
    values = residuals[sound]
    cut = _step(values, sigma)
    bias = _level(values[cut:], sigma)
    if not cut:
        return _plain(bias, "ok", len(known))
    before = _level(values[:cut], sigma)
    return Drift(bias, "ok", len(known), True, before, len(residuals) - int(sound[cut]))


def _level(values: Floats, sigma: float) -> float:
    """The trimmed mean."""
    middle = float(np.median(values))
    near = values[np.abs(values - middle) < TRIM * sigma]
    return float(near.mean()) if len(near) else middle


def _sound(have: Floats, sigma: float) -> Flags:
    """False for what is far from both its neighbours (at the ends, from the one there is)."""
    gaps = np.abs(np.diff(have)) > OUTLIER * sigma
    sound = ~(np.concatenate([gaps[:1], gaps]) & np.concatenate([gaps, gaps[-1:]]))
    return sound if np.count_nonzero(sound) >= BESIDE else np.ones(len(have), dtype=bool)


def _step(values: Floats, sigma: float) -> int:
    """The place of the first sample after the likeliest step; 0: there is none."""
    total = len(values)
    if total < 2 * BESIDE:
        return 0
    left = np.arange(BESIDE, total - BESIDE + 1)
    sums = np.cumsum(values)
    before = sums[left - 1]
    apart = before / left - (sums[-1] - before) / (total - left)
    ratio = left * (total - left) * apart * apart
    at = int(ratio.argmax())
    return int(left[at]) if ratio[at] > STEP * total * sigma * sigma else 0


class _Filter:
    """A scalar Kalman filter that one far sample alone does not move."""

    def __init__(self, sigma: float) -> None:
        self.bias = 0.0
        self._noise = sigma * sigma
        self._variance = WIDEST
        self._suspect: float | None = None

    def push(self, residual: float) -> None:
        self._variance = min(self._variance + WALK * WALK, WIDEST)
        if math.isnan(residual):
            return
        off, noise = residual - self.bias, self._noise
        if abs(off) > GATE * math.sqrt(self._variance + noise):
            suspect, self._suspect = self._suspect, residual
            if suspect is None or abs(residual - suspect) > 6 * math.sqrt(noise):
                return
            off, noise = (residual + suspect) / 2 - self.bias, noise / 2
            self._variance = min(max(self._variance, off * off), WIDEST)
        self._suspect = None
        gain = self._variance / (self._variance + noise)
        self.bias += gain * off
        self._variance *= 1 - gain

    def settle(self, bias: float) -> None:
        """The window knows better."""
        self.bias, self._suspect = bias, None
        self._variance = self._noise / DENSE
