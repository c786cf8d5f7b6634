"""How the error changes while an answer runs, without signals: the prior, given that it runs.

At fixed numbers of generated tokens, which is what a user sees; at shares of the whole length it
explains, but knows the end. What the model's signals add is told by refinescore.py. Pure.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.forecast import reliability
from appliance.forecast.hazard import fitted, survivals
from appliance.forecast.rows import Rows

Floats = NDArray[np.float64]

AT = (0, 8, 16, 32, 64, 128, 256)
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
HORIZONS = (8, 16, 32, 64)
EVERY = 32
"""Tokens between the moments at which a near end is foretold."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """MAE of min(L, cap), tokens, over the answers that still run at a place."""

    place: str
    answers: int
    countdown: float
    """The first forecast as it stood, or one token more than there are."""
    residual: float
    """The median given how far it got."""
    alone: float
    """The same of one distribution for all."""


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Chances told that a running answer ends within the next tokens."""

    horizon: int
    residual: dict[str, float]
    alone: dict[str, float]


def steps(hazards: Floats, train: Rows, test: Rows, cap: int) -> tuple[Step, ...]:
    """At fixed numbers of tokens, then at shares of the whole length."""
    one = _alone(train, len(test))
    truth = np.minimum(test.lengths, cap)
    fixed = {f"{g} tokens": np.full(len(truth), g) for g in AT if g < cap}
    shares = {f"{share:.0%}": np.floor(share * truth).astype(np.int64) for share in SHARES}
    found = [
        _step(place, g, truth, hazards, one, cap)
        for place, g in (fixed | shares).items()
        if (truth > g).any()
    ]
    return tuple(found)


def _step(
    place: str, g: NDArray[np.int64], truth: NDArray[np.int64], own: Floats, one: Floats, cap: int
) -> Step:
    on = truth > g
    nothing = np.zeros(int(on.sum()), dtype=np.int64)
    first = np.minimum(np.maximum(residual_medians(own[on], nothing, cap), g[on] + 1), cap)
    told = [residual_medians(part[on], g[on], cap) for part in (own, one)]
    errors = [float(np.abs(part - truth[on]).mean()) for part in (first, *told)]
    return Step(
        place=place, answers=len(nothing), countdown=errors[0], residual=errors[1], alone=errors[2]
    )


def residual_medians(hazards: Floats, g: NDArray[np.int64], cap: int) -> Floats:
    """The median of min(L, cap) given L > g, for each row."""
    alive = survivals(hazards, np.arange(cap + 1))
    half = 0.5 * np.take_along_axis(alive, g[:, None], axis=1)
    count = (alive[:, :cap] > half).sum(axis=1)
    return np.asarray(np.clip(count, g + 1, cap), dtype=np.float64)


def ends_within(hazards: Floats, train: Rows, test: Rows, cap: int) -> tuple[Ends, ...]:
    """At every 32nd token of every answer; answers cut before the horizon do not tell."""
    one = _alone(train, len(test))
    alive = [survivals(part, np.arange(cap + max(HORIZONS) + 1)) for part in (hazards, one)]
    at = np.arange(0, cap, EVERY)
    rows, moments = np.nonzero(at < test.lengths[:, None])
    g = at[moments]
    found = []
    for horizon in HORIZONS:
        left = test.lengths[rows] - g
        known = ~test.censored[rows] | (left > horizon)
        came = left[known] <= horizon
        told = [
            1 - part[rows[known], g[known] + horizon] / part[rows[known], g[known]]
            for part in alive
        ]
        scored = [reliability.events(came, chance) for chance in told]
        found.append(Ends(horizon=horizon, residual=scored[0], alone=scored[1]))
    return tuple(found)


def _alone(train: Rows, count: int) -> Floats:
    return np.tile(fitted(train.lengths, train.censored).hazards, (count, 1))
