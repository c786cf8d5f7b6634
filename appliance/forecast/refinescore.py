"""How much the refinement in flight is worth, on answers that it was not fitted to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from appliance.forecast import chances
from appliance.forecast.dataset import Answered
from appliance.forecast.hazard import Lengths
from appliance.forecast.refine import HORIZONS, Refined, Refinement, Refiner
from appliance.forecast.refinefit import texts_of

AT = (8, 16, 32, 64, 128, 256)
"""Tokens generated at which errors are compared: what a user sees, and free of hindsight."""
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Ends of the ranges of the share generated: this knows the end, so it only explains."""
WAYS = ("static", "residual", "global", "refined")
"""static: the first forecast, or one token more than there are. residual: the forecast, given how
far the answer got. global: the same of one distribution for all. refined: with the signals."""


class Error(msgspec.Struct, frozen=True):
    """Mean absolute errors of the median of min(L, limit), tokens, of the running answers there."""

    place: str
    n: int
    mae: dict[str, float]
    """By `WAYS`."""


class Ends(msgspec.Struct, frozen=True):
    """Chances told that the answer ends within the next tokens, at every signal."""

    horizon: int
    scores: dict[str, chances.Score]
    """residual, global, refined."""


class RefineReport(msgspec.Struct, frozen=True):
    """On held-out answers."""

    answers: int
    at: tuple[Error, ...]
    progress: tuple[Error, ...]
    ends: tuple[Ends, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """One signal of one answer: what each way told, and what came."""

    generated: int
    total: int
    """min(L, limit)."""
    censored: bool
    medians: tuple[float, ...]
    """By `WAYS`."""
    chances: tuple[tuple[float, ...], ...]
    """By `WAYS` without the first, then by HORIZONS."""


def moments(
    refiner: Refiner,
    answer: Answered,
    prior: Lengths,
    average: Lengths,
    pieces: Mapping[int, bytes] | None = None,
) -> list[Moment]:
    """Every signal of one answer but one at its very end. `average`: the same distribution for all
    prompts. Without `pieces`, as in an answer that does not stream."""
    limit, total = answer.max_tokens, answer.completion_tokens
    texts = texts_of(answer, pieces) if pieces else [""] * len(answer.signals)
    ways = [Refinement(prior, limit, None), Refinement(average, limit, None)]
    ways.append(Refinement(prior, limit, refiner))
    first, found = prior.capped(limit).quantile(0.5), []
    for signal, text in zip(answer.signals, texts, strict=True):
        if signal.generated >= total:
            break
        told = [way.update(signal, text) for way in ways]
        static = min(max(first, signal.generated + 1), limit)
        medians = (float(static), *(float(one.quantile(0.5)) for one in told))
        found.append(
            Moment(signal.generated, total, answer.censored, medians, tuple(map(_ends, told)))
        )
    return found


def _ends(told: Refined) -> tuple[float, ...]:
    return tuple(told.ends_within(steps) for steps in HORIZONS)


def report(answers: Sequence[Sequence[Moment]]) -> RefineReport:
    """Of the moments of each answer."""
    told = [moment for moments_ in answers for moment in moments_]
    return RefineReport(
        len(answers),
        tuple(_error(f"{g} tokens", told, _at(g)) for g in AT),
        tuple(
            _error(f"{low:.0%} to {high:.0%}", told, _between(low, high))
            for low, high in zip((0.0, *SHARES), SHARES, strict=False)
        ),
        tuple(_chances(told, k) for k in range(len(HORIZONS))),
    )


def _at(g: int) -> Callable[[Moment], bool]:
    return lambda moment: moment.generated == g


def _between(low: float, high: float) -> Callable[[Moment], bool]:
    return lambda moment: low < moment.generated / moment.total <= high


def _error(place: str, told: Sequence[Moment], wanted: Callable[[Moment], bool]) -> Error:
    chosen = [moment for moment in told if wanted(moment)]
    if not chosen:
        return Error(place, 0, {})
    medians = np.array([moment.medians for moment in chosen])
    truth = np.array([[moment.total] for moment in chosen])
    errors = np.abs(medians - truth).mean(axis=0)
    return Error(place, len(chosen), dict(zip(WAYS, map(float, errors), strict=True)))


def _chances(told: Sequence[Moment], k: int) -> Ends:
    """An answer that was cut before the horizon does not tell whether it had ended by then."""
    horizon = HORIZONS[k]
    known = [m for m in told if not m.censored or m.total - m.generated >= horizon]
    if not known:
        return Ends(horizon, {})
    came = np.array([float(not m.censored and m.total - m.generated <= horizon) for m in known])
    scores = {
        way: chances.score(np.array([m.chances[at][k] for m in known]), came)
        for at, way in enumerate(WAYS[1:])
    }
    return Ends(horizon, scores)
