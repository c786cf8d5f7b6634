"""Distributions over lengths: bins, survival, quantiles, what is left to believe."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.forecast.hazard import (
    BINS,
    CAP,
    EDGES,
    GlobalHazard,
    Lengths,
    bins_of,
    exposures,
    fitted,
    survivals,
)

LOGITS = st.lists(st.floats(-8, 8), min_size=BINS, max_size=BINS)


def make_lengths(hazard: float = 0.1) -> Lengths:
    return Lengths(np.full(BINS, hazard))


def test_edges_rise_in_whole_tokens_from_nothing_to_the_cap() -> None:
    assert EDGES[0] == 0
    assert EDGES[-1] == CAP
    assert len(EDGES) == BINS + 1
    assert np.all(np.diff(EDGES) >= 1)
    assert np.all(np.rint(EDGES) == EDGES)


def test_an_edge_belongs_to_the_bin_below_it() -> None:
    assert bins_of([1, 2, 3, 4, CAP, 10 * CAP]).tolist() == [0, 1, 1, 2, BINS - 1, BINS - 1]


@given(LOGITS)
def test_survival_falls_from_one(logits: list[float]) -> None:
    alive = Lengths.from_logits(logits).survival(np.arange(0, 6000))
    assert alive[0] == 1.0
    assert np.all(np.diff(alive) <= 1e-12)
    assert np.all(alive > 0)


@given(LOGITS, st.floats(0.01, 0.99), st.integers(0, 300))
def test_a_quantile_is_the_first_length_that_is_likely_enough(
    logits: list[float], tau: float, g: int
) -> None:
    lengths = Lengths.from_logits(logits).residual(g)
    n = lengths.quantile(tau)
    if n < 1 << 20:
        assert 1 - lengths.survival(n) >= tau - 1e-6
    assert n > g
    if n > g + 1:
        assert 1 - lengths.survival(n - 1) < tau + 1e-6


@given(LOGITS)
def test_quantiles_never_cross(logits: list[float]) -> None:
    found = Lengths.from_logits(logits).quantiles((0.01, 0.1, 0.5, 0.9, 0.99, 0.999999))
    assert list(found) == sorted(found)
    assert found[0] >= 1


def test_what_is_left_is_the_prior_given_that_it_got_there() -> None:
    prior, g = make_lengths(), 77
    later = prior.residual(g)
    for n in (80, 200, 900, 5000):
        assert later.survival(n) == pytest.approx(prior.survival(n) / prior.survival(g))
    assert later.survival(10) == 1.0
    assert later.residual(20).given == g  # what is known is not forgotten


def test_a_shift_multiplies_every_length() -> None:
    prior = make_lengths()
    doubled = prior.shifted(np.log(2))
    for n in (10, 100, 1000):
        assert doubled.survival(2 * n) == pytest.approx(prior.survival(n))
    assert doubled.quantile(0.5) == pytest.approx(2 * prior.quantile(0.5), abs=2)


def test_a_limit_cuts_quantiles_and_the_mean() -> None:
    capped = make_lengths(0.02).capped(64)
    assert capped.quantiles((0.5, 0.9)) == (64, 64)
    assert 1 <= capped.mean() < 64


def test_the_mean_is_that_of_draws() -> None:
    lengths, rng = make_lengths(0.15), np.random.default_rng(0)
    grid = np.arange(0, 400)
    drawn = np.array([np.searchsorted(-lengths.survival(grid), -u) for u in rng.random(20000)])
    assert lengths.mean(400) == pytest.approx(np.minimum(drawn, 400).mean(), rel=0.02)


def test_many_survivals_at_once_are_those_of_each() -> None:
    rows = np.random.default_rng(1).uniform(0.01, 0.5, (5, BINS))
    grid = np.array([0, 1, 7, 100, 512, 5000])
    both = [Lengths(row).survival(grid) for row in rows]
    assert survivals(rows, grid) == pytest.approx(np.array(both))


def test_numbers_that_are_none_give_a_distribution_all_the_same() -> None:
    found = Lengths.from_logits([float("nan"), float("inf"), -float("inf")] + [0.0] * 21)
    assert np.all(np.isfinite(found.survival(np.arange(100))))


def test_a_cut_answer_says_only_that_it_got_there() -> None:
    ends, passed = exposures([100, 100], [False, True])
    assert ends.sum(axis=1).tolist() == [1.0, 0.0]
    bin_ = int(bins_of([100])[0])
    assert passed[0, :bin_].tolist() == passed[1, :bin_].tolist() == [1.0] * bin_
    assert passed[0, bin_] == 0
    assert 0 < passed[1, bin_] < 1


def test_likelihood_of_a_cut_answer_is_its_survival() -> None:
    hazards = np.random.default_rng(2).uniform(0.02, 0.4, BINS)
    ends, passed = exposures([9, 100, 2000], [True] * 3)
    assert not ends.any()
    survival = Lengths(hazards).survival([9, 100, 2000])
    assert np.prod((1 - hazards) ** passed, axis=1) == pytest.approx(survival)


def draws(count: int, median: float = 104.0) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.maximum(1, np.rint(median * np.exp(0.9 * rng.standard_normal(count)))).astype(int)


def test_random_limits_do_not_move_the_median() -> None:
    """A limit taken for a length, or left out, halves it."""
    real, rng = draws(20000), np.random.default_rng(4)
    limit = rng.choice([64, 128, 256, 512], len(real))
    cut = real > limit
    assert cut.mean() > 0.2
    found = fitted(np.minimum(real, limit), cut)
    assert found.quantile(0.5) == pytest.approx(np.median(real), rel=0.05)
    assert found.quantile(0.75) == pytest.approx(np.quantile(real, 0.75), rel=0.08)


def test_the_global_hazard_learns_as_answers_end() -> None:
    learned = GlobalHazard()
    before = learned.lengths().quantile(0.5)
    for length in draws(1500, 30).tolist():
        learned.observe(min(length, 64), length > 64)
    assert learned.observed == 1500
    assert learned.lengths().quantile(0.5) == pytest.approx(30, rel=0.15)
    assert before > 60


def test_the_global_hazard_forgets_what_no_longer_holds() -> None:
    learned = GlobalHazard(memory=200)
    for length in [20] * 500 + [200] * 500:
        learned.observe(length, False)
    assert learned.lengths().quantile(0.5) > 150


def test_a_kept_global_hazard_goes_on_where_it_was() -> None:
    learned = GlobalHazard()
    learned.observe(50, False)
    again = GlobalHazard.restored(**learned.arrays())
    assert again.lengths().quantiles((0.1, 0.5)) == learned.lengths().quantiles((0.1, 0.5))


@pytest.mark.parametrize("bad", [np.zeros(3), np.full(BINS, np.nan), np.full(BINS, -1.0)])
def test_a_damaged_global_hazard_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="24 counts"):
        GlobalHazard.restored(bad, np.zeros(BINS))
