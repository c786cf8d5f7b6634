"""What a box learns of lengths while it serves: the corrections of its forecasts, a distribution
over all answers for when there is no forecaster, and how well the forecasts did. Pure, no clock.
"""

from collections import deque
from collections.abc import Iterable, Sequence

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


class Learning:
    """Of one model. Belongs to the forecaster's thread."""

    def __init__(self, table: Table | None = None) -> None:
        """`table`: the calibration of the forecaster in use; None: there is none."""
        self._table = table
        self._trackers: dict[tuple[bool, str], Tracker] = {}
        self._everywhere = GlobalHazard(MEMORY)
        self._hazards: dict[str, GlobalHazard] = {}
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._errors: deque[float] = deque(maxlen=WINDOW)

    def restart(self, table: Table | None) -> None:
        """Another forecaster is in use: corrections of the former are void, lengths are not."""
        self._table = table
        self._trackers.clear()
        self._losses.clear()
        self._errors.clear()

    def tracker(self, made: bool, route: str) -> Tracker:
        """`made`: of the forecaster made for this model, not of the global distribution."""
        key = (made, self._kept(route))
        if key not in self._trackers:
            offsets: Sequence[float] = (0.0,) * len(TAUS)
            if made and self._table is not None:
                offsets = self._table.offsets(route)
            self._trackers[key] = Tracker(offsets, unbiased=not made)
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
        if forecast.corrected is None:
            return
        tracker = self.tracker(bool(forecast.version), forecast.route)
        tracker.observe(Outcome(forecast.corrected, length, censored), forecast.serial)
        if bool(forecast.version) != (self._table is not None):
            return  # a forecaster's score is not that of what is told when it fails
        self._errors.append(tracker.errors[-1])
        if not censored or length >= forecast.max_tokens:
            told = (forecast.p10, forecast.p50, forecast.p90, forecast.p99)
            self._losses.append(pinball(told, min(length, forecast.max_tokens)))

    def running(self, flights: Iterable[Flight]) -> None:
        """All requests that run now; those not named do not run any more."""
        grouped: dict[tuple[bool, str], list[Running]] = {}
        for forecast, generated in flights:
            if forecast.corrected is not None:
                key = (bool(forecast.version), self._kept(forecast.route))
                one = Running(forecast.serial, forecast.corrected, generated)
                grouped.setdefault(key, []).append(one)
        for key, tracker in self._trackers.items():
            tracker.running(grouped.get(key, ()))

    def calibrated(self, made: bool, route: str) -> bool:
        """False where the 90 % bounds of the newest answers held too often or too seldom."""
        found = self._trackers.get((made, self._kept(route)))
        return within(coverage(found.errors)) if found is not None else True

    def routes(self, made: bool) -> tuple[RouteSnapshot, ...]:
        """Those that were observed, the most observed first."""
        found = [
            RouteSnapshot(route, tracker.observed, coverage(tracker.errors), tracker.bias)
            for (of_made, route), tracker in self._trackers.items()
            if of_made == made and tracker.observed
        ]
        return tuple(sorted(found, key=lambda one: -one.observed))

    @property
    def coverage(self) -> float | None:
        """Of all routes."""
        return coverage(self._errors)

    @property
    def pinball(self) -> float | None:
        """Tokens; None before the first answer."""
        return sum(self._losses) / len(self._losses) if self._losses else None

    def _kept(self, route: str) -> str:
        """The name under which a route is kept."""
        known = {name for _, name in self._trackers} | self._hazards.keys()
        return route if route in known or len(known) < MOST_ROUTES else ""


def coverage(errors: Sequence[float]) -> float | None:
    """Share of answers within their 90 % bound; None before there are enough."""
    return 1.0 - sum(errors) / len(errors) if len(errors) >= ENOUGH else None


def within(found: float | None) -> bool:
    return found is None or WITHIN[0] <= found <= WITHIN[1]
