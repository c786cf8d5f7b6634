"""How long the answers to the nearest prompts were. Bounded; the newest push out the oldest."""

import math
import operator
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
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


@dataclass(slots=True, eq=False)
class _Place:
    """A vector, and what was said there."""

    row: int
    """Of the matrix."""
    key: tuple[bytes, int]
    family: int
    said: deque[tuple[float, bool]]
    """Log length and whether it was cut off, the oldest first; one at least."""


class Neighbours:
    """Vectors of length 1 and the lengths that followed. One owner; not thread-safe.

    Answers to the very same prompt share one row of the matrix: it is read whole for each forecast,
    and that is what a forecast costs most.
    """

    def __init__(self, dimensions: int, capacity: int = CAPACITY) -> None:
        """`capacity`: answers."""
        self._vectors = np.zeros((capacity, dimensions), dtype=np.float32)
        self._places: list[_Place] = []
        """In the order of the matrix's rows."""
        self._known: dict[tuple[bytes, int], _Place] = {}
        self._answers: deque[_Place] = deque()
        """Where each was given, the oldest first."""
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._answers)

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
        if not (math.isfinite(log_length) and _is_somewhere(vector)):
            return
        if len(self._answers) == self._capacity:
            self._forget()
        place = self._place(vector, family)
        place.said.append((min(max(log_length, 0.0), LONGEST), censored))
        self._answers.append(place)

    def _place(self, vector: Vector, family: int) -> _Place:
        key = vector.tobytes(), family
        found = self._known.get(key)
        if found is None:
            found = _Place(len(self._places), key, family, deque())
            self._vectors[found.row] = vector
            self._places.append(found)
            self._known[key] = found
        return found

    def _forget(self) -> None:
        """The oldest answer; with the last one of a place the place goes, and the last row of the
        matrix takes its row."""
        oldest = self._answers.popleft()
        oldest.said.popleft()
        if not oldest.said:
            del self._known[oldest.key]
            last = self._places.pop()
            if last is not oldest:
                self._vectors[oldest.row] = self._vectors[last.row]
                self._places[oldest.row] = last
                last.row = oldest.row

    def statistics(self, vector: Vector, *, exclude: int | None = None) -> Vector:
        """float32 [len(NAMES)], always finite; those of family `exclude` are left out. With no
        neighbours: EMPTY.
        """
        if not self._places or not _is_somewhere(vector):
            return EMPTY
        cosines = self._vectors[: len(self._places)] @ vector
        if exclude is not None:
            families = np.array([place.family for place in self._places])
            cosines[families == exclude] = -np.inf
        near = self._nearest(cosines)
        return _described(near) if near else EMPTY

    def _nearest(self, cosines: Vector) -> list[tuple[float, bool, float]]:
        """The NEAREST answers, the newest of a place: log length, whether it was cut off, and the
        cosine."""
        count = min(NEAREST, len(cosines))
        rows = np.argpartition(cosines, -count)[-count:]
        nearest = sorted(zip(cosines[rows].tolist(), rows.tolist(), strict=True), reverse=True)
        found = [
            (length, censored, cosine)
            for cosine, row in nearest
            if cosine > -math.inf
            for length, censored in reversed(self._places[row].said)
        ]
        return found[:NEAREST]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it, oldest first, for np.savez: `vectors` float16 [n, dimensions], `log_lengths`,
        `censored`, `families`.
        """
        said = {id(place): iter(place.said) for place in self._places}
        outcomes = [next(said[id(place)]) for place in self._answers]
        return {
            "vectors": self._vectors[[place.row for place in self._answers]].astype(np.float16),
            "log_lengths": np.array([length for length, _ in outcomes], dtype=np.float32),
            "censored": np.array([censored for _, censored in outcomes], dtype=bool),
            "families": np.array([place.family for place in self._answers], dtype=np.int64),
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


def _is_somewhere(vector: Vector) -> bool:
    """Finite, and not all zeros."""
    return 0.0 < float(vector @ vector) < math.inf


def _described(near: list[tuple[float, bool, float]]) -> Vector:
    """`near`: one at least, as `_nearest` gives them."""
    cosines = [cosine for _, _, cosine in near]
    closest = cosines[0]
    near.sort()  # by length, at equal ones the censored last
    lengths = [length for length, _, _ in near]
    censored = [cut for _, cut, _ in near]
    weights = [math.exp(SHARPNESS * (cosine - closest)) for _, _, cosine in near]
    masses, beyond = _masses(weights, censored)
    mean = sum(map(operator.mul, masses, lengths))
    spread = sum([m * (length - mean) ** 2 for m, length in zip(masses, lengths, strict=True)])
    median = _median(lengths, _masses([1.0] * len(near), censored)[0])
    found = (mean, math.sqrt(spread), median, beyond, closest, sum(cosines) / len(cosines))
    return np.array(found, dtype=np.float32)


def _masses(weights: list[float], censored: list[bool]) -> tuple[list[float], float]:
    """The probability of each length by Kaplan and Meier, and how much of it is that of the last
    one only because that was cut off. Lengths ascend, at equal ones the censored last: what was cut
    off early only tells that it would have gone on.
    """
    at_risk = list(accumulate(reversed(weights)))
    masses, alive = list[float](), 1.0
    for weight, cut in zip(weights, censored, strict=True):
        mass = 0.0 if cut else alive * weight / at_risk[-1 - len(masses)]
        masses.append(mass)
        alive -= mass
    masses[-1] += alive
    return masses, alive


def _median(lengths: list[float], masses: list[float]) -> float:
    """Between the two in the middle where the masses part there."""
    reached = list(accumulate(masses))
    last = len(lengths) - 1
    low, high = bisect_left(reached, 0.5 - 1e-9), bisect_left(reached, 0.5 + 1e-9)
    return (lengths[min(low, last)] + lengths[min(high, last)]) / 2


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
