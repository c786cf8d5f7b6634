"""Training: networks side by side, under little noise and under much, then one that learns what
the better lot says on average.

NumPy alone, deterministic for a seed, seconds for thousands of answers on one core.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.hazard import BINS, fitted, hazards_from, hazards_of
from appliance.forecast.network import MOST_PARAMETERS, Network, parameters_of
from appliance.forecast.objective import Targets, edge_weights, gradient, targets
from appliance.forecast.scores import crps
from appliance.forecast.stack import Noise, Stack

Array = NDArray[np.float32]


class TooFewError(ValueError):
    """There is too little to learn from: says how much there is and how much is needed."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Rows to learn from, one an answer; several answers to one prompt are several rows."""

    x: Array
    """[n, F], scaled by the pipeline."""
    lengths: NDArray[np.int64]
    censored: NDArray[np.bool_]
    prompts: NDArray[np.int64]
    """Which rows answer the same prompt: any equal number."""
    quality: Array | None = None
    """1 right, 0 wrong, NaN not checkable; None: none is."""

    def __len__(self) -> int:
        return len(self.lengths)

    def at(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "Examples":
        """Some of them."""
        quality = None if self.quality is None else self.quality[rows]
        lengths, censored = self.lengths[rows], self.censored[rows]
        return Examples(self.x[rows], lengths, censored, self.prompts[rows], quality)


LITTLE = Noise(inputs=0.2, hidden=0.1)
MUCH = Noise(inputs=0.5, hidden=0.2)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train; measured on the default model (docs/forecast.md)."""

    members: int = 6
    """Under each noise."""
    epochs: int = 80
    distil_epochs: int = 120
    patience: int = 15
    """Epochs without a better validation CRPS before it stops."""
    batch: int = 128
    """Rows of a step, at least; of many rows there are more in a step, not more steps."""
    rate: float = 3e-3
    decay: float = 0.05
    noises: tuple[Noise, ...] = (LITTLE, MUCH)
    """Few answers drawn at random want much noise; many, or plainer ones, want little."""
    taught: float = 0.7
    """Weight of the teachers' word against the one answer that was seen."""
    blended: float = 1.0
    """Share of the pupil's rows that lie between two rows, where only the teachers know."""


_STEPS = 20
"""Of an epoch, at most."""
FEWEST = 40
"""Answers, in training and in validation together, of 8 prompts at least."""


@dataclass(frozen=True, slots=True)
class Trained:
    network: Network
    crps: float
    """On the validation rows, tokens, of min(L, cap)."""
    curve: tuple[float, ...]
    """Validation CRPS of the network after each epoch."""
    seconds: float


def train(
    rows: Examples,
    held: Examples,
    *,
    seed: int = 0,
    cap: int = 512,
    recipe: Recipe | None = None,
    progress: Callable[[float], None] | None = None,
) -> Trained:
    """A network fitted to `rows`, stopped early by the CRPS on `held` (other prompt families).

    The same seed and rows give the same weights. `progress` is told a share of 0 to 1. Raises
    TooFewError; ValueError where features are not finite or too many.
    """
    started = time.perf_counter()
    _check(rows, held)
    plan = recipe or Recipe()
    tell = progress or (lambda share: None)
    lesson = _Lesson(rows, held, plan, seed, cap)
    teachers, noise = _teachers(lesson, _between(tell, 0.0, 0.6))
    one = _fit(lesson, noise, teachers, _between(tell, 0.6, 1.0))
    tell(1.0)
    return Trained(
        one.kept.networks[0],
        float(one.crps[0]),
        tuple(float(values[0]) for values in one.curve),
        time.perf_counter() - started,
    )


def _check(rows: Examples, held: Examples) -> None:
    prompts = sum(len(np.unique(part.prompts)) for part in (rows, held))
    if len(rows) + len(held) < FEWEST or min(len(rows), len(held)) < 4 or prompts < 8:
        raise TooFewError(
            f"{len(rows) + len(held)} answers to {prompts} prompts are too few to learn from: "
            f"at least {FEWEST} answers to 8 prompts are needed, some of them set aside"
        )
    if not (np.all(np.isfinite(rows.x)) and np.all(np.isfinite(held.x))):
        raise ValueError("a feature is not a finite number: the pipeline should have set it right")
    if parameters_of(rows.x.shape[1]) >= MOST_PARAMETERS:
        raise ValueError(f"{rows.x.shape[1]} features make the network larger than it may be")


@dataclass(frozen=True, slots=True)
class _Lesson:
    rows: Examples
    held: Examples
    plan: Recipe
    seed: int
    cap: int


def _teachers(lesson: _Lesson, tell: Callable[[float], None]) -> tuple["_Kept", Noise]:
    """Those that say best together how long the held answers are, and their noise."""
    noises = lesson.plan.noises
    found: list[tuple[float, _Kept, Noise]] = []
    for number, noise in enumerate(noises):
        step = _between(tell, number / len(noises), (number + 1) / len(noises))
        lot = _fit(lesson, noise, None, step)
        alive, _ = lot.kept.told(lesson.held.x)
        score = crps(hazards_from(alive), lesson.held.lengths, lesson.cap).mean()
        found.append((float(score), lot.kept, noise))
    _, kept, noise = min(found, key=lambda lot: lot[0])
    return kept, noise


def _between(tell: Callable[[float], None], low: float, high: float) -> Callable[[float], None]:
    return lambda share: tell(low + (high - low) * share)


@dataclass(frozen=True, slots=True)
class _Fit:
    kept: "_Kept"
    crps: NDArray[np.float64]
    curve: list[NDArray[np.float64]]


class _Kept:
    """The best networks so far, one a member."""

    def __init__(self, stack: Stack, members: int) -> None:
        self.networks = [stack.member(index) for index in range(members)]

    def told(self, x: Array) -> tuple[Array, Array]:
        """The members' mean: survivals [n, 24] at the bins' upper edges, chances of quality [n]."""
        each = [hazards_of(network.forward(x)) for network in self.networks]
        alive = np.mean([np.cumprod(1 - one[:, :BINS], axis=1) for one in each], axis=0)
        right = np.mean([one[:, BINS] for one in each], axis=0)
        return np.asarray(alive, dtype=np.float32), np.asarray(right, dtype=np.float32)


def _fit(
    lesson: _Lesson, noise: Noise, teachers: _Kept | None, tell: Callable[[float], None]
) -> _Fit:
    """Without teachers `members` networks, else one. Early stopping is each member's own: its
    weights of its best epoch are kept."""
    rows, held, plan, cap = lesson.rows, lesson.held, lesson.plan, lesson.cap
    members = plan.members if teachers is None else 1
    rng = np.random.default_rng([lesson.seed, members])
    stack = Stack(members, rows.x.shape[1], fitted(rows.lengths, rows.censored).hazards, rng)
    wanted = targets(rows.lengths, rows.censored, rows.quality)
    batches = _Batches(rows.x, wanted, plan, noise, teachers, rng)
    kept, best = _Kept(stack, members), np.full(members, np.inf)
    waited, curve = np.zeros(members, dtype=int), list[NDArray[np.float64]]()
    epochs = plan.epochs if teachers is None else plan.distil_epochs
    for epoch in range(epochs):
        batches.epoch(stack, members, epoch / epochs, edge_weights(cap))
        found = _validated(stack.logits(held.x), held, cap)
        curve.append(found)
        for index in np.nonzero(found < best)[0]:
            kept.networks[index] = stack.member(int(index))
        waited = np.where(found < best, 0, waited + 1)
        best = np.minimum(best, found)
        tell((epoch + 1) / epochs)
        if waited.min() > plan.patience:
            break
    return _Fit(kept, best, curve)


def _validated(logits: Array, held: Examples, cap: int) -> NDArray[np.float64]:
    return np.array(
        [crps(hazards_of(z[:, :BINS]), held.lengths, cap).mean() for z in logits], dtype=np.float64
    )


@dataclass(frozen=True, slots=True)
class _Batches:
    x: Array
    wanted: Targets
    plan: Recipe
    noise: Noise
    teachers: _Kept | None
    rng: np.random.Generator

    def epoch(self, stack: Stack, members: int, done: float, weights: Array) -> None:
        """Every row once, in an order of its own for each member."""
        size = min(max(self.plan.batch, len(self.x) // _STEPS), len(self.x))
        orders = np.stack([self.rng.permutation(len(self.x)) for _ in range(members)])
        rate = self.plan.rate * 0.5 * (1 + np.cos(np.pi * done))
        for start in range(0, len(self.x) - size + 1, size):
            x, wanted = self._batch(orders[:, start : start + size])
            passed = stack.forwarded(x, self.noise)
            slope = gradient(passed.logits, wanted, weights, pairs=self.teachers is None)
            stack.learn(passed, slope, rate, self.plan.decay)

    def _batch(self, rows: NDArray[np.int64]) -> tuple[Array, Targets]:
        x, wanted = self.x[rows], self.wanted.at(rows)
        if self.teachers is None:
            return x, wanted
        part = self._parts(rows.shape)
        x = x * (1 - part) + x[:, ::-1] * part
        share = np.where(part == 0, np.float32(self.plan.taught), np.float32(1.0))
        alive, right = self.teachers.told(x[0])
        if not np.isfinite(self.wanted.quality).any():
            right = np.full_like(right, np.nan)
        return x, wanted.softened(alive[None], right[None], share)

    def _parts(self, shape: tuple[int, ...]) -> Array:
        """How much of another row is mixed in: of most a little."""
        drawn = self.rng.beta(0.4, 0.4, (*shape, 1))
        return np.asarray(drawn * (self.rng.random((*shape, 1)) < self.plan.blended), np.float32)
