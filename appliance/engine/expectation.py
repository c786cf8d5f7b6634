"""How long an answer may still become: a survival table, read at what was generated so far.

Between two lengths of a table survival is a straight line over the logarithm of the length, below
the first it falls from 1 at length 0. Beyond the last it stays what it was: such answers end where
their `max_tokens` ends them. All lengths and results are in tokens.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from math import exp, isfinite, log1p

from appliance.engine.commands import Expect

OUTLIVED = 1e-6
"""A table that gives the present length less than this knows nothing of what is to come."""


class Expectation:
    """The table of one choice. Immutable; all sequences of a request share one."""

    __slots__ = ("_area", "_falling", "_lengths", "_logs", "_slopes", "_survival")

    def __init__(self, tokens: tuple[int, ...], survival: tuple[float, ...]) -> None:
        """Of a table that `read` has found to be one."""
        if tokens[0] > 0:
            tokens, survival = (0, *tokens), (1.0, *survival)
        self._lengths = tokens
        self._survival = survival
        self._logs = [log1p(length) for length in tokens]
        self._falling = [-chance for chance in survival]
        self._slopes = [
            (q - p) / (high - low)
            for (low, p), (high, q) in pairwise(zip(self._logs, survival, strict=True))
        ]
        self._slopes.append(0.0)
        self._area = [0.0]
        for at, length in enumerate(tokens[1:]):
            self._area.append(self._area[-1] + self._within(at, length))

    def survives(self, length: float) -> float:
        """P(the answer becomes longer than this)."""
        at = bisect_right(self._lengths, length) - 1
        return self._survival[at] + self._slopes[at] * (log1p(length) - self._logs[at])

    def knows(self, generated: int) -> bool:
        """Whether the table says anything about an answer that is this long."""
        return self.survives(generated) > OUTLIVED

    def remaining_quantile(self, generated: int, tau: float, cap: int) -> int:
        """The fewest tokens that it still generates at most with chance `tau`; 1 at least, and
        never past `cap` in all."""
        left = max(cap - generated, 1)
        length = self._length_at(self.survives(generated) * (1.0 - tau))
        return left if length is None else min(max(round(length - generated), 1), left)

    def remaining(self, generated: int, cap: int) -> float:
        """E[min(L, cap) - generated | L > generated]."""
        if cap <= generated:
            return 0.0
        return (self._below(cap) - self._below(generated)) / self.survives(generated)

    def remaining_worst(self, generated: int, cap: int, level: float = 0.9) -> float:
        """The mean of what is still generated over its worst cases, 1 - `level` of all (CVaR)."""
        quantile = self.remaining_quantile(generated, level, cap)
        beyond = self._below(cap) - self._below(min(generated + quantile, cap))
        return quantile + max(beyond, 0.0) / (self.survives(generated) * (1.0 - level))

    def _length_at(self, chance: float) -> float | None:
        """Where survival falls to `chance`; None if it never does."""
        above = bisect_left(self._falling, -chance)
        if above == len(self._falling):
            return None
        if above == 0:
            return float(self._lengths[0])
        high, low = self._survival[above - 1], self._survival[above]
        share = (high - chance) / (high - low)
        start = self._logs[above - 1]
        return exp(start + share * (self._logs[above] - start)) - 1.0

    def _below(self, length: int) -> float:
        """The area under the survival curve up to `length`."""
        at = bisect_right(self._lengths, length) - 1
        return self._area[at] + self._within(at, length)

    def _within(self, at: int, length: int) -> float:
        """The same from the length numbered `at` on, up to one that lies before the next."""
        start, slope, log = self._lengths[at], self._slopes[at], self._logs[at]
        # The integral of log(1 + x) is (1 + x) log(1 + x) - x.
        bent = (1 + length) * log1p(length) - (1 + start) * log - (length - start)
        return (length - start) * (self._survival[at] - slope * log) + slope * bent


def read(expect: Expect) -> Expectation | None:
    """The table of a message; None where it is none: empty, of two sizes, not ascending, rising,
    or with a number that is no chance."""
    tokens, survival = expect.tokens, expect.survival
    if not tokens or len(tokens) != len(survival) or tokens[0] < 0:
        return None
    if not all(isfinite(chance) and 0.0 <= chance <= 1.0 for chance in survival):
        return None
    if any(b <= a for a, b in pairwise(tokens)) or any(q > p for p, q in pairwise(survival)):
        return None
    return Expectation(tokens, survival)
