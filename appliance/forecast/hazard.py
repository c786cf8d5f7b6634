"""How long an answer may become: a distribution over lengths, as hazards of 24 bins.

A hazard is the chance to end in a bin given that the answer got there. Caps enter only where a
forecast is used: what is learned and told here is the length without any limit. Pure.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 24
CAP = 4096
"""Tokens. Bins are spread up to here; beyond, the last bin goes on at its own rate."""
SHIFT = 4.0
"""Tokens added before the logarithm, so that the first bins are not finer than one token."""
LONGEST = 1 << 20
"""Tokens. No quantile is larger."""

EDGES: Floats = np.rint(SHIFT * ((CAP + SHIFT) / SHIFT) ** (np.arange(BINS + 1) / BINS) - SHIFT)
"""Bin k holds the lengths EDGES[k] < L <= EDGES[k + 1]. EDGES[0] is 0."""
_LOG_EDGES: Floats = np.log(EDGES + SHIFT)
_WIDTHS: Floats = np.diff(_LOG_EDGES)

_SMALLEST = 1e-6
"""Hazards are kept this far from 0 and 1, so that no survival is ever exactly 0."""

# The same as plain numbers: at a few points NumPy's calls cost more than they save.
_PLACES: list[float] = _LOG_EDGES.tolist()
_SPANS: list[float] = _WIDTHS.tolist()
_FURTHEST = math.log(2.0 * LONGEST)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The total length L of an answer, in tokens with the end-of-generation token."""

    hazards: Floats
    """float64[24], each within (0, 1)."""
    given: float = 0.0
    """Tokens that are known to be exceeded: L > given."""
    log_factor: float = 0.0
    """Every length is multiplied by exp(log_factor): a correction."""
    _known: tuple[float, ...] = field(default=(), init=False, repr=False, compare=False)
    """`falls`, once asked for."""

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> "Lengths":
        """From the network's 24 hazard logits. Not a number counts as 0."""
        odds = [
            math.exp(min(max(z, -14.0), 14.0)) if z == z else 1.0
            for z in np.asarray(logits, dtype=np.float64).tolist()
        ]
        return cls(np.array([odd / (1.0 + odd) for odd in odds]))

    def survival(self, g: ArrayLike) -> Floats:
        """P(L > g | L > given); 1 up to `given`. Same shape as `g`."""
        at = np.maximum(np.asarray(g, dtype=np.float64), self.given)
        scale = np.exp(-self.log_factor)
        log = _log_survival(self.hazards, np.append(at.ravel() * scale, self.given * scale))
        return np.asarray(np.exp(log[:-1] - log[-1]).reshape(at.shape))

    def quantile(self, tau: float) -> int:
        """The smallest whole n >= 1 with P(L <= n) >= tau; LONGEST at most."""
        return self.quantiles((tau,))[0]

    def quantiles(self, taus: Sequence[float]) -> tuple[int, ...]:
        """As `quantile`; never falling where `taus` do not fall."""
        falls, scale = self.falls, math.exp(self.log_factor)
        start = fall_at(falls, self.given / scale)
        lowest = max(1, math.floor(self.given) + 1)
        lengths = [
            scale * length_at(falls, start - math.log(max(1.0 - tau, 1e-12))) for tau in taus
        ]
        return tuple([min(max(math.ceil(n - 1e-6), lowest), LONGEST) for n in lengths])

    @property
    def falls(self) -> tuple[float, ...]:
        """-log P(L > g) at each of EDGES, before `given` and `log_factor`; the first is 0."""
        if not self._known:
            steps = [
                -math.log1p(-min(max(hazard, _SMALLEST), 1 - _SMALLEST))
                for hazard in self.hazards.tolist()
            ]
            object.__setattr__(self, "_known", (0.0, *accumulate(steps)))
        return self._known

    def mean(self, cap: int) -> float:
        """E[min(L, cap)], tokens."""
        return float(self.survival(np.arange(max(cap, 0))).sum())

    def ends_within(self, steps: int) -> float:
        """P(L <= given + steps | L > given)."""
        return float(1.0 - self.survival(self.given + steps))

    def residual(self, g: float) -> "Lengths":
        """What is left to believe when `g` tokens are generated and the answer has not ended:
        L given L > g, as total lengths."""
        return replace(self, given=max(self.given, float(g)))

    def shifted(self, log_factor: float) -> "Lengths":
        """Every length multiplied by exp(log_factor)."""
        return replace(self, log_factor=self.log_factor + float(log_factor))

    def capped(self, max_tokens: int) -> "Capped":
        """The same answer under the client's limit: min(L, max_tokens)."""
        return Capped(self, max(1, int(max_tokens)))


