"""How far the forecasts of one channel are off, from what became of the newest 64. Pure.

1. `raw`: the median of log(length / calibrated median). Requests that run are in it as known to
   exceed what they have: short answers end first, so that ended ones alone look short.
2. The bias: that median, shrunk by n / (n + 32), with a dead-band of two standard errors, within a
   factor of 2. It follows a change at once, and leaves a third of it.
3. `shift` and `scale` learn what the bias leaves: while the window's deviation is above 0.8 of what
   the calibration promises, each answer is one bounded step down the gradient of the median's
   pinball loss. No step is taken within the noise of its gradient, nor outwards at a bound, so that
   nothing winds up.
4. `filtered`: bias and shift.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from appliance.control.correction import MOST, Correction, bounded
from appliance.control.window import Fall, Flight, Sample, Window, falls, quantile

ENOUGH = 8
"""Answers of the window that ended by themselves, before anything is corrected."""
SHRINK = 32
DEAD_BAND = 2 * 1.25
"""Standard errors of a median: twice 1.25 sigma / sqrt(n)."""
MOST_RUNNING = 512
GATE = 0.8
"""Of the calibrated deviation: a window that scatters less has nothing to learn."""
SETTLED = 16
"""Answers before the first step; their mean median is the pivot."""
NOISE = 2.0
"""Standard errors within which a gradient counts as none."""
WIDE = 2.0
"""So many times that noise for the scale, on which a few long answers weigh much."""
SHIFT_RATE, SCALE_RATE = 0.05, 0.01
MOST_SHIFT, MOST_SCALE = 0.3, 0.1
"""Log units; the scale stays within 1 plus or minus this."""
FADE = 1 / 128
"""What shift and scale lose with each answer that brings no step: they are not kept for ever."""
NEGLIGIBLE = 1e-3
"""Log units: of shift and scale, less is nothing."""
WIDEST = 14.0
"""Log units between two medians: 1 to 2^20 tokens."""
NORMAL = 1.349
"""Interquartile range of a normal distribution of deviation 1."""


@dataclass(frozen=True, slots=True)
class Affine:
    """The output calibration that is learned: m becomes m + shift + (scale - 1) (m - pivot)."""

    shift: float = 0.0
    scale: float = 1.0
    pivot: float = 0.0
    set: bool = False
    """The pivot is known."""
    steps: int = 0
    clipped: int = 0


_PLAIN = Affine()


class Compensator:
    """Of one channel."""

    def __init__(self, channel: str = "") -> None:
        self.channel = channel
        self.window = Window()
        self.flights: tuple[Flight, ...] = ()
        self.affine = Affine()
        self.rejected = 0
        self._curves: dict[tuple[float, float, float], list[Fall]] = {}
        """Of the window and what runs, as they are."""
        self._rows: list[tuple[float, float, bool]] | None = None

    def tick(
        self, now: float, samples: Iterable[Sample] = (), running: Sequence[Flight] | None = None
    ) -> Correction:
        """`samples`: what has ended since. `running`: all that run; None: as before."""
        if running is not None:
            self.flights = tuple(one for one in running if one.sound)[:MOST_RUNNING]
            self._forget()
        for sample in samples:
            if sample.sound:
                self.window.push(sample)
                self._forget()
                self.affine = self._learned()
            else:
                self.rejected += 1
        return self._correction(now)

    def _forget(self) -> None:
        self._curves.clear()
        self._rows = None

    def _correction(self, now: float) -> Correction:
        affine, plain = self.affine, self._curve(_PLAIN)
        valid = self.window.ended >= ENOUGH
        return Correction(
            channel=self.channel,
            raw=_middle(plain),
            filtered=bounded(affine.shift + self._bias()) if valid else 0.0,
            valid=valid,
            n=len(self.window),
            std=_spread(plain),
            at=now,
            sigma=self.window.sigma,
            shift=affine.shift,
            scale=affine.scale,
            pivot=affine.pivot,
            steps=affine.steps,
            clipped=affine.clipped,
            rejected=self.rejected,
        )

    def _bias(self) -> float:
        """The median, shrunk and bounded; 0 within the dead-band."""
        curve, n = self._curve(_PLAIN), len(self.window)
        middle, spread = _middle(curve), _spread(curve)
        if middle is None:
            return 0.0
        known = quantile(curve, 0.5) is not None
        noise = math.sqrt(self.window.ended)  # those that were cut tell little of a median
        if known and spread is not None and abs(middle) <= DEAD_BAND * spread / noise:
            return 0.0
        return bounded(middle) * n / (n + SHRINK)

    def _curve(self, affine: Affine) -> list[Fall]:
        """Of what `affine` leaves."""
        shift, tilt = affine.shift, affine.scale - 1.0
        pivot = affine.pivot if tilt else 0.0
        key = (shift, tilt, pivot)
        found = self._curves.get(key)
        if found is None:
            found = self._curves[key] = falls(
                [
                    (length - median - shift - tilt * (median - pivot), cut, median)
                    for length, median, cut in self._known()
                ]
            )
        return found

    def _known(self) -> list[tuple[float, float, bool]]:
        if self._rows is None:
            self._rows = self._read()
        return self._rows

    def _read(self) -> list[tuple[float, float, bool]]:
        """All that is known: length, median, and whether the length is only exceeded. Without what
        runs and has not come as far yet, by its forecast, as any that ended: it tells nothing."""
        rows = [(one.length, one.median, one.cut) for one in self.window]
        if not self.flights:
            return rows
        least = min((length - median for length, median, cut in rows if not cut), default=math.inf)
        least -= MOST_SCALE * WIDEST
        return rows + [
            (one.length, one.median, True)
            for one in self.flights
            if one.length - one.median >= least
        ]

    # -- steps -------------------------------------------------------------------------------------

    def _learned(self) -> Affine:
        """After one more answer."""
        affine, ended = self.affine, self.window.ended
        if ended < SETTLED:
            return affine
        if not affine.set:
            middle = math.fsum(one.median for one in self.window) / len(self.window)
            affine = replace(affine, pivot=middle, set=True)
        bias = self._bias()
        curve = self._curve(replace(affine, shift=affine.shift + bias))
        std, sigma = _spread(curve), self.window.sigma
        if std is None or sigma is None or std <= GATE * sigma:
            return _faded(affine)
        return _stepped(affine, bias, curve, ended)


def _stepped(affine: Affine, bias: float, curve: Sequence[Fall], ended: int) -> Affine:
    """One step of each down the gradient of |length - moved median| / 2, in log units. `curve`: of
    what bias, shift and scale leave."""
    unit, pivot = NOISE * 0.5 / math.sqrt(ended), affine.pivot
    up = 0.5 - math.fsum(before - after for value, before, after, _ in curve if value <= 0.0)
    arms = [
        ((before - after) * (median - pivot), value > 0.0, median - pivot)
        for value, before, after, median in curve
    ]
    wide = math.fsum(pull if above else -pull for pull, above, _ in arms) / 2
    width = math.sqrt(math.fsum(pull * arm for pull, _, arm in arms))
    moves, turns = abs(up) > unit, abs(wide) > WIDE * unit * width
    if not moves and not turns:
        return _faded(affine)
    shift = affine.shift + (SHIFT_RATE * up if moves else 0.0)
    scale = affine.scale + (SCALE_RATE * wide if turns else 0.0)
    outwards = abs(bias + shift) > MOST and abs(bias + shift) > abs(bias + affine.shift)
    far = abs(bias) >= MOST * ended / (ended + SHRINK) and shift * bias > affine.shift * bias
    if outwards or far or abs(shift) > MOST_SHIFT or abs(scale - 1.0) > MOST_SCALE:
        return replace(affine, clipped=affine.clipped + 1)
    return replace(affine, shift=shift, scale=scale, steps=affine.steps + 1)


def _faded(affine: Affine) -> Affine:
    shift, tilt = affine.shift * (1.0 - FADE), (affine.scale - 1.0) * (1.0 - FADE)
    return replace(
        affine,
        shift=shift if abs(shift) > NEGLIGIBLE else 0.0,
        scale=1.0 + tilt if abs(tilt) > NEGLIGIBLE else 1.0,
    )


def _middle(curve: Sequence[Fall]) -> float | None:
    """The median; where too many were cut to know it, at least the largest that ended."""
    if not curve:
        return None
    found = quantile(curve, 0.5)
    return max(0.0, curve[-1][0]) if found is None else found


def _spread(curve: Sequence[Fall]) -> float | None:
    low, middle, high = (quantile(curve, tau) for tau in (0.25, 0.5, 0.75))
    if middle is None or low is None:
        return None
    return (high - low if high is not None else 2 * (middle - low)) / NORMAL
