"""What the network is trained to do: the loss of hazard logits, and its gradient. Pure.

loss = censored hazard likelihood
     + CRPS of min(L, cap) on the bins' edges
     + a margin between the expected log lengths of pairs whose lengths differ clearly
     + cross entropy of the quality logit, where quality is known.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.hazard import BINS, EDGES, SHIFT, exposures

Array = NDArray[np.float32]

_CRPS = 4.0
_MARGIN = 0.2
_QUALITY = 0.5
_GAP = 0.3
"""Log length by which the longer of a pair should be foreseen longer."""
_CLEARLY = float(np.log(1.2))
_WIDTHS: Array = np.diff(np.log(EDGES + SHIFT)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Targets:
    """What is known of each answer, [..., 24] but for the last two, which are [...]."""

    ends: Array
    """1 in the bin where it ended."""
    passed: Array
    """How much of each bin it lived through."""
    below: Array
    """1 where the length is at most the bin's upper edge."""
    known: Array
    """1 where `below` is known: not beyond the place where an answer was cut."""
    log_length: Array
    quality: Array
    """1, 0, or not a number where it cannot be told."""

    def at(self, rows: NDArray[Any]) -> "Targets":
        """Those of some rows, in any shape."""
        return Targets(*(getattr(self, name)[rows] for name in self.__slots__))

    def softened(self, survival: Array, quality: Array, share: Array) -> "Targets":
        """Mixed with what a teacher believes: its survivals[..., 24] at the bins' upper edges and
        its chance of a right answer [...], with weight `share`[..., 1]. Known where either knows.
        """
        before = np.concatenate([np.ones_like(survival[..., :1]), survival[..., :-1]], axis=-1)
        return Targets(
            _mixed(self.ends, before - survival, share),
            _mixed(self.passed, survival, share),
            _mixed(self.below, 1 - survival, share),
            np.maximum(self.known, share),
            self.log_length,
            np.where(
                np.isfinite(self.quality),
                _mixed(self.quality, quality, share[..., 0]),
                quality,
            ),
        )


def _mixed(own: Array, taught: Array, share: Array) -> Array:
    return np.asarray((1 - share) * own + share * taught, dtype=np.float32)


def targets(
    lengths: NDArray[np.int64], censored: NDArray[np.bool_], quality: Array | None
) -> Targets:
    """Of answers that ended, or were cut, at `lengths`[n]."""
    ends, passed = exposures(lengths, censored)
    edges = EDGES[1:]
    below = lengths[:, None] <= edges
    known = ~(censored[:, None] & (edges >= lengths[:, None]))
    if quality is None:
        quality = np.full(len(lengths), np.nan, dtype=np.float32)
    log = np.log(np.maximum(lengths, 1))
    parts = (part.astype(np.float32) for part in (ends, passed, below, known, log, quality))
    return Targets(*parts)


def edge_weights(cap: int) -> Array:
    """How much of 0..cap each bin's upper edge stands for: the trapezium rule, sum at most 1."""
    edges = np.minimum(EDGES, cap)
    widths = np.diff(edges)
    weights = widths / 2
    weights[:-1] += widths[1:] / 2
    weights[EDGES[1:] >= cap] = 0.0
    return np.asarray(weights / cap, dtype=np.float32)


def gradient(logits: Array, wanted: Targets, weights: Array, pairs: bool) -> Array:
    """Of the mean loss of a batch over its axis -2, by the logits[..., batch, 25]."""
    hazards = _sigmoid(logits[..., :BINS])
    survival = np.cumprod(1 - hazards, axis=-1)
    found = (wanted.ends + wanted.passed) * hazards - wanted.ends
    error = weights * (1 - survival - wanted.below) * wanted.known
    found += _CRPS * hazards * _later(2 * error * survival)
    if pairs:
        found -= _MARGIN * _pull(survival, wanted.log_length) * hazards * _later(survival * _WIDTHS)
    out = np.empty_like(logits)
    out[..., :BINS] = found
    out[..., BINS] = _QUALITY * np.nan_to_num(_sigmoid(logits[..., BINS]) - wanted.quality)
    return out / np.float32(logits.shape[-2])


def _sigmoid(z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -30, 30))), dtype=np.float32)


def _later(values: Array) -> Array:
    """Sums from each bin to the last: a hazard moves every survival after it."""
    return np.asarray(np.cumsum(values[..., ::-1], axis=-1)[..., ::-1], dtype=np.float32)


def _pull(survival: Array, log_length: Array) -> Array:
    """The slope of the hinge loss by E[log L], [..., batch, 1]. Each row is paired with the one
    before it in the batch, which is in random order."""
    expected = (survival * _WIDTHS).sum(axis=-1)
    difference = log_length - np.roll(log_length, 1, axis=-1)
    way = np.sign(difference)
    short = way * (expected - np.roll(expected, 1, axis=-1)) < _GAP
    slope = -way * (short & (np.abs(difference) > _CLEARLY))
    return np.asarray(slope - np.roll(slope, -1, axis=-1), dtype=np.float32)[..., None]