@dataclass(frozen=True, slots=True)
class Capped:
    """min(L, max_tokens), in tokens."""

    lengths: Lengths
    max_tokens: int

    def quantile(self, tau: float) -> int:
        return min(self.lengths.quantile(tau), self.max_tokens)

    def quantiles(self, taus: Sequence[float]) -> tuple[int, ...]:
        return tuple(min(n, self.max_tokens) for n in self.lengths.quantiles(taus))

    def mean(self) -> float:
        return self.lengths.mean(self.max_tokens)


def bins_of(lengths: ArrayLike) -> Ints:
    """The bin of each length >= 1; beyond CAP the last one."""
    found = np.searchsorted(EDGES, np.asarray(lengths, dtype=np.float64), side="left") - 1
    return np.clip(found, 0, BINS - 1).astype(np.int64)


def hazards_of(logits: ArrayLike) -> Floats:
    """The sigmoid, kept off 0 and 1. Any shape."""
    z = np.asarray(logits, dtype=np.float64)
    z = np.minimum(np.maximum(np.where(np.isnan(z), 0.0, z), -14.0), 14.0)
    return 1.0 / (1.0 + np.exp(-z))


def hazards_from(survival: ArrayLike) -> Floats:
    """Hazards [n, 24] of the survivals [n, 24] at the bins' upper edges."""
    alive = np.asarray(survival, dtype=np.float64)
    before = np.concatenate([np.ones((len(alive), 1)), alive[:, :-1]], axis=1)
    found: Floats = np.clip(1 - alive / np.maximum(before, 1e-12), _SMALLEST, 1 - _SMALLEST)
    return found


def exposures(lengths: ArrayLike, censored: ArrayLike) -> tuple[Floats, Floats]:
    """What the likelihood sums: (ends[n, 24], passed[n, 24]).

    log p = sum(ends * log h + passed * log(1 - h)). An end counts whole in its bin. An answer cut
    inside a bin has passed that share of it (in log length): leaving the bin out would make
    the hazard of the bin that holds the cap too large.
    """
    ends_at = np.maximum(np.asarray(lengths, dtype=np.float64), 1.0)
    cut = np.asarray(censored, dtype=bool)
    bins = bins_of(ends_at)
    rows = np.arange(len(ends_at))
    passed = np.where(np.arange(BINS) < bins[:, None], 1.0, 0.0)
    share = (np.log(ends_at + SHIFT) - _LOG_EDGES[bins]) / _WIDTHS[bins]
    passed[rows, bins] = np.where(cut, share, 0.0)
    ends = np.zeros((len(ends_at), BINS))
    ends[rows, bins] = np.where(cut, 0.0, 1.0)
    return ends, passed


def survivals(hazards: Floats, g: ArrayLike) -> Floats:
    """P(L > g) of many distributions at once: hazards[n, 24], g[m] -> [n, m]."""
    at = np.asarray(g, dtype=np.float64)
    bins, share = _places(at)
    steps = np.log1p(-np.clip(hazards, _SMALLEST, 1 - _SMALLEST))
    before = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)[:, :-1]], axis=1)
    found: Floats = np.exp(before[:, bins] + steps[:, bins] * share)
    return found


def _places(at: Floats) -> tuple[Ints, Floats]:
    """The bin of each point and how far into it, in log length; above 1 beyond CAP."""
    log = np.log(np.maximum(at, 0.0) + SHIFT)
    bins = np.clip(np.searchsorted(_LOG_EDGES, log, side="left") - 1, 0, BINS - 1)
    return bins, (log - _LOG_EDGES[bins]) / _WIDTHS[bins]


