"""A corrected distribution as the five whole numbers that a client sees. Pure."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from appliance.forecast.conformal import TAUS, Corrected
from appliance.forecast.hazard import BINS, EDGES, LONGEST, SHIFT, Lengths, fall_at

TOLD = (0.1, 0.5, 0.9, 0.99)
_PLACES = tuple(TAUS.index(tau) for tau in TOLD)
_EDGES: list[int] = [round(edge) for edge in EDGES.tolist()]
_SPANS = [math.log((b + SHIFT) / (a + SHIFT)) for a, b in pairwise(_EDGES)]
_WHOLE = 19
"""Tokens up to which E[min(L, cap)] is summed one by one: an edge of the bins."""
_FIRST = _EDGES.index(_WHOLE)
_HEAD = [
    (at, math.log((g + SHIFT) / (_EDGES[at] + SHIFT)) / _SPANS[at])
    for g in range(_WHOLE)
    for at in [bisect_right(_EDGES, g) - 1]
]
"""The bin of each of the first lengths, and how far into it."""


def counts(corrected: Corrected, max_tokens: int) -> tuple[int, int, int, int, int]:
    """p10, p50, p90, p99 and mean of min(L, max_tokens): 1 to max_tokens; all 0 where that is 0."""
    if max_tokens <= 0:
        return (0, 0, 0, 0, 0)
    # A length is within a bound where it is within the whole number below.
    whole = [math.floor(corrected.bounds[at] + 1e-6) for at in _PLACES]
    mean = round(mean_of_minimum(corrected.lengths, max_tokens))
    p10, p50, p90, p99, mean = [min(max(n, 1), max_tokens) for n in (*whole, mean)]
    return p10, p50, p90, p99, mean


def mean_of_minimum(lengths: Lengths, cap: int) -> float:
    """E[min(L, cap)] = sum of P(L > g) over g < cap, in tokens, to about 0.1 %: beyond the first
    tokens by the areas under the bins, which are powers of g, and Euler and Maclaurin's terms."""
    if lengths.given or lengths.log_factor:
        return lengths.mean(min(cap, LONGEST))
    falls = lengths.falls
    if cap <= _WHOLE:
        return sum(_alive(falls, cap))
    return sum(_alive(falls, _WHOLE)) + _beyond(falls, min(cap, LONGEST))


def _alive(falls: Sequence[float], count: int) -> list[float]:
    """P(L > g) for the first g."""
    return [
        math.exp(share * (falls[at] - falls[at + 1]) - falls[at]) for at, share in _HEAD[:count]
    ]


def _beyond(falls: Sequence[float], cap: int) -> float:
    """The sum of P(L > g) over g from _WHOLE to `cap`, not included."""
    total, low, alive = 0.0, float(_WHOLE), math.exp(-falls[_FIRST])
    for at in range(_FIRST, BINS):
        if low >= cap:
            break
        whole = at < BINS - 1 and _EDGES[at + 1] <= cap
        high = float(_EDGES[at + 1] if whole else cap)
        then = math.exp(-(falls[at + 1] if whole else fall_at(falls, high)))
        start, end = low + SHIFT, high + SHIFT
        rate = (falls[at + 1] - falls[at]) / _SPANS[at]
        total += (alive - then) / 2 + rate * (alive / start - then / end) / 12
        if abs(rate - 1.0) > 1e-6:
            total += (alive * start - then * end) / (rate - 1.0)
        else:
            total += alive * start * math.log(end / start)
        low, alive = high, then
    return total


def pinball(told: Sequence[int], length: int) -> float:
    """Mean pinball loss in tokens of the quantiles told at TOLD, of an answer of that length."""
    losses = [
        max(tau * (length - bound), (tau - 1) * (length - bound))
        for tau, bound in zip(TOLD, told, strict=True)
    ]
    return sum(losses) / len(losses)
