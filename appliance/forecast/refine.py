"""In flight: every 8 tokens, what is left of an answer, from its forecast and its own signals.

The prior says how likely an end is within the next 8, 16, 32 and 64 tokens, and later. A small
logistic hazard moves the odds of each by what the model's distribution and the text tell; beyond
64 tokens the prior's hazards are multiplied by one factor.
Pure; one owner per answer.

    refinement = Refinement(forecast.lengths, max_tokens, Refiner.load(path))
    refined = refinement.update(signal, text_since_the_last_signal)
    refined.quantiles((0.1, 0.5, 0.9)); refined.mean(); refined.lengths
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.forecast import archive
from appliance.forecast.dataset import Signal
from appliance.forecast.hazard import BINS, EDGES, LONGEST, SHIFT, Lengths
from appliance.forecast.signs import NAMES, VERSION, Signs

Floats = NDArray[np.float64]

HORIZONS = (8, 16, 32, 64)
"""Tokens from now: the ends of the intervals whose odds are moved; later is the tail."""
STRONGEST = 12.0
"""Log odds of an end within one interval stay within this."""
TAIL = 1.5
"""The log of the factor on the tail's hazards stays within this."""

_BYTES = 1 << 20
"""A refiner's file unpacked, at most."""
_EDGES: tuple[float, ...] = tuple(EDGES.tolist())
_PLACES: tuple[float, ...] = tuple(np.log(EDGES + SHIFT).tolist())


class BadRefiner(ValueError):
    """Arrays that are no refiner of this program: says what is wrong. The forecaster that they
    came with serves on without refinement; calibrating again makes new ones."""


@dataclass(frozen=True, slots=True)
class Refiner:
    """What was learned. Every weight is per unit of a feature of `NAMES`."""

    near: Floats
    """float64 [2, 4, 2 + features]: without the text and with it; for each interval bias, weight of
    the prior's log odds, weights."""
    tail: Floats
    """float64 [2, 1 + features]: bias and weights of the log of the tail's factor."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """To be kept in a bundle; `from_arrays` takes them back."""
        return {"near": self.near, "tail": self.tail, "version": np.array(VERSION)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "Refiner":
        """Raises BadRefiner."""
        try:
            near, tail = (np.asarray(arrays[k], dtype=np.float64) for k in ("near", "tail"))
            version = int(arrays["version"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadRefiner(f"the refiner cannot be read: {error!r}") from error
        if version != VERSION:
            raise BadRefiner(f"the refiner reads features {version}, this program makes {VERSION}")
        wanted = (2, len(HORIZONS), 2 + len(NAMES)), (2, 1 + len(NAMES))
        if (near.shape, tail.shape) != wanted:
            raise BadRefiner(f"the refiner has shapes {near.shape}, {tail.shape}, not {wanted}")
        if not (np.isfinite(near).all() and np.isfinite(tail).all()):
            raise BadRefiner("the refiner holds values that are not finite")
        return cls(near, tail)

    def save(self, path: Path) -> None:
        """As one .npz file, which `load` and a bundle's `refine` read."""
        path.write_bytes(archive.npz(self.arrays()))

    @classmethod
    def load(cls, path: Path) -> "Refiner":
        """What `save` wrote. Raises BadRefiner, OSError."""
        try:
            return cls.from_arrays(archive.arrays(path.read_bytes(), _BYTES))
        except archive.BadArchive as error:
            raise BadRefiner(f"{path.name} is no refiner: {error}") from error


@dataclass(frozen=True, slots=True)
class Refined:
    """The total length L of a running answer, given L > given and what its signals told.

    As fine as the signals near `given`, as coarse as the prior far from it. Answers what `Lengths`
    answers, with the client's limit in it: min(L, max_tokens)."""

    given: int
    max_tokens: int
    places: tuple[float, ...]
    """log(L / factor + SHIFT) at the knots, rising; the first is `given`."""
    falls: tuple[float, ...]
    """-log P(L > knot | L > given): 0, then rising."""
    log_factor: float = 0.0

    def survival(self, g: float) -> float:
        """P(min(L, max_tokens) > g)."""
        return math.exp(-self.fall(g)) if g < self.max_tokens else 0.0

    def ends_within(self, steps: int) -> float:
        """P(L <= given + steps): the answer itself ends; the limit is left out."""
        return -math.expm1(-self.fall(self.given + steps))

    def quantile(self, tau: float) -> int:
        """The smallest whole n > given with P(min(L, max_tokens) <= n) >= tau."""
        fall = -math.log(max(1.0 - tau, 1e-12))
        at = min(max(bisect_left(self.falls, fall), 1), len(self.falls) - 1)
        place = _between(fall, self.falls, self.places, at)
        length = (math.exp(min(place, 30.0)) - SHIFT) * math.exp(self.log_factor)
        return min(max(math.ceil(length - 1e-6), self.given + 1), LONGEST, self.max_tokens)

    def quantiles(self, taus: Sequence[float]) -> tuple[int, ...]:
        return tuple(self.quantile(tau) for tau in taus)

    def mean(self) -> float:
        """E[min(L, max_tokens)], tokens."""
        factor = math.exp(self.log_factor)
        total, before, level = float(self.given), float(self.given), 1.0
        for place, fall in zip(self.places[1:], self.falls[1:], strict=True):
            at = min((math.exp(place) - SHIFT) * factor, float(self.max_tokens))
            here = math.exp(-(fall if at < self.max_tokens else self.fall(at)))
            total += (at - before) * _log_mean(level, here)
            before, level = at, here
        return min(max(total + 0.5, self.given + 1.0), float(self.max_tokens))

    @property
    def lengths(self) -> Lengths:
        """The same as `Lengths`, without the limit: exact at the edges of its bins, straight in
        between."""
        factor = math.exp(self.log_factor)
        at = max(bisect_left(_EDGES, self.given / factor) - 1, 0)
        falls = [self.fall(edge * factor) for edge in _EDGES[at + 1 :]]
        hazards = np.full(BINS, 1e-6)
        if not falls:
            return Lengths(hazards, float(self.given), self.log_factor)
        steps = np.diff([0.0, *falls])
        # Only what lies beyond `given` counts of the first bin.
        steps[0] *= (_PLACES[at + 1] - _PLACES[at]) / max(_PLACES[at + 1] - self.places[0], 1e-9)
        hazards[at:] = np.clip(-np.expm1(-steps), 1e-6, 1 - 1e-6)
        return Lengths(hazards, float(self.given), self.log_factor)

    def fall(self, g: float) -> float:
        """-log P(L > g | L > given), without the limit."""
        if g <= self.given:
            return 0.0
        place = math.log(g * math.exp(-self.log_factor) + SHIFT)
        at = min(max(bisect_left(self.places, place), 1), len(self.places) - 1)
        return _between(place, self.places, self.falls, at)


