"""How long the answers to the nearest prompts were. Bounded; the newest push out the oldest."""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

CAPACITY = 4096
NEAREST = 24
SHARPNESS = 10.0
"""Weight of a neighbour: exp(SHARPNESS * (its cosine - the nearest one's))."""
LONGEST = 16.0
"""log of a length, at most."""
NAMES: tuple[str, ...] = (
    "near_mean",
    "near_deviation",
    "near_median",
    "near_censored",
    "near_cosine",
    "near_mean_cosine",
)
"""What `statistics` gives, in order. Lengths are natural logarithms of tokens; near_censored is the
share that goes on beyond the longest of them."""
EMPTY: Vector = np.array([4.5, 1.5, 4.5, 0.0, 0.0, 0.0], dtype=np.float32)
"""What is said where there are no neighbours: some 90 tokens, give or take a lot."""


class Neighbours:
    """Vectors of length 1 and the lengths that followed. One owner; not thread-safe."""

    def __init__(self, dimensions: int, capacity: int = CAPACITY) -> None:
        self._vectors = np.zeros((capacity, dimensions), dtype=np.float32)
        self._log_lengths = np.zeros(capacity, dtype=np.float32)
        self._censored = np.zeros(capacity, dtype=bool)
        self._families = np.full(capacity, -1, dtype=np.int64)
        self._added = 0
        """Entries ever: the next goes to this place, modulo the capacity."""

    def __len__(self) -> int:
        return min(self._added, len(self._vectors))

    @property
    def dimensions(self) -> int:
        return self._vectors.shape[1]

    def add(
        self, vector: Vector, log_length: float, censored: bool = False, family: int = -1
    ) -> None:
        """An answer ended (or was cut off, censored) after exp(log_length) tokens. A vector that is
        all zeros, or anything that is not finite, is passed over. Raises ValueError for a vector of
        other dimensions.
        """
        if vector.shape != (self.dimensions,):
            raise ValueError(f"a vector of {vector.shape} among those of {self.dimensions}")
        if not (math.isfinite(log_length) and np.isfinite(vector).all() and vector.any()):
            return
        at = self._added % len(self._vectors)
        self._vectors[at] = vector
        self._log_lengths[at] = min(max(log_length, 0.0), LONGEST)
        self._censored[at] = censored
        self._families[at] = family
        self._added += 1

    def statistics(self, vector: Vector, *, exclude: int | None = None) -> Vector:
        """float32 [len(NAMES)], always finite; those of family `exclude` are left out. With no
        neighbours: EMPTY.
        """
        count = len(self)
        if not count or not np.isfinite(vector).all() or not vector.any():
            return EMPTY
        cosines = self._vectors[:count] @ vector
        if exclude is not None:
            cosines = np.where(self._families[:count] == exclude, -np.inf, cosines)
        near = np.argpartition(cosines, -min(NEAREST, count))[-min(NEAREST, count) :]
        near = near[np.isfinite(cosines[near])]
        return self._described(near, cosines[near]) if near.size else EMPTY

    def _described(self, near: NDArray[np.intp], cosines: Vector) -> Vector:
        order = np.lexsort((self._censored[near], self._log_lengths[near]))
        near, cosines = near[order], cosines[order]
        lengths = self._log_lengths[near].astype(np.float64)
        censored = self._censored[near]
        weights = np.exp(SHARPNESS * (cosines - cosines.max()).astype(np.float64))
        masses, beyond = _masses(weights, censored)
        mean = float(masses @ lengths)
        deviation = math.sqrt(max(float(masses @ (lengths - mean) ** 2), 0.0))
        median = _median(lengths, _masses(np.ones(len(near)), censored)[0])
        found = (mean, deviation, median, beyond, float(cosines.max()), float(cosines.mean()))
        return np.array(found, dtype=np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it, oldest first, for np.savez: `vectors` float16 [n, dimensions], `log_lengths`,
        `censored`, `families`.
        """
        order = np.arange(self._added - len(self), self._added) % len(self._vectors)
        return {
            "vectors": self._vectors[order].astype(np.float16),
            "log_lengths": self._log_lengths[order],
            "censored": self._censored[order],
            "families": self._families[order],
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], capacity: int = CAPACITY) -> Self:
        """The newest `capacity` of what `arrays` gave. Raises ValueError when the arrays do not fit
        together.
        """
        vectors, lengths, censored, families = _checked(arrays)
        found = cls(vectors.shape[1], capacity)
        for at in range(max(0, len(vectors) - capacity), len(vectors)):
            vector = vectors[at].astype(np.float32)
            found.add(vector, float(lengths[at]), bool(censored[at]), int(families[at]))
        return found


def _masses(
    weights: NDArray[np.float64], censored: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], float]:
    """The probability of each length by Kaplan and Meier, and how much of it is that of the last
    one only because that was cut off. Lengths ascend, at equal ones the censored last: what was cut
    off early only tells that it would have gone on.
    """
    at_risk = np.cumsum(weights[::-1])[::-1]
    hazards = np.where(censored, 0.0, weights / at_risk)
    survivals = np.cumprod(1 - hazards)
    masses = np.concatenate(([1.0], survivals[:-1])) * hazards
    beyond = float(survivals[-1])
    masses[-1] += beyond
    return masses, beyond


def _median(lengths: NDArray[np.float64], masses: NDArray[np.float64]) -> float:
    """Between the two in the middle where the masses part there."""
    reached = np.cumsum(masses)
    low, high = np.searchsorted(reached, (0.5 - 1e-9, 0.5 + 1e-9))
    last = len(lengths) - 1
    return float(lengths[min(low, last)] + lengths[min(high, last)]) / 2


def _checked(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    names = ("vectors", "log_lengths", "censored", "families")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"the neighbours lack {', '.join(missing)}")
    vectors, *others = (arrays[name] for name in names)
    if vectors.ndim != 2 or any(other.shape != (len(vectors),) for other in others):
        raise ValueError("the neighbours' arrays are of different lengths")
    if any(array.dtype.kind not in "fbiu" for array in (vectors, *others)):
        raise ValueError("the neighbours' arrays hold something other than numbers")
    return (vectors, *others)
