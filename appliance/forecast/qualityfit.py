"""Learns how likely answers are right, and decides what that may be called. Calibration only.

A number is called `quality` only where it beats every baseline on prompts of families that it had
not seen; else it is `confidence`. Length is the trap: wrong answers are often long, so the order
is judged among answers of like length, and of one source, too.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.forecast import chances, jointfit
from appliance.forecast.dataset import Answered
from appliance.forecast.glm import logistic
from appliance.forecast.quality import NAMES, Head, Tally
from appliance.forecast.told import Claim

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Matrix = NDArray[np.float32]

FEWEST = 200
"""Checked answers, and FEWEST_EACH right and wrong ones: fewer decide nothing."""
FEWEST_EACH = 30
RIDGE = 100.0
REPEATS = 5
"""Of the cross-validation: with few right answers, how they are dealt out moves the figures."""
DRAWS = 400
"""Of the bootstrap over families."""
BASELINES = ("base_rate", "length", "logprob")
"""The base rate is that of all: rates of folds would differ, and order answers wrongly."""


class TooFewChecked(ValueError):
    """There are not enough checked answers to learn from. Says how many there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Answers that were checked, a row each."""

    features: Floats
    """[n, NAMES], of a Tally."""
    prompts: Matrix
    """float32 [n, dimensions]"""
    answers: Matrix
    passed: Floats
    """1 right, 0 wrong."""
    families: Ints
    """Prompts that are much alike have one number, and stay together."""
    sources: Ints
    """Where the prompts come from, numbered."""

    def only(self, rows: NDArray[np.bool_]) -> "Checked":
        names = ("features", "prompts", "answers", "passed", "families", "sources")
        return Checked(*(getattr(self, name)[rows] for name in names))


class Told(msgspec.Struct, frozen=True):
    """One way of telling, on held-out answers."""

    score: chances.Score
    within_lengths: float | None
    """AUROC among answers of one length quintile."""
    within_sources: float | None
    """AUROC among answers to prompts of one source."""
    aurc: float
    """Mean share of wrong answers among the surest, over all shares kept (risk and coverage)."""


class QualityReport(msgspec.Struct, frozen=True):
    """What was measured, and what follows."""

    ways: dict[str, Told]
    """The head as `head`, then its baselines."""
    gains: dict[str, tuple[float, float]]
    """For each baseline, 95 % interval of its Brier score less the head's, over families."""
    within_sources: tuple[float, float]
    """95 % interval of the head's AUROC among answers to prompts of one source, over families."""
    claim: Claim
    reasons: tuple[str, ...]
    """Why it is not `quality`; empty where it is."""


def features_of(answer: Answered) -> list[float]:
    """What a Tally makes of it."""
    tally = Tally()
    for signal in answer.signals:
        tally.add(signal)
    return tally.features(answer.completion_tokens, not answer.censored)


def fit(data: Checked, claim: Claim = "confidence") -> Head:
    """Raises TooFewChecked."""
    _enough(data.passed)
    return _fitted(data, claim)


def _fitted(data: Checked, claim: Claim = "confidence") -> Head:
    project, mean = jointfit.fitted(data.prompts, data.answers)
    x = np.column_stack([data.features, jointfit.rows(project, mean, data.prompts, data.answers)])
    return Head(project, mean, logistic(x, data.passed, ridge=RIDGE), claim)


def tell(head: Head, data: Checked) -> Floats:
    """The head's chances, a row each."""
    x = np.column_stack(
        [data.features, jointfit.rows(head.project, head.mean, data.prompts, data.answers)]
    )
    return _sigmoid(x @ head.weights[1:] + head.weights[0])


def report(data: Checked, folds: int = 5) -> QualityReport:
    """Head and baselines, each told of families that it was not fitted to: the mean of REPEATS
    ways to deal the families out. Raises TooFewChecked."""
    _enough(data.passed)
    told = {name: np.zeros(len(data.passed)) for name in ("head", *BASELINES)}
    told["base_rate"] += data.passed.mean()
    for seed in range(REPEATS):
        fold = _folds(data.families, data.passed, folds, seed)
        for number in range(folds):
            held = fold == number
            rest, here = data.only(~held), data.only(held)
            told["head"][held] += tell(_fitted(rest), here) / REPEATS
            for name in BASELINES[1:]:
                told[name][held] += _baseline(name, rest, here) / REPEATS
    log_lengths = data.features[:, NAMES.index("log_length")]
    return judged(told, data.passed, log_lengths, data.families, data.sources)


def judged(
    told: dict[str, Floats], passed: Floats, log_lengths: Floats, families: Ints, sources: Ints
) -> QualityReport:
    """Scores every way, and decides. `told["head"]` is what the others are baselines of."""
    lengths = chances.quintiles(log_lengths)
    ways = {name: _told(one, passed, lengths, sources) for name, one in told.items()}
    gains = {
        name: _gain(told["head"], one, passed, families)
        for name, one in told.items()
        if name != "head"
    }
    inside = _interval_within(told["head"], passed, families, sources)
    reasons = tuple(_reasons(ways, gains, inside[0]))
    return QualityReport(ways, gains, inside, "confidence" if reasons else "quality", reasons)


@dataclass(frozen=True, slots=True)
class Before:
    """How the network's quality logit is told, and whether it may be called quality."""

    slope: float
    intercept: float
    report: QualityReport


