"""How good chances are that were told before it was known what happened. Pure NumPy.

`told`: chances from 0 to 1; `came`: 1 where it happened, 0 where not.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BINS = 15
"""Of ECE: as many answers in each, as far as that goes."""


class Score(msgspec.Struct, frozen=True):
    """One way of telling chances."""

    n: int
    rate: float
    """How often it happened."""
    brier: float
    """Mean squared error; always telling the rate gives rate * (1 - rate)."""
    ece: float
    """Mean distance of told and real over bins of equal mass."""
    auroc: float | None
    """P(told higher where it happened); None where it always or never happened."""


def score(told: Floats, came: Floats) -> Score:
    """Raises ValueError when there are none."""
    if not len(told):
        raise ValueError("there is nothing to score")
    return Score(
        len(told), float(came.mean()), brier(told, came), ece(told, came), auroc(told, came)
    )


def brier(told: Floats, came: Floats) -> float:
    return float(np.mean((told - came) ** 2))


def ece(told: Floats, came: Floats, bins: int = BINS) -> float:
    """Expected calibration error. Equal chances stay in one bin, so a constant has one bin."""
    order = np.argsort(told, kind="stable")
    sorted_told, sorted_came = told[order], came[order]
    cuts = [round(len(told) * k / bins) for k in range(1, bins)]
    starts = np.unique([0, *(np.searchsorted(sorted_told, sorted_told[c]) for c in cuts)])
    parts = zip(np.split(sorted_told, starts[1:]), np.split(sorted_came, starts[1:]), strict=True)
    return float(sum(abs(t.sum() - c.sum()) for t, c in parts) / len(told))


def auroc(told: Floats, came: Floats) -> float | None:
    """Area under the ROC curve, ties counting half (Mann and Whitney)."""
    ones = int(came.sum())
    zeros = len(came) - ones
    if ones == 0 or zeros == 0:
        return None
    ranks = _ranks(told)
    return float((ranks[came > 0.5].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def auroc_within(told: Floats, came: Floats, groups: NDArray[np.int64]) -> float | None:
    """AUROC of pairs of the same group only: what is left when the group is known. Groups count
    by their pairs. None where no group has both."""
    pairs = total = 0.0
    for group in np.unique(groups):
        inside = groups == group
        found = auroc(told[inside], came[inside])
        if found is not None:
            ones = float(came[inside].sum())
            weight = ones * (inside.sum() - ones)
            pairs, total = pairs + weight, total + weight * found
    return float(total / pairs) if pairs else None


def quintiles(values: Floats) -> NDArray[np.int64]:
    """0 to 4 for each value, as many in each as ties allow."""
    cuts = np.quantile(values, (0.2, 0.4, 0.6, 0.8))
    return np.searchsorted(cuts, values, side="left").astype(np.int64)


def _ranks(values: Floats) -> Floats:
    """1 to n; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: Floats = (last - (counts - 1) / 2)[inverse]
    return found
