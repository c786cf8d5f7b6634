"""An estimate at once, from all requests alike: what stands in until a request's own forecast is
made. Belongs to the event loop, so it must take microseconds."""

import math
from bisect import bisect_right
from itertools import accumulate, pairwise

from appliance.expected import NOTHING, table_of
from appliance.forecast.hazard import EDGES, GlobalHazard, Lengths
from appliance.forecast.question import Question
from appliance.forecast.told import Forecast, State

TAUS = (0.1, 0.5, 0.9, 0.99)
_FRESH = 8
"""The distribution is worked out anew after one more answer for so many that it is made of."""


class Rough:
    """Learns from every answer that ends."""

    def __init__(self) -> None:
        self._hazard = GlobalHazard()
        self._unread: list[tuple[int, bool]] = []
        """Ended since it was last worked out anew."""
        self._due = 0
        self._refresh()

    def observe(self, length: int, censored: bool) -> None:
        """An answer has ended, or was cut, after `length` tokens."""
        self._unread.append((length, censored))
        if self._hazard.observed + len(self._unread) >= self._due:
            self._refresh()

    def forecast(self, question: Question, state: State) -> Forecast:
        """What all requests are told. One that ignores the model's wish to end runs to its limit;
        `state` is the forecaster's, for that one."""
        most, route = question.max_tokens, question.route
        if question.ignore_eos:
            return Forecast("", state, self._lengths, most, most, most, most, most, most, route)
        p10, p50, p90, p99 = (min(tokens, most) for tokens in self._quantiles)
        mean = min(round(self._mean(most)), most)
        return Forecast("", "global", self._lengths, p10, p50, p90, p99, mean, most, route)

    def _refresh(self) -> None:
        if self._unread:
            self._hazard.observe_all(*zip(*self._unread, strict=True))
            self._unread.clear()
        observed = self._hazard.observed
        self._due = observed + 1 + observed // _FRESH
        self._lengths: Lengths = self._hazard.lengths()
        self.table = table_of(self._lengths) or NOTHING
        """The same as the engine takes it. Replaced whole: any thread may read it."""
        self._quantiles = self._lengths.quantiles(TAUS)
        self._levels = [math.exp(-fall) for fall in self._lengths.falls]
        steps = [
            width * (before + after) / 2
            for width, (before, after) in zip(_WIDTHS, pairwise(self._levels), strict=True)
        ]
        self._areas = list(accumulate(steps, initial=0.5))

    def _mean(self, most: int) -> float:
        """E[min(L, most)]: the area under the survival, straight between the edges of the bins."""
        at = min(bisect_right(_EDGES, most), len(_EDGES) - 1) - 1
        low, high = _EDGES[at], _EDGES[at + 1]
        into = min(most, high) - low
        fall = (self._levels[at] - self._levels[at + 1]) / (high - low)
        return float(self._areas[at] + into * (self._levels[at] - fall * into / 2))


_EDGES: list[float] = EDGES.tolist()
_WIDTHS = [after - before for before, after in pairwise(_EDGES)]
