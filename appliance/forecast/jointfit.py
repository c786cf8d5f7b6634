"""Fits the joint embedding of prompt and answer that the quality head reads. Calibration only."""

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.quality import COMPONENTS, joint

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]

FIRST = 32
"""Components of prompt and of answer before they are put together: 64 in all."""
_STILL = 1e-3
"""A direction that varies less than this share of the widest says nothing."""


def fitted(prompts: Matrix, answers: Matrix) -> tuple[Matrix, NDArray[np.float32]]:
    """(projection [COMPONENTS, 2 dimensions], mean [2 dimensions]): prompt and answer to FIRST
    components each, both together to COMPONENTS of variance 1."""
    width = prompts.shape[1]
    mean = np.concatenate([prompts.mean(axis=0), answers.mean(axis=0)])
    first = np.zeros((2 * FIRST, 2 * width))
    for at, part in enumerate((prompts, answers)):
        found = _components(part - part.mean(axis=0), FIRST)
        first[at * FIRST : at * FIRST + len(found), at * width : (at + 1) * width] = found
    both = (np.hstack([prompts, answers]) - mean) @ first.T
    found = _components(both, COMPONENTS)
    spread = (both @ found.T).std(axis=0)
    real = spread > _STILL * max(float(spread.max()), 1e-6)
    second = np.zeros((COMPONENTS, 2 * FIRST))
    second[real] = found[real] / spread[real, None]
    return (second @ first).astype(np.float32), mean.astype(np.float32)


def rows(project: Matrix, mean: NDArray[np.float32], prompts: Matrix, answers: Matrix) -> Floats:
    """float64 [n, COMPONENTS]"""
    pairs = zip(prompts, answers, strict=True)
    found = [joint(project, mean, prompt, answer) for prompt, answer in pairs]
    return np.array(found).reshape(len(found), COMPONENTS)


def _components(centred: NDArray[np.floating], count: int) -> Floats:
    """The directions of most variance, a row each; at most `count`."""
    _, vectors = np.linalg.eigh(np.asarray(centred.T @ centred, dtype=np.float64))
    return np.asarray(vectors[:, ::-1][:, :count].T)
