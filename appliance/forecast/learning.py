"""What a box learns of lengths while it serves: the corrections of its forecasts, a distribution
over all answers for when there is no forecaster, and how well the forecasts did. Pure, no clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from appliance.control.correction import FIRST, Correction
from appliance.forecast.conformal import TAUS, Table
from appliance.forecast.hazard import GlobalHazard, Lengths
from appliance.forecast.telling import pinball
from appliance.forecast.told import Forecast, RouteSnapshot
from appliance.forecast.tracking import COVERAGE_WINDOW, ENOUGH, WITHIN, Outcome, Running, Tracker

MEMORY = 512
"""Answers that the global distribution remembers, roughly: it must follow a drift."""
OWN = 32
"""Answers of a route from which it has a global distribution of its own."""
MOST_ROUTES = 64
"""Routes told apart; further ones share one place, so that nobody can fill the memory."""
WINDOW = COVERAGE_WINDOW

Flight = tuple[Forecast, int]
"""A forecast whose request runs, and its tokens so far."""

_Key = tuple[bool, str, int]
"""Whether the forecaster made for this model told it, the route, and Forecast.stage."""

Biases = Callable[[str], Correction]
"""By route: what the control loop corrects the forecaster in use by."""


class _Scores:
    """How the newest forecasts of one stage did."""

    __slots__ = ("errors", "losses")

    def __init__(self) -> None:
        self.errors: deque[float] = deque(maxlen=WINDOW)
        self.losses: deque[float] = deque(maxlen=WINDOW)


class Learning:
    """Of one model. Belongs to the forecaster's thread."""

    def __init__(
        self,
        table: Table | None = None,
        biases: Biases | None = None,
        sharper: Table | None = None,
    ) -> None:
        """`table`: the calibration of the forecaster in use; None: there is none. Without `biases`
        each route keeps its own. `sharper`: the calibration after the first token."""
        self._tables = (table, sharper)
        self._biases = biases
        self._trackers: dict[_Key, Tracker] = {}
        self._everywhere = GlobalHazard(MEMORY)
        self._hazards: dict[str, GlobalHazard] = {}
        self._scores = (_Scores(), _Scores())

    def restart(
        self,
        table: Table | None,
        biases: Biases | None = None,
        sharper: Table | None = None,
    ) -> None:
        """Another forecaster is in use: corrections of the former are void, lengths are not."""
        self._tables, self._biases = (table, sharper), biases
        self._trackers.clear()
        self._scores = (_Scores(), _Scores())

    def tracker(self, made: bool, route: str, stage: int = 0) -> Tracker:
        """`made`: of the forecaster made for this model, not of the global distribution. `stage`:
        as Forecast.stage."""
        return self._trackers.get((made, route, stage)) or self._new(made, route, stage)

    def _new(self, made: bool, route: str, stage: int) -> Tracker:
        key = (made, self._kept(route), stage)
        if key not in self._trackers:
            offsets: Sequence[float] = (0.0,) * len(TAUS)
            table = self._tables[stage]
            if made and table is not None:
                offsets = table.offsets(route)
            name = key[1] + (FIRST if stage else "")
            given = partial(self._biases, name) if made and self._biases is not None else None
            self._trackers[key] = Tracker(offsets, unbiased=not made, correction=given)
        return self._trackers[key]

    def everywhere(self, route: str) -> Lengths:
        """The global distribution: of this route, once it has had enough answers."""
        own = self._hazards.get(self._kept(route))
        used = own if own is not None and own.observed >= OWN else self._everywhere
        return used.lengths()

    def recall(self, length: int, censored: bool) -> None:
        """An earlier answer of this model, on no matter what route."""
        self._everywhere.observe(length, censored)

    def remember(self, route: str, length: int, censored: bool) -> None:
        """An answer of this model took `length` tokens, whatever was forecast."""
        self.recall(length, censored)
        self._hazards.setdefault(self._kept(route), GlobalHazard(MEMORY)).observe(length, censored)

    def observe(self, forecast: Forecast, length: int, censored: bool) -> None:
        """An answer has ended that this forecaster told about."""
        self.remember(forecast.route, length, censored)
        self._observe(forecast.at_first, length, censored)
        if forecast.stage:
            self._observe(forecast, length, censored)

    def _observe(self, forecast: Forecast, length: int, censored: bool) -> None:
        if forecast.corrected is None:
            return
        tracker = self.tracker(bool(forecast.version), forecast.route, forecast.stage)
        tracker.observe(Outcome(forecast.corrected, length, censored), forecast.serial)
        if bool(forecast.version) != (self._tables[0] is not None):
            return  # a forecaster's score is not that of what is told when it fails
        scores = self._scores[forecast.stage]
        scores.errors.append(tracker.errors[-1])
        if not censored or length >= forecast.max_tokens:
            told = (forecast.p10, forecast.p50, forecast.p90, forecast.p99)
            scores.losses.append(pinball(told, min(length, forecast.max_tokens)))

    def running(self, flights: Iterable[Flight]) -> None:
        """All requests that run now; those not named do not run any more."""
        grouped: dict[_Key, list[Running]] = {}
        for newest, generated in flights:
            for forecast in {newest, newest.at_first}:
                if forecast.corrected is not None:
                    route = self._kept(forecast.route)
                    one = Running(forecast.serial, forecast.corrected, generated)
                    key = (bool(forecast.version), route, forecast.stage)
                    grouped.setdefault(key, []).append(one)
        for key, tracker in self._trackers.items():
            tracker.running(grouped.get(key, ()))

    def routes(self, made: bool) -> tuple[RouteSnapshot, ...]:
        """Those that were observed, the most observed first."""
        found = [
            RouteSnapshot(route, tracker.observed, coverage(tracker.errors), tracker.bias, stage)
            for (of_made, route, stage), tracker in self._trackers.items()
            if of_made == made and tracker.observed
        ]
        return tuple(sorted(found, key=lambda one: (-one.observed, one.stage)))

    def coverage(self, stage: int = 0) -> float | None:
        """Of all routes."""
        return coverage(self._scores[stage].errors)

    def pinball(self, stage: int = 0) -> float | None:
        """Tokens; None before the first answer."""
        losses = self._scores[stage].losses
        return sum(losses) / len(losses) if losses else None

    def _kept(self, route: str) -> str:
        """The name under which a route is kept."""
        known = {name for _, name, _ in self._trackers} | self._hazards.keys()
        return route if route in known or len(known) < MOST_ROUTES else ""


def coverage(errors: Sequence[float]) -> float | None:
    """Share of answers within their 90 % bound; None before there are enough."""
    return 1.0 - sum(errors) / len(errors) if len(errors) >= ENOUGH else None


def within(found: float | None) -> bool:
    return found is None or WITHIN[0] <= found <= WITHIN[1]
