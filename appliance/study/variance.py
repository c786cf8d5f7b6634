"""Where the spread of log lengths comes from. Pure.

Prompts (rows) × perturbations (columns) × samples, all cells equally full. The components are those
of the two-way random-effects analysis of variance, by the method of moments (Searle, Casella and
McCulloch 1992, Variance Components, ch. 4); a negative estimate is 0, as usual.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of the natural log of length, which add up to one answer's."""

    prompts: float
    perturbations: float
    interaction: float
    """A perturbation changes some prompts' lengths otherwise than others'."""
    samples: float
    """Between answers to the very same text."""

    @property
    def total(self) -> float:
        return self.prompts + self.perturbations + self.interaction + self.samples

    def share(self, part: float) -> float:
        """Of the total; 0 where nothing varies."""
        return part / self.total if self.total > 0 else 0.0


def components(logs: Floats) -> Components:
    """`logs[prompt, perturbation, sample]`, at least two of each. Raises ValueError for less."""
    if logs.ndim != 3 or min(logs.shape) < 2:
        raise ValueError("needs at least two prompts, two perturbations and two samples")
    prompts, columns, samples = logs.shape
    cells = logs.mean(axis=2)
    rows, tops, mean = cells.mean(axis=1), cells.mean(axis=0), float(cells.mean())
    between_rows = columns * samples * _square(rows - mean) / (prompts - 1)
    between_tops = prompts * samples * _square(tops - mean) / (columns - 1)
    left = cells - rows[:, None] - tops[None, :] + mean
    crossed = samples * _square(left) / ((prompts - 1) * (columns - 1))
    within = _square(logs - cells[:, :, None]) / (prompts * columns * (samples - 1))
    return Components(
        prompts=max(0.0, (between_rows - crossed) / (columns * samples)),
        perturbations=max(0.0, (between_tops - crossed) / (prompts * samples)),
        interaction=max(0.0, (crossed - within) / samples),
        samples=within,
    )


@dataclass(frozen=True, slots=True)
class Effect:
    """What a perturbation does to the geometric mean of the length: 1.2 is a fifth longer."""

    ratio: float
    low: float
    high: float
    """95 % interval, prompts resampled."""


def effects(logs: Floats, reference: int = 0, seed: int = 0) -> list[Effect]:
    """Of each perturbation against that of column `reference`, prompt by prompt."""
    cells = logs.mean(axis=2)
    changes = cells - cells[:, [reference]]
    draws = np.random.default_rng(seed).integers(0, len(cells), size=(2000, len(cells)))
    means = changes[draws].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    ratios = np.exp(np.stack([changes.mean(axis=0), low, high], axis=1))
    return [Effect(*map(float, row)) for row in ratios]


def _square(values: Floats) -> float:
    return float(np.sum(values**2))
