"""Fits the in-flight refinement to answers whose signals were kept. Runs in calibration only.

Every signal of an answer is a row. An interval counts where it is known whether the answer ended
in it: an answer that was cut tells of the intervals before the cut only.
"""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.dataset import Answered
from appliance.forecast.glm import logistic, poisson
from appliance.forecast.hazard import Lengths
from appliance.forecast.refine import HORIZONS, Prior, Refiner, log_odds
from appliance.forecast.signs import NAMES, Signs

Floats = NDArray[np.float64]

FEWEST = 50
"""Answers with signals; fewer teach nothing."""
RIDGE = 10.0
"""Weight of the squared weights per standard deviation of their features: rows of one answer are
much alike, so fewer are worth something than there are."""
EARLY = 0.7
"""Power of 1 / g that a row after g tokens counts with: late rows are many and much alike, early
ones are what schedulers ask for."""
STEP = 8


class TooFewSignals(ValueError):
    """There are not enough answers with signals to learn from. Says how many there are."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One row a signal."""

    x: Floats
    """[n, features]"""
    prior: Floats
    """[n, 5]: -log P(L > g + h | L > g) of the prior, for 0 and HORIZONS."""
    total: Floats
    """[n]: the same for all the tokens that were seen after g."""
    left: Floats
    """[n]: tokens that were still to come, the end included; at least 1."""
    censored: NDArray[np.bool_]
    """[n]: more would have come."""
    weight: Floats
    """[n]"""


def rows(answer: Answered, prior: Lengths, texts: Sequence[str] | None = None) -> Rows:
    """The rows of one answer. `texts`: as of `texts_of`; None: not known in flight."""
    asked, signs = Prior(prior), Signs()
    x, ahead, total, left = [], [], [], []
    for at, signal in enumerate(answer.signals):
        g = signal.generated
        if g >= answer.completion_tokens:
            break
        x.append(signs.read(signal, texts[at] if texts else "", asked.fall(g)))
        ahead.append(asked.ahead(g))
        total.append(asked.fall(answer.completion_tokens) - asked.fall(g))
        left.append(float(answer.completion_tokens - g))
    count = len(x)
    return Rows(
        np.array(x).reshape(count, len(NAMES)),
        np.array(ahead).reshape(count, len(HORIZONS) + 1),
        np.array(total),
        np.array(left),
        np.full(count, answer.censored),
        np.array([(STEP / signal.generated) ** EARLY for signal in answer.signals[:count]]),
    )


def texts_of(answer: Answered, pieces: Mapping[int, bytes]) -> list[str]:
    """What was written between one signal and the next. `pieces`: the bytes of each token, as
    `/tokenize` with `with_pieces` tells them; unknown ones count as nothing."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    found, at = [], 0
    for signal in answer.signals:
        ids = answer.token_ids[at : signal.generated]
        found.append(decoder.decode(b"".join(pieces.get(token, b"") for token in ids)))
        at = signal.generated
    return found


def together(parts: Sequence[Rows]) -> Rows:
    """All rows, in order."""
    names = ("x", "prior", "total", "left", "censored", "weight")
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def fit(
    answers: Sequence[Answered],
    priors: Sequence[Lengths],
    pieces: Mapping[int, bytes] | None = None,
) -> Refiner:
    """A refiner for forecasts like `priors`, one an answer, which must come from networks that
    have not seen its prompt. Without `pieces` it reads signals alone. Raises TooFewSignals."""
    told = [(a, p) for a, p in zip(answers, priors, strict=True) if a.signals]
    if len(told) < FEWEST:
        raise TooFewSignals(
            f"{len(told)} of {len(answers)} answers have signals; {FEWEST} are needed to learn the "
            "refinement in flight, so forecasts are not refined: generate more answers"
        )
    bare = _fitted(together([rows(answer, prior) for answer, prior in told]))
    if pieces is None:
        return Refiner(np.stack([bare[0], bare[0]]), np.stack([bare[1], bare[1]]))
    full = _fitted(together([rows(a, p, texts_of(a, pieces)) for a, p in told]))
    return Refiner(np.stack([bare[0], full[0]]), np.stack([bare[1], full[1]]))


def _fitted(data: Rows) -> tuple[Floats, Floats]:
    """The weights of each interval [4, 2 + features] and of the tail [1 + features]."""
    near = np.stack([_interval(data, k) for k in range(len(HORIZONS))])
    return near, _tail(data)


def labels(data: Rows, k: int) -> tuple[NDArray[np.bool_], Floats]:
    """Of interval k: which rows know whether the answer ended in it, having reached it; and
    whether it did."""
    start, end = (0, *HORIZONS)[k], HORIZONS[k]
    known = (data.left > start) & (~data.censored | (data.left >= end))
    return known, np.where(data.left <= end, ~data.censored, False).astype(np.float64)


def _interval(data: Rows, k: int) -> Floats:
    known, ended = labels(data, k)
    steps = data.prior[:, k + 1] - data.prior[:, k]
    odds = np.array([log_odds(step) for step in steps])
    x = np.column_stack([odds, data.x])[known]
    if not known.any() or not ended[known].any():
        return np.array([0.0, 1.0, *np.zeros(len(NAMES))])
    # The ridge draws towards the prior as it is: weight 1 for its odds, 0 for all else.
    found = logistic(x, ended[known], ridge=RIDGE, offset=odds[known], weight=data.weight[known])
    found[1] += 1.0
    return found


def _tail(data: Rows) -> Floats:
    """The prior's hazards, multiplied by exp(w x): Cox's model with a known baseline, which is a
    Poisson regression of the ends on the hazard that was lived through."""
    beyond = data.left > HORIZONS[-1]
    exposure = np.maximum(data.total - data.prior[:, -1], 1e-6)[beyond]
    ended = (~data.censored[beyond]).astype(np.float64)
    if not ended.any():
        return np.zeros(1 + len(NAMES))
    return poisson(
        data.x[beyond], ended, ridge=RIDGE, exposure=exposure, weight=data.weight[beyond]
    )
