"""What `Forecasts` needs of a forecaster."""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from appliance.forecast.archive import Arrays
from appliance.forecast.judge import Judge
from appliance.forecast.question import Question
from appliance.forecast.refine import BadRefiner, Refiner
from appliance.forecast.told import Forecast, ForecasterSnapshot

log = logging.getLogger(__name__)


class Oracle(Protocol):
    """`forecast.forecaster.Forecaster` is the real one."""

    @property
    def snapshot(self) -> ForecasterSnapshot: ...

    @property
    def refine(self) -> Arrays | None: ...

    @property
    def judge(self) -> Judge | None: ...

    def answer(self, question: Question, /) -> Forecast: ...

    def sharpen(self, forecast: Forecast, values: bytes, /) -> Forecast: ...

    def observe(self, forecast: Forecast, length: int, censored: bool, /) -> None: ...

    def pending(self, flights: Iterable[tuple[Forecast, int]], /) -> None: ...

    def rebuild(self, rows: Iterable[tuple[Sequence[int], int, bool]], /) -> int: ...

    def reload(self) -> ForecasterSnapshot: ...


def refiner_of(oracle: Oracle) -> Refiner | None:
    """What refines forecasts in flight; None where the version has nothing for it."""
    arrays = oracle.refine
    if arrays is None:
        return None
    try:
        return Refiner.from_arrays(arrays)
    except BadRefiner as error:
        log.warning("forecasts are not refined in flight: %s", error)
        return None
