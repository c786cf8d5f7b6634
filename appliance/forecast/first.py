"""Once the prompt was read: what the model itself makes of it, for a sharper forecast.

The logits of 128 tokens spread over the vocabulary are so many random views of the model's last
state. A ridge reads from them how likely the answer outlives each of a few lengths, and a second
network reads that beside everything the first one read. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.network import MOST_PARAMETERS, Network
from appliance.forecast.projection import Scaling

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]

LOGITS = 128
"""As the engine tells (engine.reports.FIRST_LOGITS)."""
MOST_READ = 7
"""Lengths that are asked about, at most: the weights of both parts stay below 10 000."""
_VECTORS = ("logits_mean", "logits_scale", "read_mean", "read_scale")


class BadFirst(ValueError):
    """What came is no such logits, or no reader of them. Says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """From logits to a few features."""

    logits: Scaling
    weights: Matrix
    """float32 [LOGITS, features]."""
    read: Scaling
    """Of what comes out."""

    @property
    def features(self) -> int:
        return int(self.weights.shape[1])

    def features_of(self, logits: Matrix) -> Matrix:
        """float32 [..., features] of [..., LOGITS]."""
        return self.read.scaled(self.logits.scaled(logits) @ self.weights)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """To be kept; `from_arrays` takes them back."""
        return {
            "logits_mean": self.logits.mean,
            "logits_scale": self.logits.scale,
            "weights": self.weights,
            "read_mean": self.read.mean,
            "read_scale": self.read.scale,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Raises BadFirst."""
        missing = [name for name in ("weights", *_VECTORS) if name not in arrays]
        if missing:
            raise BadFirst(f"the reader of first logits lacks {', '.join(missing)}")
        weights = arrays["weights"]
        count = weights.shape[1] if weights.ndim == 2 else 0
        shapes = [(LOGITS,), (LOGITS,), (count,), (count,)]
        if weights.shape != (LOGITS, count) or not 0 < count <= MOST_READ:
            raise BadFirst("the reader of first logits has weights of another shape")
        if [arrays[name].shape for name in _VECTORS] != shapes:
            raise BadFirst("the parts of the reader of first logits do not fit together")
        parts = [weights, *(arrays[name] for name in _VECTORS)]
        if any(a.dtype != np.float32 or not np.isfinite(a).all() for a in parts):
            raise BadFirst("the reader of first logits holds what is not a number")
        weights, mean, scale, read_mean, read_scale = parts
        return cls(Scaling(mean, scale), weights, Scaling(read_mean, read_scale))


@dataclass(frozen=True, slots=True, eq=False)
class First:
    """All that a forecaster needs for it."""

    reader: Reader
    network: Network
    fp32: bytes
    """The network as ONNX. There is no INT8: one row at a time takes that four times as long."""

    def check(self, inputs: int) -> None:
        """Beside a network that reads `inputs` features. Raises BadFirst."""
        if self.network.inputs != inputs + self.reader.features:
            raise BadFirst(
                f"the network for first logits reads {self.network.inputs} features, not "
                f"{inputs} and {self.reader.features}"
            )
        if self.network.parameters + self.reader.weights.size >= MOST_PARAMETERS:
            raise BadFirst("what reads first logits has too many weights")


def logits_of(values: bytes) -> Vector:
    """As the engine sent them. Raises BadFirst."""
    if len(values) != 4 * LOGITS:
        raise BadFirst(f"{len(values)} bytes are no {LOGITS} logits")
    found = np.frombuffer(values, dtype="<f4").astype(np.float32, copy=False)
    if not np.isfinite(found).all():
        raise BadFirst("a logit is not a number")
    return found
