"""What could be known of a request while it waits and while it runs, and so what it would be taken
to cost: for the rules of order that control_bounds.py compares."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from appliance.engine.expectation import Expectation
from appliance.engine.expectations import RISK
from appliance.expected import table_of
from appliance.forecast.dataset import Answered
from appliance.forecast.forecaster import Forecaster
from appliance.forecast.hazard import Lengths
from appliance.forecast.refine import Refinement, Refiner
from bench.control_requests import CAP, released, stock, unseen
from bench.control_requests import forecaster as packaged
from bench.forecast_first import load as first_logits

GRAIN = 8
"""Tokens between two looks at an answer that is being written: as often as the engine signals."""
LEVEL = 128
"""Tokens of the first level of the feedback queue; each further one is twice as long."""

Costs = tuple[float, ...]
"""Tokens that are still to come, with their risk, after 0, GRAIN, 2 GRAIN, ... generated ones."""

_LOOKS = range(0, CAP, GRAIN)


@dataclass(frozen=True, slots=True)
class Known:
    """One request. `costs`: by what is known of it.

    all: what is known of all answers; first: its forecast; second: the one that has seen the first
    logits; refined: that one, and from then on what the answer's own signals tell; exact: its
    length; had: nothing, so what counts is what it has had (multi-level feedback)."""

    prompt_tokens: int
    length: int
    costs: Mapping[str, Costs]


def known() -> list[Known]:
    """Of the answers to prompts that the packaged forecaster has not seen. Raises BadDataset
    without STEELYARD_DATA."""
    everywhere = stock().everywhere
    shared = {
        "all": _costs(Expectation(everywhere.tokens, everywhere.survival)),
        "had": tuple(had(generated) for generated in _LOOKS),
    }
    forecaster, first = packaged(), first_logits()
    found = []
    for case in unseen(released()):
        forecast = forecaster.answer(case.question)
        logits = np.array(first.get(case.answers[0].id, ()), dtype="<f4").tobytes()
        second = forecaster.sharpen(forecast, logits) if logits else forecast
        made = {"first": _of(forecast.lengths), "second": _of(second.lengths)}
        for one in case.answers:
            refined = _refined(one, second.lengths, made["second"], _refiner(forecaster))
            told = {"refined": refined, "exact": exact(one.completion_tokens)}
            found.append(
                Known(one.prompt_tokens, one.completion_tokens, {**shared, **made, **told})
            )
    return found


def exact(length: int) -> Costs:
    """Of one whose length is known."""
    return tuple(float(max(length - generated, 1)) for generated in _LOOKS)


def had(generated: int) -> float:
    """Tokens that the levels before this one's take."""
    level = (generated // LEVEL + 1).bit_length() - 1
    return float(LEVEL * ((1 << level) - 1))


def _refiner(forecaster: Forecaster) -> Refiner | None:
    arrays = forecaster.refine
    return Refiner.from_arrays(arrays) if arrays is not None else None


def _refined(answer: Answered, prior: Lengths, costs: Costs, refiner: Refiner | None) -> Costs:
    """By its signals alone: the released answers have no text."""
    refinement, found = Refinement(prior, CAP, refiner), list(costs)
    for signal in answer.signals:
        refined = refinement.update(signal)
        at, rest = divmod(signal.generated, GRAIN)
        if not rest and at < len(found):
            found[at] = _cost(_expectation(refined.lengths), signal.generated)
    return tuple(found)


def _of(lengths: Lengths) -> Costs:
    return _costs(_expectation(lengths))


def _expectation(lengths: Lengths) -> Expectation:
    table = table_of(lengths)
    assert table is not None, "a forecast of the packaged forecaster is no distribution"
    return Expectation(table.tokens, table.survival)


def _costs(expectation: Expectation) -> Costs:
    return tuple(_cost(expectation, generated) for generated in _LOOKS)


def _cost(expectation: Expectation, generated: int) -> float:
    if not expectation.knows(generated):
        return float(CAP - generated)
    worst = expectation.remaining_worst(generated, CAP)
    return expectation.remaining(generated, CAP) + RISK * worst
