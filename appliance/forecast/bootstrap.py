"""How sure a difference is: prompt families are drawn again and again, whole. Pure."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 2000


def interval(
    values: Floats, families: NDArray[np.int64], *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of the mean of `values`[n], with families drawn with replacement. Give it
    differences of two methods on the same answers for a paired comparison."""
    sums, counts = _per_family(np.asarray(values, dtype=np.float64), families)
    picks = _drawn(len(sums), draws, seed)
    return _ends(sums[picks].sum(axis=1) / counts[picks].sum(axis=1))


def _per_family(values: Floats, families: NDArray[np.int64]) -> tuple[Floats, Floats]:
    _, place = np.unique(families, return_inverse=True)
    sums = np.asarray(np.bincount(place, values), dtype=np.float64)
    return sums, np.bincount(place).astype(np.float64)


def _drawn(families: int, draws: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, families, (draws, families))


def _ends(found: Floats) -> tuple[float, float]:
    low, high = np.nanquantile(found, (0.025, 0.975))
    return float(low), float(high)