class Refinement:
    """One running answer of one request."""

    def __init__(self, prior: Lengths, max_tokens: int, refiner: Refiner | None) -> None:
        """`prior`: the forecast. Without a refiner, it is only told what is left of it."""
        self._max_tokens = max(1, max_tokens)
        self._refiner = refiner
        self._prior = Prior(prior)
        self._signs = Signs()
        self._reads = 0
        """1 once any text was seen."""

    def renew(self, prior: Lengths) -> None:
        """Another forecast of the same answer; what its signals told is kept."""
        self._prior = Prior(prior)

    def update(self, signal: Signal, text: str = "") -> Refined:
        """The length as it looks after `signal`. `text`: what was written since the last signal,
        of which the last 512 characters are read. Always empty where the text is not known before
        the end, as in answers that do not stream: the signals then count for more."""
        given = max(0, signal.generated)
        signs = self._signs.read(signal, text, self._prior.fall(given))
        falls = self._prior.ahead(given)
        if self._refiner is None:
            return self._told(given, falls, 1.0)
        self._reads |= bool(text)
        x = np.array(signs)
        near, tail = self._refiner.near[self._reads], self._refiner.tail[self._reads]
        moved = (near[:, 2:] @ x + near[:, 0]).tolist()
        weights = near[:, 1].tolist()
        refined = [0.0]
        for k, low in enumerate(falls[:-1]):
            odds = moved[k] + weights[k] * log_odds(falls[k + 1] - low)
            refined.append(refined[-1] + _step(odds))
        factor = math.exp(min(max(float(tail[1:] @ x + tail[0]), -TAIL), TAIL))
        return self._told(given, refined, factor)

    def _told(self, given: int, near: list[float], factor: float) -> Refined:
        prior = self._prior
        places = [prior.place(given), *(prior.place(given + h) for h in HORIZONS)]
        start = prior.fall(given + HORIZONS[-1])
        for place, fall in prior.beyond(places[-1]):
            places.append(place)
            near.append(near[len(HORIZONS)] + factor * (fall - start))
        return Refined(given, self._max_tokens, tuple(places), tuple(near), prior.log_factor)


class Prior:
    """`Lengths`, made quick to ask a few points at a time."""

    def __init__(self, lengths: Lengths) -> None:
        self.log_factor = lengths.log_factor
        self._scale = math.exp(-lengths.log_factor)
        self._falls = lengths.falls
        self._start = 0.0
        self._start = self.fall(lengths.given)

    def place(self, g: float) -> float:
        return math.log(g * self._scale + SHIFT)

    def fall(self, g: float) -> float:
        """-log P(L > g)."""
        place = self.place(g)
        at = min(max(bisect_left(_PLACES, place), 1), BINS)
        return max(_between(place, _PLACES, self._falls, at) - self._start, 0.0)

    def ahead(self, given: float) -> list[float]:
        """-log P(L > given + h | L > given), for 0 and each of HORIZONS."""
        start = self.fall(given)
        return [0.0, *(self.fall(given + h) - start for h in HORIZONS)]

    def beyond(self, place: float) -> list[tuple[float, float]]:
        """The edges behind `place`, as (place, fall); one at least."""
        at = bisect_left(_PLACES, place + 1e-9)
        found = [
            (p, fall - self._start) for p, fall in zip(_PLACES[at:], self._falls[at:], strict=True)
        ]
        last = max(place, _PLACES[-1]) + 1.0
        slope = (self._falls[-1] - self._falls[-2]) / (_PLACES[-1] - _PLACES[-2])
        found.append((last, self._falls[-1] + slope * (last - _PLACES[-1]) - self._start))
        return found


def log_odds(fall: float) -> float:
    """Of an end within an interval that is survived with chance exp(-fall)."""
    odds = math.expm1(min(fall, 50.0))
    return min(max(math.log(max(odds, 1e-9)), -STRONGEST), STRONGEST)


def _step(odds: float) -> float:
    """-log of the chance to survive an interval in which the log odds of an end are these."""
    return math.log1p(math.exp(min(max(odds, -STRONGEST), STRONGEST)))


def _between(x: float, xs: Sequence[float], ys: Sequence[float], at: int) -> float:
    """On the line through points at - 1 and at."""
    width = xs[at] - xs[at - 1]
    return ys[at - 1] + (x - xs[at - 1]) / width * (ys[at] - ys[at - 1]) if width else ys[at]


def _log_mean(a: float, b: float) -> float:
    """The mean height of an exponential that falls from a to b."""
    if a <= 0.0 or b <= 0.0 or abs(a - b) < 1e-9 * a:
        return (a + b) / 2
    return (a - b) / math.log(a / b)
