"""A corrected distribution as the five whole numbers that a client sees. Pure."""

import math
from collections.abc import Sequence

import numpy as np

from appliance.forecast.conformal import TAUS, Corrected
from appliance.forecast.hazard import LONGEST, Lengths

TOLD = (0.1, 0.5, 0.9, 0.99)
_PLACES = tuple(TAUS.index(tau) for tau in TOLD)
_WHOLE = 64
"""Tokens up to which E[min(L, cap)] is summed one by one; beyond, by trapezes on a log scale."""
_POINTS = 96


def counts(corrected: Corrected, max_tokens: int) -> tuple[int, int, int, int, int]:
    """p10, p50, p90, p99 and mean of min(L, max_tokens): 1 to max_tokens; all 0 where that is 0."""
    if max_tokens <= 0:
        return (0, 0, 0, 0, 0)
    p10, p50, p90, p99 = (_whole(corrected.bounds[at], max_tokens) for at in _PLACES)
    mean = round(mean_of_minimum(corrected.lengths, max_tokens))
    return p10, p50, p90, p99, min(max(mean, 1), max_tokens)


def _whole(bound: float, max_tokens: int) -> int:
    """A length is within the bound where it is within the whole number below."""
    return min(max(math.floor(bound + 1e-6), 1), max_tokens)


def mean_of_minimum(lengths: Lengths, cap: int) -> float:
    """E[min(L, cap)] = sum of P(L > g) over g < cap, in tokens, to about 0.1 %."""
    cap = min(max(cap, 0), LONGEST)
    if cap <= _WHOLE:
        return float(lengths.survival(np.arange(cap)).sum())
    far = np.unique(np.rint(np.geomspace(_WHOLE, cap, _POINTS)))
    points = np.concatenate([np.arange(_WHOLE), far])
    left = lengths.survival(points)
    before, after = left[:-1], left[1:]
    return float((np.diff(points) * (before + after) / 2 + (before - after) / 2).sum())


def pinball(told: Sequence[int], length: int) -> float:
    """Mean pinball loss in tokens of the quantiles told at TOLD, of an answer of that length."""
    losses = [
        max(tau * (length - bound), (tau - 1) * (length - bound))
        for tau, bound in zip(TOLD, told, strict=True)
    ]
    return sum(losses) / len(losses)
