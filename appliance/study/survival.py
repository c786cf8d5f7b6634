"""Lengths of which some were cut off. Pure.

An answer that ran into its limit is longer than what was seen: its length is right-censored. To
count it as the limit makes lengths too short, to leave it out makes them shorter still; Kaplan and
Meier's product-limit estimator (1958, JASA 53, 457-481) does neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """P(length > t): 1 before `times[0]`, then `survival[i]` from `times[i]` on, until `last`."""

    times: Floats
    survival: Floats
    last: float
    """The longest length seen, cut off or not: beyond it nothing is known."""

    def quantile(self, tau: float) -> float | None:
        """The least length that at least tau of all answers reach no further than; None: it lies
        beyond what was seen."""
        reached = np.flatnonzero(self.survival <= 1.0 - tau + 1e-12)
        return float(self.times[reached[0]]) if reached.size else None

    @property
    def left(self) -> float:
        """Share of the answers that end beyond `last`."""
        return float(self.survival[-1]) if self.survival.size else 1.0

    @property
    def mean(self) -> float:
        """Of min(length, `last`): the area under the curve. Needs no assumption."""
        edges = np.concatenate(([0.0], self.times, [self.last]))
        heights = np.concatenate(([1.0], self.survival))
        return float(np.diff(edges) @ heights)

    @property
    def deviation(self) -> float:
        """Standard deviation of min(length, `last`)."""
        edges = np.concatenate(([0.0], self.times, [self.last]))
        heights = np.concatenate(([1.0], self.survival))
        square = float(np.diff(edges**2) @ heights)
        return float(np.sqrt(max(0.0, square - self.mean**2)))

    @property
    def whole_mean(self) -> float | None:
        """Of the length itself, if the tail beyond `last` were exponential through the curve's last
        point (Brown, Hollander and Korwar 1974): an extrapolation. None where it would rest on
        nothing: more than half of the answers end beyond."""
        if self.left <= 0.0:
            return self.mean
        if self.left > 0.5:
            return None
        return self.mean + self.left * self.last / -float(np.log(self.left))


def kaplan_meier(lengths: Sequence[int], censored: Sequence[bool]) -> Curve:
    """The curve of these lengths; `censored[i]`: the length is more than `lengths[i]`. Raises
    ValueError without any."""
    if not lengths:
        raise ValueError("no lengths to estimate from")
    found, cut = np.asarray(lengths, dtype=np.float64), np.asarray(censored, dtype=bool)
    times = np.unique(found[~cut])
    ended = np.array([np.count_nonzero((found == t) & ~cut) for t in times], dtype=np.float64)
    # One cut off at t is still under way there.
    under_way = np.array([np.count_nonzero(found >= t) for t in times], dtype=np.float64)
    survival = np.cumprod(1.0 - ended / under_way, dtype=np.float64)
    return Curve(times, survival, float(found.max()))


@dataclass(frozen=True, slots=True)
class Figures:
    """Lengths of a set of answers, in tokens."""

    answers: int
    cut: int
    """Answers that ran into a limit."""
    mean: float
    """Naive: a cut answer counts as what was seen of it."""
    deviation: float
    """Naive, as `mean`; of all answers."""
    ended_mean: float | None
    """Naive in the other way: of those that ended by themselves."""
    km_mean: float
    """Kaplan and Meier's, up to the longest length seen."""
    km_deviation: float
    km_median: float | None
    """None: more than half were cut off before."""
    km_p90: float | None
    whole_mean: float | None
    """Extrapolated (`Curve.whole_mean`)."""


def figures(lengths: Sequence[int], censored: Sequence[bool]) -> Figures:
    """The naive and the censoring-aware, side by side. Raises ValueError without any."""
    curve = kaplan_meier(lengths, censored)
    ended = [n for n, cut in zip(lengths, censored, strict=True) if not cut]
    return Figures(
        answers=len(lengths),
        cut=sum(censored),
        mean=float(np.mean(lengths)),
        deviation=float(np.std(lengths)),
        ended_mean=float(np.mean(ended)) if ended else None,
        km_mean=curve.mean,
        km_deviation=curve.deviation,
        km_median=curve.quantile(0.5),
        km_p90=curve.quantile(0.9),
        whole_mean=curve.whole_mean,
    )


def mean_interval(groups: Sequence[Sequence[int]], seed: int = 0) -> tuple[float, float]:
    """95 % interval of the naive mean, resampling whole groups (one prompt's answers): answers to
    one prompt are no independent evidence."""
    sums = np.array([sum(group) for group in groups], dtype=np.float64)
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(groups), size=(2000, len(groups)))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def within_deviation(groups: Sequence[Sequence[int]]) -> float | None:
    """Pooled standard deviation inside the groups; None where none has two members."""
    spread = [(float(np.var(group)) * len(group), len(group) - 1) for group in groups if group]
    free = sum(degrees for _, degrees in spread)
    return float(np.sqrt(sum(squares for squares, _ in spread) / free)) if free else None
