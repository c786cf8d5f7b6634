"""What a pipeline learns from its training rows: scale, relevance, principal components. Pure."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]

LIMIT = 6.0
"""No scaled feature is further from its mean: a network knows nothing out there."""
_HIGHEST = np.float32(LIMIT)
COMPONENTS = 64
"""Of an embedding, at most."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Makes features alike: mean 0, deviation 1."""

    mean: Vector
    scale: Vector
    """1 / standard deviation; 0 for what never varied."""

    @classmethod
    def of(cls, matrix: Matrix) -> Self:
        """Fitted on rows."""
        mean, deviation = matrix.mean(axis=0), matrix.std(axis=0)
        varies = deviation > 1e-6
        scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0)
        return cls(mean.astype(np.float32), scale.astype(np.float32))

    def scaled(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of finite numbers: within ±LIMIT."""
        scaled: NDArray[np.float32] = (values - self.mean) * self.scale
        np.minimum(scaled, _HIGHEST, out=scaled)
        return np.maximum(scaled, -_HIGHEST, out=scaled)


def relevance(words: Matrix, log_lengths: NDArray[np.float64]) -> Vector:
    """How closely each feature goes with the length: |correlation|, 0 for one that never varies."""
    centred = words - words.mean(axis=0)
    towards = log_lengths - log_lengths.mean()
    sizes = np.linalg.norm(centred, axis=0) * np.linalg.norm(towards)
    related = np.abs(towards @ centred) / np.maximum(sizes, 1e-9)
    found: Vector = related.astype(np.float32)
    return found


def principal(embeddings: Matrix) -> tuple[Vector, Matrix]:
    """Mean, and the directions of the largest variance. The sign of each is fixed, so that the same
    data give the same components.
    """
    if not embeddings.shape[1]:
        return np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
    centre = embeddings.mean(axis=0).astype(np.float32)
    spread = (embeddings - centre).astype(np.float64)
    _, vectors = np.linalg.eigh(spread.T @ spread)
    rows = vectors.T[::-1][: min(COMPONENTS, len(embeddings), embeddings.shape[1])]
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1, keepdims=True), axis=1)
    return centre, (rows * np.where(largest < 0, -1.0, 1.0)).astype(np.float32)
