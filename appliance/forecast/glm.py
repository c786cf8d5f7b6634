"""Two regressions by Newton's method, each with a ridge. Small data, few columns, plain NumPy.

Columns are scaled inside; weights come back for the columns as they are, the bias first.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS = 50
HALVINGS = 30
FURTHEST = 6.0
"""Standard deviations: a value further out counts as this while fitting."""
NARROWEST = 0.05
"""Deviations below this count as this: a feature that hardly moved has taught little, and its
weight must not be huge when it moves one day."""


@dataclass(frozen=True, slots=True)
class _Point:
    """A likelihood at one place: log-likelihood, and for each row its slope and its curvature."""

    value: float
    slope: Floats
    curvature: Floats


def logistic(
    x: Floats,
    y: Floats,
    *,
    ridge: float,
    offset: Floats | None = None,
    weight: Floats | None = None,
) -> Floats:
    """[bias, weights] of P(y = 1) = sigmoid(bias + x w + offset). The ridge, on weights per
    standard deviation, draws them towards 0; the bias is free."""
    weight = np.ones(len(y)) if weight is None else weight
    offset = np.zeros(len(y)) if offset is None else offset

    def at(moved: Floats) -> _Point:
        odds = moved + offset
        p = 1.0 / (1.0 + np.exp(-np.clip(odds, -30, 30)))
        value = weight @ (y * odds - np.logaddexp(0.0, odds))
        return _Point(float(value), weight * (y - p), weight * p * (1 - p))

    return _fitted(x, weight, ridge, at)


def poisson(x: Floats, y: Floats, *, ridge: float, exposure: Floats, weight: Floats) -> Floats:
    """[bias, weights] of E[y] = exposure * exp(bias + x w), exposures above 0."""

    def at(moved: Floats) -> _Point:
        rate = exposure * np.exp(np.clip(moved, -30, 30))
        return _Point(float(weight @ (y * moved - rate)), weight * (y - rate), weight * rate)

    return _fitted(x, weight, ridge, at)


def _fitted(x: Floats, weight: Floats, ridge: float, at: Callable[[Floats], _Point]) -> Floats:
    """Newton's steps, each halved until it climbs: both likelihoods have one summit."""
    mean, scale, z = _scaled(x, weight)
    drawn = np.full(z.shape[1], ridge + 1e-6)
    drawn[0] = 1e-6
    w = np.zeros(z.shape[1])
    here = at(z @ w)
    for _ in range(ROUNDS):
        gradient = z.T @ here.slope - drawn * w
        step = np.linalg.solve((z * here.curvature[:, None]).T @ z + np.diag(drawn), gradient)
        height = here.value - 0.5 * float(drawn @ w**2)
        for _ in range(HALVINGS):
            there = at(z @ (w + step))
            if there.value - 0.5 * float(drawn @ (w + step) ** 2) >= height:
                break
            step = step / 2
        else:
            break
        w, here = w + step, there
        if np.abs(step).max() < 1e-6:
            break
    return _unscaled(w, mean, scale)


def _scaled(x: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean and deviation of each column, and the columns scaled, behind one of ones."""
    mean = np.average(x, axis=0, weights=weight)
    scale = np.maximum(np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight)), NARROWEST)
    z = np.clip((x - mean) / scale, -FURTHEST, FURTHEST)
    return mean, scale, np.column_stack([np.ones(len(z)), z])


def _unscaled(w: Floats, mean: Floats, scale: Floats) -> Floats:
    plain = w[1:] / scale
    return np.concatenate([[w[0] - float(plain @ mean)], plain])
