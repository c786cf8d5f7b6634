"""From a distribution of lengths, and what was learned since, to what is told. Pure."""

from typing import Any

from appliance.forecast.conformal import MEDIAN, TAUS, correct, corrected, log_quantiles
from appliance.forecast.hazard import GlobalHazard, Lengths
from appliance.forecast.learning import coverage, within
from appliance.forecast.question import Question
from appliance.forecast.telling import counts
from appliance.forecast.told import Forecast, State
from appliance.forecast.tracking import Tracker

_BLANK = GlobalHazard().lengths()


def numbers(raw: Lengths, tracker: Tracker, limit: int, *, made: bool) -> dict[str, Any]:
    """The fields of a Forecast that follow from the distribution. `made`: by the forecaster made
    for this model."""
    logs = log_quantiles(raw)
    told = corrected(raw, logs, tracker.offsets_at(float(logs[MEDIAN])))
    p10, p50, p90, p99, mean = counts(told, limit)
    return {
        "state": _state(tracker) if made else "global",
        "lengths": told.lengths,
        "corrected": told,
        "p10": p10,
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "mean": mean,
    }


def _state(tracker: Tracker) -> State:
    return "ok" if within(coverage(tracker.errors)) else "uncalibrated"


def blank(question: Question) -> Forecast:
    """What is told where even the global distribution could not be."""
    limit = max(0, question.max_tokens)
    p10, p50, p90, p99, mean = counts(correct(_BLANK, (0.0,) * len(TAUS)), limit)
    return Forecast("", "global", _BLANK, p10, p50, p90, p99, mean, limit, question.route)