def _log_survival(hazards: Floats, at: Floats) -> Floats:
    """log P(L > at), straight within a bin in log length: the rate is constant there."""
    bins, share = _places(at)
    falls = _falls(hazards)
    found: Floats = -(falls[bins] + (falls[bins + 1] - falls[bins]) * share)
    return found


def _falls(hazards: Floats) -> Floats:
    """-log P(L > g) at each of EDGES."""
    found = np.zeros(BINS + 1)
    kept = np.minimum(np.maximum(hazards, _SMALLEST), 1 - _SMALLEST)
    np.cumsum(-np.log1p(-kept), out=found[1:])
    return found


def fall_at(falls: Sequence[float], g: float) -> float:
    """-log P(L > g), g >= 0, where `falls` are those at EDGES: straight within a bin in log length;
    the last bin goes on."""
    place = math.log(g + SHIFT)
    at = min(max(bisect_left(_PLACES, place) - 1, 0), BINS - 1)
    return falls[at] + (place - _PLACES[at]) / _SPANS[at] * (falls[at + 1] - falls[at])


def length_at(falls: Sequence[float], fall: float) -> float:
    """The length at which -log P(L > length) is `fall`, above 0."""
    at = min(max(bisect_left(falls, fall) - 1, 0), BINS - 1)
    share = (fall - falls[at]) / (falls[at + 1] - falls[at])
    return math.exp(min(_PLACES[at] + share * _SPANS[at], _FURTHEST)) - SHIFT


class GlobalHazard:
    """One distribution for all requests, learned as they end: Kaplan and Meier's estimate on the
    bins, forgetting slowly. What a model without a forecaster of its own starts from."""

    PRIOR_WEIGHT = 2.0
    """Answers that the first belief is worth."""
    PRIOR_HAZARD = 0.06
    """Per bin: a median near 100 tokens and a tail of thousands; soon outweighed."""

    def __init__(self, memory: float = 2048.0) -> None:
        """`memory`: how many of the newest answers count, roughly."""
        self._keep = 1.0 - 1.0 / memory
        self._ends = np.zeros(BINS)
        self._passed = np.zeros(BINS)
        self.observed = 0

    def observe(self, length: int, censored: bool) -> None:
        """An answer has ended, or was cut, after `length` tokens."""
        self.observe_all([length], [censored])

    def observe_all(self, lengths: Sequence[int], censored: Sequence[bool]) -> None:
        """The same of several, oldest first."""
        ends, passed = exposures(lengths, censored)
        count = len(ends)
        kept = self._keep ** np.arange(count)[::-1]
        self._ends = self._ends * self._keep**count + kept @ ends
        self._passed = self._passed * self._keep**count + kept @ passed
        self.observed += count

    def lengths(self) -> Lengths:
        ends = self._ends + self.PRIOR_WEIGHT * self.PRIOR_HAZARD
        passed = self._passed + self.PRIOR_WEIGHT * (1 - self.PRIOR_HAZARD)
        return Lengths(np.asarray(ends / (ends + passed)))

    def arrays(self) -> dict[str, Floats]:
        """To be kept; `restored` takes them back."""
        return {"ends": self._ends.copy(), "passed": self._passed.copy()}

    @classmethod
    def restored(cls, ends: Floats, passed: Floats, memory: float = 2048.0) -> "GlobalHazard":
        """Raises ValueError where the arrays are not what `arrays` gave."""
        kept = [np.asarray(part, dtype=np.float64) for part in (ends, passed)]
        if any(p.shape != (BINS,) or not np.all(np.isfinite(p)) or p.min() < 0 for p in kept):
            raise ValueError("a global hazard is two arrays of 24 counts that are not negative")
        found = cls(memory)
        found._ends, found._passed = kept
        found.observed = int(kept[0].sum())
        return found


def fitted(lengths: ArrayLike, censored: ArrayLike) -> Lengths:
    """The one distribution that fits all of these answers best; GlobalHazard without forgetting."""
    ends, passed = (part.sum(axis=0) for part in exposures(lengths, censored))
    smooth = 0.5 / BINS
    return Lengths(np.asarray((ends + smooth) / (ends + passed + 2 * smooth)))
