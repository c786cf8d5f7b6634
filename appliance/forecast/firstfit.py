"""Fits what reads the first logits (first.py). Calibration alone imports this."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.first import MOST_READ, Reader
from appliance.forecast.projection import Scaling

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]

RIDGE = 300.0
"""Of logits of deviation 1; 100 is about as good, 3 000 is worse (docs/forecast.md)."""
FOLDS = 10


def thresholds(lengths: Sequence[int], cap: int) -> tuple[int, ...]:
    """Tokens: the lengths that are asked about, spread over those that were seen below `cap`."""
    wanted = np.quantile(np.minimum(lengths, cap - 1), np.linspace(0.02, 1.0, MOST_READ))
    return tuple(sorted({max(1, round(value)) for value in wanted.tolist()}))


def fit(
    logits: Matrix,
    answers: Sequence[Sequence[tuple[int, bool]]],
    families: NDArray[np.int64],
    cap: int,
) -> tuple[Reader, Matrix]:
    """The reader, and the features of these very prompts: read by readers that were fitted without
    a prompt's family, as those of a new prompt are. `answers`: (length, cut) to each prompt."""
    scaling = Scaling.of(logits)
    x = scaling.scaled(logits).astype(np.float64)
    lengths = [length for said in answers for length, _ in said]
    wanted, known = _targets(answers, thresholds(lengths, cap))
    weights = _ridge(x, wanted, known)
    raw, fold = x @ weights, families % FOLDS
    for number in range(FOLDS):
        own = fold == number
        if own.any() and not own.all():
            raw[own] = x[own] @ _ridge(x[~own], wanted[~own], known[~own])
    seen = raw.astype(np.float32)
    reader = Reader(scaling, weights.astype(np.float32), Scaling.of(seen))
    return reader, reader.read.scaled(seen)


def _targets(
    answers: Sequence[Sequence[tuple[int, bool]]], limits: Sequence[int]
) -> tuple[Floats, NDArray[np.bool_]]:
    """[prompts, limits]: the share of a prompt's answers that outlived each limit; and whether any
    tells: one that was cut before says nothing of a limit."""
    share = np.zeros((len(answers), len(limits)))
    known = np.zeros(share.shape, dtype=bool)
    for row, said in enumerate(answers):
        for column, limit in enumerate(limits):
            tell = [length > limit for length, cut in said if length > limit or not cut]
            if tell:
                share[row, column], known[row, column] = float(np.mean(tell)), True
    return share, known


def _ridge(x: Floats, wanted: Floats, known: NDArray[np.bool_]) -> Floats:
    """[logits, limits]"""
    found = np.zeros((x.shape[1], wanted.shape[1]))
    for column in range(wanted.shape[1]):
        use = known[:, column]
        if use.any():
            y = wanted[use, column] - wanted[use, column].mean()
            inner = x[use].T @ x[use] + RIDGE * np.eye(x.shape[1])
            found[:, column] = np.linalg.solve(inner, x[use].T @ y)
    return found
