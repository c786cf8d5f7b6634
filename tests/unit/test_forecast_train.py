"""The network: how large it is, how it is kept, and that training finds what is there."""

from dataclasses import replace

import numpy as np
import pytest

from appliance.forecast.hazard import BINS, fitted, hazards_of
from appliance.forecast.network import MOST_PARAMETERS, Network, parameters_of
from appliance.forecast.objective import Targets, edge_weights, gradient, targets
from appliance.forecast.scores import auroc, crps, medians
from appliance.forecast.train import Examples, Recipe, TooFewError, train

CAP = 512
QUICK = Recipe(members=2, epochs=25, distil_epochs=30)


def make_examples(count: int, seed: int = 0, *, samples: int = 2, features: int = 12) -> Examples:
    """The median length is exp of a feature, which another hides in noise; cut at 512."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, features)).astype(np.float32)
    owner = np.repeat(np.arange(count), samples)
    logs = 4.5 + 1.0 * x[owner, 0] - 0.5 * x[owner, 1] + 0.4 * rng.standard_normal(len(owner))
    real = np.maximum(1, np.rint(np.exp(logs))).astype(np.int64)
    quality = (rng.random(len(owner)) < 1 / (1 + np.exp(-3 * x[owner, 2]))).astype(np.float32)
    quality[::3] = np.nan
    return Examples(x[owner], np.minimum(real, CAP), real > CAP, owner, quality)


def test_the_network_of_the_box_is_small() -> None:
    assert parameters_of(46) == 5913
    assert parameters_of(100) < MOST_PARAMETERS


def test_a_network_is_kept_whole() -> None:
    network = train(make_examples(60), make_examples(20, 1), recipe=QUICK).network
    again = Network.restored(network.arrays())
    x = make_examples(5, 2).x
    assert np.array_equal(again.forward(x), network.forward(x))
    assert network.inputs == 12
    assert network.parameters == parameters_of(12)


@pytest.mark.parametrize("harm", ["missing", "shape", "nan"])
def test_a_damaged_network_is_refused(harm: str) -> None:
    arrays = train(make_examples(60), make_examples(20, 1), recipe=QUICK).network.arrays()
    if harm == "missing":
        del arrays["b2"]
    elif harm == "shape":
        arrays["w2"] = arrays["w2"][:10]
    else:
        arrays["w3"] = np.full_like(arrays["w3"], np.nan)
    with pytest.raises(ValueError, match="network"):
        Network.restored(arrays)


def test_training_finds_what_is_there() -> None:
    rows, held, unseen = (make_examples(n, seed) for n, seed in ((400, 0), (80, 1), (200, 2)))
    found = train(rows, held, seed=0, cap=CAP, recipe=QUICK)
    told = found.network.forward(unseen.x)
    hazards = hazards_of(told[:, :BINS])
    one = np.tile(fitted(rows.lengths, rows.censored).hazards, (len(unseen), 1))
    ours, alone = (crps(part, unseen.lengths, CAP).mean() for part in (hazards, one))
    assert ours < 0.6 * alone
    off = np.abs(medians(hazards, CAP) - unseen.lengths).mean()
    assert off < 0.6 * np.abs(np.median(rows.lengths) - unseen.lengths).mean()
    assert unseen.quality is not None
    known = np.isfinite(unseen.quality)
    assert auroc(unseen.quality[known], told[known, BINS]) > 0.75
    assert found.crps == pytest.approx(min(found.curve))


def test_the_same_seed_gives_the_same_weights() -> None:
    rows, held = make_examples(80), make_examples(20, 1)
    one, two, other = (
        train(rows, held, seed=seed, recipe=QUICK).network.arrays() for seed in (3, 3, 4)
    )
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["w1"], other["w1"])


def test_progress_is_told_to_the_end() -> None:
    shares: list[float] = []
    train(make_examples(60), make_examples(20, 1), recipe=QUICK, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 10


def test_too_few_answers_are_refused_with_the_number_needed() -> None:
    with pytest.raises(TooFewError, match=r"10 answers to 5 prompts.*at least 40"):
        train(make_examples(4, samples=2), make_examples(1, 1, samples=2))


def test_features_that_are_no_numbers_are_refused() -> None:
    rows = make_examples(60)
    rows.x[3, 2] = np.nan
    with pytest.raises(ValueError, match="not a finite number"):
        train(rows, make_examples(20, 1), recipe=QUICK)


def test_too_many_features_are_refused() -> None:
    with pytest.raises(ValueError, match="larger than it may be"):
        train(make_examples(60, features=130), make_examples(20, 1, features=130))


def test_answers_that_were_all_cut_still_train() -> None:
    rows = make_examples(60)
    cut = replace(rows, censored=np.ones(len(rows), dtype=bool))
    found = train(cut, make_examples(20, 1), recipe=QUICK)
    assert np.all(np.isfinite(found.network.forward(rows.x)))


def make_targets(quality: bool = True) -> Targets:
    rows = make_examples(6)
    return targets(rows.lengths, rows.censored, rows.quality if quality else None)


def loss(logits: np.ndarray, wanted: Targets, weights: np.ndarray) -> float:
    """The sum that `gradient` is to be the slope of, as the module's docstring has it."""
    hazards = 1 / (1 + np.exp(-logits[:, :BINS]))
    alive = np.cumprod(1 - hazards, axis=-1)
    likelihood = (wanted.ends * np.log(hazards) + wanted.passed * np.log1p(-hazards)).sum()
    ranked = (weights * wanted.known * (1 - alive - wanted.below) ** 2).sum()
    q = 1 / (1 + np.exp(-logits[:, BINS]))
    known = np.isfinite(wanted.quality)
    right = wanted.quality[known]
    cross = (right * np.log(q[known]) + (1 - right) * np.log(1 - q[known])).sum()
    return float(-likelihood + 4 * ranked - 0.5 * cross) / len(logits)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    wanted, weights = make_targets(), edge_weights(CAP).astype(np.float64)
    logits = np.random.default_rng(5).normal(-1, 1, (12, BINS + 1))
    found = gradient(logits.astype(np.float32), wanted, edge_weights(CAP), pairs=False)
    for row, column in ((0, 0), (3, 7), (5, 20), (8, 24), (9, 24), (11, 12)):
        high, low = logits.copy(), logits.copy()
        high[row, column] += 1e-4
        low[row, column] -= 1e-4
        slope = (loss(high, wanted, weights) - loss(low, wanted, weights)) / 2e-4
        assert found[row, column] == pytest.approx(slope, abs=2e-5)


def test_pairs_pull_the_longer_answer_up() -> None:
    wanted = targets(np.array([20, 400]), np.array([False, False]), None)
    logits = np.full((2, BINS + 1), -2.0, dtype=np.float32)
    apart = gradient(logits, wanted, edge_weights(CAP), pairs=True) - gradient(
        logits, wanted, edge_weights(CAP), pairs=False
    )
    assert np.all(apart[0, :BINS] < 0)
    assert np.all(apart[1, :BINS] > 0)


def test_quality_that_is_not_known_teaches_nothing() -> None:
    logits = np.zeros((12, BINS + 1), dtype=np.float32)
    found = gradient(logits, make_targets(quality=False), edge_weights(CAP), pairs=True)
    assert np.all(found[:, BINS] == 0)


def test_the_edges_share_the_way_to_the_cap() -> None:
    weights = edge_weights(CAP)
    assert 0.85 < weights.sum() <= 1
    assert np.all(weights >= 0)
    assert np.all(weights[np.nonzero(weights == 0)[0][0] :] == 0)
