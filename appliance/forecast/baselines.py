"""What a forecaster must beat. Never imported by the daemon.

Some need scikit-learn and are left out where it is not installed. Each learns from the same answers
and tells the same ones. Those named `... same features` see exactly what the network sees; the
forecaster may not be worse than the best of them.
"""

import importlib
import importlib.util
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.hazard import fitted
from appliance.forecast.rows import Rows
from appliance.forecast.scores import crps, medians

Floats = NDArray[np.float64]

NEIGHBOURS = 16
RIVALS = ("kNN-16, same features", "GBDT, same features", "ridge, same features")
GLOBAL = "global median"
GLOBAL_HAZARD = "global hazard"
_ALPHAS = np.logspace(-1, 4, 11)


@dataclass(frozen=True, slots=True)
class Told:
    """What a method tells of each answer."""

    point: Floats
    """Tokens, of min(L, cap)."""
    crps: Floats | None = None
    """Tokens, per answer; None where it tells only a point."""
    order: Floats | None = None
    """What it would sort answers by; None: the point."""


def baselines(
    train: Rows, test: Rows, cap: int, *, seed: int = 0, only: Collection[str] = ()
) -> dict[str, Told]:
    """By name, in the order of a table; `only` these, where any are named."""
    ways: dict[str, Callable[[], Told]] = {
        GLOBAL: lambda: _point(np.full(len(test), np.median(train.lengths)), cap),
        GLOBAL_HAZARD: lambda: _global(train, test, cap),
        "max_tokens": lambda: _point(np.full(len(test), float(cap)), cap),
        "linear, log prompt tokens": lambda: _linear(train, test, cap),
        "median of the source": lambda: _by_source(train, test, cap),
        "words, GBDT": lambda: _gbdt(_words(train), _words(test), train, cap, seed),
        "kNN-16, embedding": lambda: _nearest(train.embedding, test.embedding, train, test, cap),
        "PCA-16, ridge": lambda: ridge(_pca(train), _pca(test), train, cap),
        "PCA-16, MLP": lambda: _perceptron(_pca(train), _pca(test), train, cap, seed),
        "embedding, ridge": lambda: ridge(train.embedding, test.embedding, train, cap),
        RIVALS[0]: lambda: _nearest(train.x, test.x, train, test, cap),
        RIVALS[1]: lambda: _gbdt(train.x, test.x, train, cap, seed),
        RIVALS[2]: lambda: ridge(train.x, test.x, train, cap),
    }
    wanted = [name for name in ways if not only or name in only]
    return {name: ways[name]() for name in wanted if _possible(name, train)}


def without() -> tuple[str, ...]:
    """Which of them cannot be had here, for want of scikit-learn."""
    return () if importlib.util.find_spec("sklearn") else (*_LEARNED,)


_LEARNED = ("words, GBDT", "PCA-16, MLP", "GBDT, same features")


def _possible(name: str, train: Rows) -> bool:
    """Some embedders give no vector."""
    if name in without():
        return False
    has = {"embedding": train.embedding.shape[1], "PCA-16": _pca(train).shape[1]}
    return all(width > 0 or part not in name for part, width in has.items())


def _words(rows: Rows) -> NDArray[np.float32]:
    kept = [not name.startswith(("component_", "near_")) for name in rows.names]
    return rows.x[:, kept]


def _pca(rows: Rows) -> NDArray[np.float32]:
    return rows.columns("component_")


def _point(values: NDArray[Any], cap: int) -> Told:
    return Told(np.clip(np.asarray(values, dtype=np.float64), 1, cap))


def _global(train: Rows, test: Rows, cap: int) -> Told:
    one = np.tile(fitted(train.lengths, train.censored).hazards, (len(test), 1))
    return Told(medians(one, cap), crps(one, test.lengths, cap))


def _linear(train: Rows, test: Rows, cap: int) -> Told:
    known, asked = (np.log(part.prompt_tokens + 1.0)[:, None] for part in (train, test))
    return ridge(known, asked, train, cap)


def _by_source(train: Rows, test: Rows, cap: int) -> Told:
    """A label that no request carries: what a perfect task classifier would give."""
    overall = float(np.median(train.lengths))
    known = {
        name: float(np.median(train.lengths[train.sources == name]))
        for name in np.unique(train.sources)
    }
    return _point(np.array([known.get(name, overall) for name in test.sources]), cap)


def ridge(known: NDArray[Any], asked: NDArray[Any], train: Rows, cap: int) -> Told:
    """Its penalty is the one with the least squared error when each row is left out in turn."""
    centre, target = known.mean(axis=0), np.minimum(train.lengths, cap).astype(np.float64)
    level = target.mean()
    u, spread, turn = np.linalg.svd(known - centre, full_matrices=False)
    along = u.T @ (target - level)
    errors = [_left_out(u, spread, along, target - level, alpha) for alpha in _ALPHAS]
    alpha = _ALPHAS[int(np.argmin(errors))]
    slope = turn.T @ (along * spread / (spread**2 + alpha))
    return _point(level + (asked - centre) @ slope, cap)


def _left_out(u: Floats, spread: Floats, along: Floats, target: Floats, alpha: float) -> float:
    kept = spread**2 / (spread**2 + alpha)
    leverage = np.square(u) @ kept + 1 / len(u)
    return float(np.square((target - u @ (kept * along)) / (1 - leverage)).mean())


def _gbdt(known: NDArray[Any], asked: NDArray[Any], train: Rows, cap: int, seed: int) -> Told:
    ensemble: Any = importlib.import_module("sklearn.ensemble")
    model = ensemble.HistGradientBoostingRegressor(
        loss="absolute_error",
        learning_rate=0.05,
        max_iter=200,
        max_leaf_nodes=8,
        min_samples_leaf=20,
        l2_regularization=1.0,
        random_state=seed,
    )
    return _point(model.fit(known, np.minimum(train.lengths, cap)).predict(asked), cap)


def _perceptron(known: NDArray[Any], asked: NDArray[Any], train: Rows, cap: int, seed: int) -> Told:
    """A plain regression of log length, as the first sketch of the box had it."""
    networks: Any = importlib.import_module("sklearn.neural_network")
    model = networks.MLPRegressor(
        hidden_layer_sizes=(64, 32),
        alpha=10.0,
        early_stopping=True,
        max_iter=1000,
        random_state=seed,
    )
    lengths = np.log(np.clip(train.lengths, 1, cap))
    return _point(np.exp(model.fit(known, lengths).predict(asked)), cap)


def _nearest(known: NDArray[Any], asked: NDArray[Any], train: Rows, test: Rows, cap: int) -> Told:
    """The answers to the 16 nearest prompts by cosine: their median, and they as a distribution."""
    first = np.unique(train.prompts, return_index=True)[1]
    lengths = train.groups()
    said = [np.minimum(lengths[int(p)], cap) for p in train.prompts[first]]
    order = np.argsort(-_unit(asked) @ _unit(known[first]).T, axis=1)[:, :NEIGHBOURS]
    near = [np.concatenate([said[place] for place in row]) for row in order]
    scores = [_sample_crps(one, min(y, cap)) for one, y in zip(near, test.lengths, strict=True)]
    middle, mean = (np.array([way(one) for one in near]) for way in (np.median, np.mean))
    return Told(middle, np.array(scores), mean)


def _unit(rows: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9))


def _sample_crps(sample: NDArray[Any], y: int) -> float:
    """E|X - y| - E|X - X'| / 2 for X, X' drawn from the sample."""
    spread = np.abs(sample[:, None] - sample).mean()
    return float(np.abs(sample - y).mean() - spread / 2)
