"""Several networks trained side by side: each weight has a first axis, one entry a member.

AdamW with a cosine rate, noise on the inputs and dropout in the hidden layers; what counts is the
running mean of the weights, which one NumPy product advances for all members.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.hazard import BINS
from appliance.forecast.network import HIDDEN, NAMES, OUTPUTS, Network

Array = NDArray[np.float32]

_FIRST, _SECOND = 0.9, 0.99
"""AdamW's decays of the gradient's mean and of its square's."""
_AVERAGE = 0.98
"""Of the running mean of the weights."""
_WARM_UP = 20
"""Steps."""
_SLOWEST = 1e-5


@dataclass(frozen=True, slots=True)
class Noise:
    """What keeps a small set from being learned by heart."""

    inputs: float
    """Standard deviations, added to every feature."""
    hidden: float
    """Share of hidden units that are left out of a step."""


class Stack:
    """`members` networks that learn at once."""

    def __init__(
        self, members: int, inputs: int, start: NDArray[np.float64], rng: np.random.Generator
    ) -> None:
        """`start`: the hazards[24] that every member foretells at first."""
        self._rng = rng
        self._weights = _drawn(members, inputs, rng)
        self._weights[-1][:, 0, :BINS] = np.log(start / (1 - start))
        self._mean = [w.copy() for w in self._weights]
        self._slope = [np.zeros_like(w) for w in self._weights]
        self._square = [np.zeros_like(w) for w in self._weights]
        self._step = 0

    def logits(self, x: Array) -> Array:
        """[members, n, 25] of x[n, F] or x[members, n, F], by the running means."""
        return _forward(self._mean, x)[2]

    def member(self, index: int) -> Network:
        parts = {name: w[index] for name, w in zip(NAMES, self._mean, strict=True)}
        return Network.restored({n: p[0] if n[0] == "b" else p for n, p in parts.items()})

    def forwarded(self, x: Array, noise: Noise) -> "Pass":
        """One pass of a batch x[members, n, F], disturbed, to be followed by `learn`."""
        if noise.inputs:
            x = x + self._rng.normal(0, noise.inputs, x.shape).astype(np.float32)
        keep = [self._kept((*x.shape[:2], size), noise.hidden) for size in HIDDEN]
        first, second, logits = _forward(self._weights, x, keep)
        return Pass(x, first, second, logits, (keep[0], keep[1]))

    def _kept(self, shape: tuple[int, ...], share: float) -> Array:
        drawn = self._rng.random(shape, dtype=np.float32) >= share
        return drawn.astype(np.float32) / np.float32(1 - share)

    def learn(self, passed: "Pass", slope: Array, rate: float, decay: float) -> None:
        """One step down the slope[members, n, 25] of the loss by the logits."""
        self._step += 1
        rate = rate * min(1.0, self._step / _WARM_UP) + _SLOWEST
        for index, gradient in enumerate(_backward(self._weights, passed, slope)):
            self._advance(index, gradient, rate, decay if index % 2 == 0 else 0.0)

    def _advance(self, index: int, gradient: Array, rate: float, decay: float) -> None:
        weights, mean = self._weights[index], self._mean[index]
        slope, square = self._slope[index], self._square[index]
        slope += (1 - _FIRST) * (gradient - slope)
        square += (1 - _SECOND) * (gradient * gradient - square)
        height = np.sqrt(square / (1 - _SECOND**self._step)) + 1e-8
        weights -= rate * (slope / (1 - _FIRST**self._step) / height + decay * weights)
        mean += max(1 - _AVERAGE, 9 / (self._step + 9)) * (weights - mean)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a batch left behind in each layer."""

    x: Array
    first: Array
    second: Array
    logits: Array
    kept: tuple[Array, Array]


def _drawn(members: int, inputs: int, rng: np.random.Generator) -> list[Array]:
    sizes = (inputs, *HIDDEN, OUTPUTS)
    found: list[Array] = []
    for before, after in pairwise(sizes):
        spread = np.sqrt((0.5 if after == OUTPUTS else 2.0) / before)
        found.append(rng.normal(0, spread, (members, before, after)).astype(np.float32))
        found.append(np.zeros((members, 1, after), dtype=np.float32))
    return found


def _forward(
    weights: list[Array], x: Array, keep: list[Array] | None = None
) -> tuple[Array, Array, Array]:
    w1, b1, w2, b2, w3, b3 = weights
    first = np.maximum(x @ w1 + b1, 0)
    if keep is not None:
        first *= keep[0]
    second = np.maximum(first @ w2 + b2, 0)
    if keep is not None:
        second *= keep[1]
    return first, second, second @ w3 + b3


def _backward(weights: list[Array], passed: Pass, slope: Array) -> list[Array]:
    second = (slope @ _turned(weights[4])) * (passed.second > 0) * passed.kept[1]
    first = (second @ _turned(weights[2])) * (passed.first > 0) * passed.kept[0]
    layers = ((passed.x, first), (passed.first, second), (passed.second, slope))
    found: list[Array] = []
    for values, slopes in layers:
        found.append(np.asarray(_turned(values) @ slopes, dtype=np.float32))
        found.append(np.asarray(slopes.sum(axis=1, keepdims=True), dtype=np.float32))
    return found


def _turned(values: Array) -> Array:
    return np.swapaxes(values, 1, 2)