def before(
    logits: Floats, passed: Floats, log_lengths: Floats, families: Ints, sources: Ints
) -> Before:
    """Of checked answers to prompts that the network had not seen. `log_lengths`: of what it
    forecast, since the real length is not known yet. Raises TooFewChecked."""
    slope, intercept = platt(logits, passed)
    told = {name: np.zeros(len(passed)) for name in ("head", "base_rate", "length")}
    told["base_rate"] += passed.mean()
    for seed in range(REPEATS):
        fold = _folds(families, passed, 5, seed)
        for number in range(5):
            held = fold == number
            steep, high = _platt(logits[~held], passed[~held])
            told["head"][held] += _sigmoid(steep * logits[held] + high) / REPEATS
            w = logistic(log_lengths[~held, None], passed[~held], ridge=1.0)
            told["length"][held] += _sigmoid(w[1] * log_lengths[held] + w[0]) / REPEATS
    return Before(slope, intercept, judged(told, passed, log_lengths, families, sources))


def platt(logits: Floats, passed: Floats) -> tuple[float, float]:
    """(slope, intercept) of `quality.before`. A slope below 0 becomes 0: what is worse than nothing
    says nothing. Raises TooFewChecked."""
    _enough(passed)
    return _platt(logits, passed)


def _platt(logits: Floats, passed: Floats) -> tuple[float, float]:
    intercept, slope = logistic(logits[:, None], passed, ridge=1.0)
    if slope > 0:
        return float(slope), float(intercept)
    rate = float(np.clip(passed.mean(), 1e-6, 1 - 1e-6))
    return 0.0, float(np.log(rate / (1 - rate)))


def _enough(passed: Floats) -> None:
    right = int(passed.sum())
    if len(passed) < FEWEST or min(right, len(passed) - right) < FEWEST_EACH:
        raise TooFewChecked(
            f"{len(passed)} answers were checked and {right} of them passed; {FEWEST} are needed, "
            f"{FEWEST_EACH} of each kind: give more prompts a `check`, or go without quality"
        )


def _baseline(name: str, rest: Checked, here: Checked) -> Floats:
    """Told of `here`, after `rest` was seen."""
    wanted = ("log_length", "ended") if name == "length" else ("logprob_mean", "no_signals")
    columns = [NAMES.index(one) for one in wanted]
    w = logistic(rest.features[:, columns], rest.passed, ridge=1.0)
    return _sigmoid(here.features[:, columns] @ w[1:] + w[0])


def _told(told: Floats, passed: Floats, lengths: Ints, sources: Ints) -> Told:
    return Told(
        chances.score(told, passed),
        chances.auroc_within(told, passed, lengths),
        chances.auroc_within(told, passed, sources),
        _aurc(told, passed),
    )


def _aurc(told: Floats, passed: Floats) -> float:
    order = np.argsort(-told, kind="stable")
    wrong = np.cumsum(1.0 - passed[order])
    return float(np.mean(wrong / np.arange(1, len(passed) + 1)))


def _reasons(
    ways: dict[str, Told], gains: dict[str, tuple[float, float]], inside: float
) -> list[str]:
    head = ways["head"]
    found = []
    for name, (low, _) in gains.items():
        if low <= 0:
            found.append(f"its Brier score is not surely better than that of `{name}`")
        if (head.within_lengths or 0.5) <= (ways[name].within_lengths or 0.5):
            found.append(f"among answers of like length it orders no better than `{name}`")
    if inside <= 0.5:
        found.append(
            "among answers to prompts of one source its order may be no better than chance"
        )
    return found


def _gain(
    head: Floats, other: Floats, passed: Floats, families: Ints, seed: int = 0
) -> tuple[float, float]:
    """Paired bootstrap over families: the Brier score of `other` less that of `head`, 95 %."""
    better = (other - passed) ** 2 - (head - passed) ** 2
    _, family = np.unique(families, return_inverse=True)
    sums, counts = np.bincount(family, better), np.bincount(family)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(sums), (DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _interval_within(
    head: Floats, passed: Floats, families: Ints, sources: Ints, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap over families of the AUROC within sources, 95 %; (0, 1) where there is none."""
    _, family = np.unique(families, return_inverse=True)
    members = np.split(np.argsort(family, kind="stable"), np.cumsum(np.bincount(family))[:-1])
    rng, found = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        rows = np.concatenate([members[k] for k in rng.integers(0, len(members), len(members))])
        found.append(chances.auroc_within(head[rows], passed[rows], sources[rows]))
    known = [value for value in found if value is not None]
    if not known:
        return 0.0, 1.0
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)


def _folds(families: Ints, passed: Floats, folds: int, seed: int) -> Ints:
    """A fold for each row. Families stay whole, and are dealt out by how often they passed: where
    rates of folds differ, what is learned from the rest is low just where it should be high."""
    _, family = np.unique(families, return_inverse=True)
    rates = np.bincount(family, passed) / np.bincount(family)
    shuffled = np.random.default_rng(seed).permutation(len(rates))
    order = shuffled[np.argsort(rates[shuffled], kind="stable")]
    fold = np.empty(len(rates), dtype=np.int64)
    fold[order] = np.arange(len(rates)) % folds
    return fold[family]


def _sigmoid(z: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(z, -30, 30))))
