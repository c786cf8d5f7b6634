"""How good a forecast was: points, rankings and whole distributions.

Lengths are tokens, of min(L, cap): an answer that was cut at the cap is exactly cap there, so
censoring costs nothing. Pure; SciPy is loaded where a ranking is scored.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from appliance.forecast.hazard import survivals

Floats = NDArray[np.float64]

TAUS = (0.1, 0.25, 0.5, 0.7, 0.9, 0.95, 0.99)


def points(truth: ArrayLike, forecast: ArrayLike) -> dict[str, float]:
    """Errors of one number per answer. `bias` > 0: forecasts are too long. Shares are 0 to 1."""
    real, told = (np.asarray(part, dtype=np.float64) for part in (truth, forecast))
    off = np.abs(told - real)
    ratio = np.abs(np.log(np.maximum(told, 1) / np.maximum(real, 1)))
    return {
        "mae": float(off.mean()),
        "medae": float(np.median(off)),
        "bias": float((told - real).mean()),
        "medre": float(np.median(off / np.maximum(real, 1))),
        "log_error": float(ratio.mean()),
        "within_3": float((off <= 3).mean()),
        "within_10_percent": float((off <= 0.1 * real).mean()),
        "within_25_percent": float((off <= 0.25 * real).mean()),
        "within_50": float((off <= 50).mean()),
    }


def skill(base: float, mae: float, floor: float) -> float:
    """The share of the gap between a base's MAE and the noise floor that is closed."""
    return (base - mae) / (base - floor) if base > floor else float("nan")


def crps(hazards: Floats, lengths: ArrayLike, cap: int) -> Floats:
    """Tokens, per answer: the integral of (F(g) - [min(L, cap) <= g])² over 0..cap. Of hazards
    [n, 24] or of the one distribution [24] for all."""
    rows = np.atleast_2d(hazards)
    grid = np.arange(cap)
    below = np.asarray(lengths)[:, None] <= grid
    found: Floats = np.square(1 - survivals(rows, grid) - below).sum(axis=1)
    return found


def medians(hazards: Floats, cap: int) -> Floats:
    """The median of min(L, cap) of each of hazards[n, 24]: the forecast with the least MAE."""
    return quantiles(hazards, (0.5,), cap)[:, 0]


def means(hazards: Floats, cap: int) -> Floats:
    """E[min(L, cap)] of each of hazards[n, 24]: what to order answers by, as medians at the cap
    are all equal."""
    return np.asarray(survivals(np.atleast_2d(hazards), np.arange(cap)).sum(axis=1))


def quantiles(hazards: Floats, taus: Sequence[float], cap: int) -> Floats:
    """[n, taus]: the smallest whole m >= 1 with P(min(L, cap) <= m) >= tau."""
    alive = survivals(np.atleast_2d(hazards), np.arange(1, cap))
    return np.stack([1.0 + (alive > 1 - tau).sum(axis=1) for tau in taus], axis=1)


def pinball(truth: ArrayLike, told: Floats, taus: Sequence[float]) -> dict[str, float]:
    """The mean quantile loss, tokens, of told[n, taus]."""
    off = np.asarray(truth, dtype=np.float64)[:, None] - told
    levels = np.asarray(taus)
    losses = np.maximum(levels * off, (levels - 1) * off).mean(axis=0)
    return {f"{tau:g}": float(loss) for tau, loss in zip(taus, losses, strict=True)}


def kendall(truth: ArrayLike, forecast: ArrayLike) -> float:
    """Kendall's tau-b; 0 where either side is constant, as it then ranks nothing."""
    stats: Any = importlib.import_module("scipy.stats")
    found = float(stats.kendalltau(np.asarray(truth), np.asarray(forecast)).statistic)
    return found if np.isfinite(found) else 0.0


def rank_accuracy(truth: ArrayLike, forecast: ArrayLike) -> float:
    """How often the longer of an answer of the shortest third and one of the longest third is
    told apart; ties of the forecast count half."""
    real, told = (np.asarray(part, dtype=np.float64) for part in (truth, forecast))
    low, high = np.quantile(real, (1 / 3, 2 / 3))
    short, long = told[real <= low], told[real >= high]
    if not len(short) or not len(long) or low >= high:
        return float("nan")
    return auroc(np.r_[np.zeros(len(short)), np.ones(len(long))], np.r_[short, long])


def auroc(truth: ArrayLike, score: ArrayLike) -> float:
    """How often a score of a true one is above one of a false one; ties count half."""
    yes = np.asarray(truth, dtype=bool)
    value = np.asarray(score, dtype=np.float64)
    if yes.all() or not yes.any():
        return float("nan")
    _, place, count = np.unique(value, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    above = ranks[yes].sum() - yes.sum() * (yes.sum() + 1) / 2
    return float(above / (yes.sum() * (~yes).sum()))


def tau_ceiling(groups: Mapping[Any, Sequence[int]]) -> float:
    """Kendall's tau of each answer with the median of the other answers to its prompt."""
    pairs = _left_out(groups)
    return kendall(*zip(*pairs, strict=True)) if pairs else float("nan")


ENOUGH = 4
"""Answers to a prompt: the median of the others is then not mostly noise itself."""


def noise_floor(groups: Mapping[Any, Sequence[int]]) -> float:
    """MAE of telling each answer's length by the median of the other answers to its prompt: of
    those prompts with four answers or more, where there are any.

    Where there are none, the others' own noise is taken out as if lengths were normal, by the root
    of 1 + 1 / others: the floor is then rather too low than too high, so no skill is flattered.
    """
    sure = {key: lengths for key, lengths in groups.items() if len(lengths) >= ENOUGH}
    if sure:
        return float(np.mean([abs(a - b) for a, b in _left_out(sure)]))
    found = [
        abs(a - b) / np.sqrt(1 + 1 / (len(lengths) - 1))
        for lengths in groups.values()
        for a, b in _left_out({0: lengths})
    ]
    return float(np.mean(found)) if found else float("nan")


def _left_out(groups: Mapping[Any, Sequence[int]]) -> list[tuple[float, float]]:
    return [
        (float(length), float(np.median([*lengths[:at], *lengths[at + 1 :]])))
        for lengths in groups.values()
        if len(lengths) > 1
        for at, length in enumerate(lengths)
    ]
