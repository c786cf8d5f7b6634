"""Whether what was told with a probability comes true that often. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from appliance.forecast.hazard import Lengths
from appliance.forecast.scores import auroc

Floats = NDArray[np.float64]

BLOCK = 200
"""Answers in a row over which coverage is looked at."""
FEWEST_IN_GROUP = 20
"""Answers: a smaller group's coverage says nothing."""
ECE_BINS = 15


def upper(truth: ArrayLike, bound: ArrayLike, groups: Sequence[str]) -> dict[str, float]:
    """Of a one-sided bound: how often L <= bound, over all, in the worst group, and in the worst
    and best block of 200 in the order given; how far the bound lies above zero."""
    real, told = (np.asarray(part, dtype=np.float64) for part in (truth, bound))
    kept = real <= told
    return {
        "coverage": float(kept.mean()),
        "worst_group": worst(kept, groups),
        **_blocks(kept),
        "mean_bound": float(told.mean()),
        "median_bound": float(np.median(told)),
    }


def central(truth: ArrayLike, low: ArrayLike, high: ArrayLike, level: float) -> dict[str, float]:
    """Of an interval meant to hold `level`: coverage, widths and the interval score (tokens)."""
    real, below, above = (np.asarray(part, dtype=np.float64) for part in (truth, low, high))
    width = above - below
    outside = np.maximum(below - real, 0) + np.maximum(real - above, 0)
    return {
        "coverage": float((outside == 0).mean()),
        "mean_width": float(width.mean()),
        "median_width": float(np.median(width)),
        "interval_score": float((width + 2 / (1 - level) * outside).mean()),
    }


def worst(kept: ArrayLike, groups: Sequence[str]) -> float:
    """The least share kept among groups of 20 answers or more; NaN where there is none."""
    hit, names = np.asarray(kept, dtype=np.float64), np.asarray(groups)
    shares = [
        hit[names == name].mean()
        for name in np.unique(names)
        if (names == name).sum() >= FEWEST_IN_GROUP
    ]
    return float(min(shares)) if shares else float("nan")


def _blocks(kept: NDArray[np.bool_]) -> dict[str, float]:
    whole = len(kept) // BLOCK
    if not whole:
        return {}
    shares = kept[: whole * BLOCK].reshape(whole, BLOCK).mean(axis=1)
    return {"block_least": float(shares.min()), "block_most": float(shares.max())}


def events(happened: ArrayLike, chance: ArrayLike) -> dict[str, float]:
    """Of a yes or no told as a probability: Brier score, calibration error, AUROC. NaN where there
    is nothing to judge (every answer was cut off before it could tell)."""
    real, told = (np.asarray(part, dtype=np.float64) for part in (happened, chance))
    if not len(real):
        return {"count": 0.0} | dict.fromkeys(("rate", "brier", "ece", "auroc"), float("nan"))
    return {
        "count": float(len(real)),
        "rate": float(real.mean()),
        "brier": float(np.square(told - real).mean()),
        "ece": calibration_error(real, told),
        "auroc": auroc(real > 0, told),
    }


def calibration_error(happened: Floats, chance: Floats, bins: int = ECE_BINS) -> float:
    """ECE with bins of equal mass."""
    parts = np.array_split(np.argsort(chance, kind="stable"), min(bins, len(chance)))
    gaps = [len(p) * abs(happened[p].mean() - chance[p].mean()) for p in parts if len(p)]
    return float(sum(gaps) / len(chance))


def curve(
    hazards: Floats, lengths: ArrayLike, censored: ArrayLike, taus: Sequence[float]
) -> list[tuple[float, float]]:
    """(level, share of answers at or below the told quantile): the reliability plot.

    Of the length without any cap: an answer that was cut counts with the chance, as told, that it
    would have ended by the quantile. Counting min(L, cap) would call every bound at the cap right.
    """
    ends, cut = np.asarray(lengths), np.asarray(censored, dtype=bool)
    points = np.stack([ends - 1, ends], axis=1)
    pairs = zip(hazards, points, strict=True)
    alive = np.array([Lengths(row).survival(at) for row, at in pairs])
    found = []
    for tau in taus:
        beyond = np.clip((tau - (1 - alive[:, 1])) / alive[:, 1], 0, 1)
        share = np.where(cut, beyond, 1 - alive[:, 0] < tau).mean()
        found.append((float(tau), float(share)))
    return found
