"""The forecaster's network: three layers, fewer than 10 000 weights, plain NumPy."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.hazard import BINS

Floats32 = NDArray[np.float32]

HIDDEN = (64, 32)
OUTPUTS = BINS + 1
"""24 hazard logits, then the quality logit."""
MOST_PARAMETERS = 10_000

NAMES = ("w1", "b1", "w2", "b2", "w3", "b3")


@dataclass(frozen=True, slots=True)
class Network:
    """x[n, F] -> relu(x w1 + b1) -> relu(. w2 + b2) -> . w3 + b3, [n, 25]. All float32."""

    w1: Floats32
    b1: Floats32
    w2: Floats32
    b2: Floats32
    w3: Floats32
    b3: Floats32

    def forward(self, x: Floats32) -> Floats32:
        """Logits[n, 25] of x[n, F]: hazards in the first 24 columns, quality in the last."""
        first = np.maximum(x @ self.w1 + self.b1, 0.0)
        second = np.maximum(first @ self.w2 + self.b2, 0.0)
        return np.asarray(second @ self.w3 + self.b3, dtype=np.float32)

    @property
    def inputs(self) -> int:
        return int(self.w1.shape[0])

    @property
    def parameters(self) -> int:
        return sum(int(getattr(self, name).size) for name in NAMES)

    def arrays(self) -> dict[str, Floats32]:
        """By name, for np.savez; `restored` takes them back."""
        return {name: getattr(self, name) for name in NAMES}

    @classmethod
    def restored(cls, arrays: dict[str, Floats32]) -> "Network":
        """Raises ValueError where shapes do not chain, a weight is missing or is no number."""
        try:
            found = cls(**{name: np.asarray(arrays[name], dtype=np.float32) for name in NAMES})
        except KeyError as error:
            raise ValueError(f"the network's weights {error} are missing") from error
        shapes = [getattr(found, name).shape for name in NAMES]
        if shapes != _shapes(found.w1.shape[0] if found.w1.ndim == 2 else 0):
            raise ValueError(f"the network's weights have shapes {shapes}, which do not chain")
        if not all(np.all(np.isfinite(getattr(found, name))) for name in NAMES):
            raise ValueError("a weight of the network is not a finite number")
        return found


def _shapes(inputs: int) -> list[tuple[int, ...]]:
    sizes = (inputs, *HIDDEN, OUTPUTS)
    return [shape for before, after in pairwise(sizes) for shape in ((before, after), (after,))]


def parameters_of(inputs: int) -> int:
    """How many weights a network of `inputs` features has."""
    return sum(int(np.prod(shape)) for shape in _shapes(inputs))
