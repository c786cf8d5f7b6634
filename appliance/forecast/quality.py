"""How likely an answer is right, told after it has ended, from what its model showed on the way.

Learned on tasks that can be checked (checks.py) and on nothing else. `claim` says what the number
may be called: `quality` where it beat its baselines on tasks that it had not seen, else
`confidence`. Before an answer runs, the network's quality logit tells the same (`before`). Pure.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.dataset import Signal
from appliance.forecast.told import Claim

Floats = NDArray[np.float64]
Vector = NDArray[np.float32]

WINDOW = 4
"""Signals of one window: 32 tokens."""
COMPONENTS = 16
"""Of the joint embedding of prompt and answer."""
NAMES = (
    "logprob_mean",
    "logprob_lowest_window",
    "entropy_mean",
    "entropy_first",
    "no_signals",
    "log_length",
    "ended",
)
"""In order; the components of the joint embedding follow."""
VERSION = 1
"""Of NAMES and of what they mean."""
_PREFIX = "quality_"


class BadQuality(ValueError):
    """Arrays that are no quality head of this program. Says why; nothing is told then."""


class Tally:
    """What the signals of one answer come to. Constant size."""

    def __init__(self) -> None:
        self._count = 0
        self._logprobs = self._entropies = self._first = 0.0
        self._window: tuple[float, ...] = ()
        self._lowest = 0.0

    def add(self, signal: Signal) -> None:
        """In order. Values that are no numbers are passed over."""
        if not (math.isfinite(signal.logprob) and math.isfinite(signal.entropy)):
            return
        logprob, entropy = max(signal.logprob, -20.0), min(max(signal.entropy, 0.0), 12.0)
        if not self._count:
            self._first = entropy
        self._count += 1
        self._logprobs += logprob
        self._entropies += entropy
        self._window = (*self._window, logprob)[-WINDOW:]
        if len(self._window) == WINDOW:
            self._lowest = min(self._lowest, sum(self._window) / WINDOW)

    def features(self, tokens: int, ended: bool) -> list[float]:
        """See NAMES. `tokens`: the length, the end included; `ended`: by the model itself. An
        answer of fewer than four signals has one window."""
        count = max(self._count, 1)
        mean = self._logprobs / count
        return [
            mean,
            self._lowest if self._count >= WINDOW else mean,
            self._entropies / count,
            self._first,
            float(self._count == 0),
            math.log(max(tokens, 1)),
            float(ended),
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The head that tells after the end."""

    project: Vector
    """float32 [COMPONENTS, 2 * dimensions]: of the vectors of prompt and answer, end to end."""
    mean: Vector
    """float32 [2 * dimensions]: taken off them before."""
    weights: Floats
    """float64 [1 + features + COMPONENTS], the bias first."""
    claim: Claim = "confidence"

    def told(self, features: list[float], prompt: Vector, answer: Vector) -> float:
        """0 to 1. `features`: of a Tally. `prompt`, `answer`: their vectors, of the embedder that
        the forecaster uses."""
        x = np.concatenate([features, joint(self.project, self.mean, prompt, answer)])
        return sigmoid(float(self.weights[1:] @ x + self.weights[0]))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """To be kept beside a refiner's; names do not clash."""
        return {
            _PREFIX + "project": self.project,
            _PREFIX + "mean": self.mean,
            _PREFIX + "weights": self.weights,
            _PREFIX + "version": np.array([VERSION, self.claim == "quality"], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "Head | None":
        """None: there is no head among them. Raises BadQuality."""
        if _PREFIX + "weights" not in arrays:
            return None
        try:
            project, mean, weights, facts = (
                np.asarray(arrays[_PREFIX + name])
                for name in ("project", "mean", "weights", "version")
            )
        except KeyError as error:
            raise BadQuality(f"the quality head lacks {error}") from error
        if facts.shape != (2,) or facts[0] != VERSION:
            raise BadQuality("the quality head is of another version")
        wide = (COMPONENTS, *mean.shape) if mean.ndim == 1 else ()
        if project.shape != wide or weights.shape != (1 + len(NAMES) + COMPONENTS,):
            raise BadQuality("the quality head's parts do not fit together")
        if not all(np.isfinite(part).all() for part in (project, mean, weights)):
            raise BadQuality("the quality head holds values that are not finite")
        claim: Claim = "quality" if facts[1] else "confidence"
        return cls(project.astype(np.float32), mean.astype(np.float32), weights, claim)


def joint(project: Vector, mean: Vector, prompt: Vector, answer: Vector) -> Floats:
    """float64 [COMPONENTS]: prompt and answer together. Zeros where they are of another width."""
    both = np.concatenate([prompt, answer])
    if both.shape != mean.shape:
        return np.zeros(len(project))
    return np.asarray(project @ (both - mean), dtype=np.float64)


def before(logit: float, slope: float, intercept: float) -> float:
    """The network's quality logit as a chance from 0 to 1 (Platt's scaling)."""
    return sigmoid(slope * logit + intercept)


def sigmoid(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(z, -30.0), 30.0)))
