"""The distribution of the next tokens' byte lengths."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from appliance.forecast.bytelengths import (
    BadRow,
    ByteLengths,
    Grouping,
    deviation,
    mean,
    mixture,
    quantile,
    repeated,
    total,
)

LENGTHS = (1, 1, 3, 0, 2, 3)
SMALL = Grouping(LENGTHS, ends={3})


def logs(*probabilities: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities))


def test_probabilities_of_tokens_of_equal_length_are_added() -> None:
    found = SMALL.distribution(logs(0.1, 0.2, 0.3, 0.05, 0.25, 0.1))
    assert found.p == pytest.approx([0.0, 0.3, 0.25, 0.4])
    assert found.end == pytest.approx(0.05)


def test_control_token_has_no_bytes_and_an_end_is_no_length() -> None:
    found = Grouping([4, 0, 0], ends=[2]).distribution(logs(0.5, 0.2, 0.3))
    assert found.p == pytest.approx([0.2, 0, 0, 0, 0.5])
    assert found.end == pytest.approx(0.3)


def test_bytes_of_an_end_s_text_do_not_count() -> None:
    found = Grouping([4, 10], ends=[1]).distribution(logs(0.5, 0.5))
    assert len(found.p) == 11
    assert found.mean == pytest.approx(2.0)


def test_logits_and_log_probabilities_tell_the_same() -> None:
    row = logs(0.1, 0.2, 0.3, 0.05, 0.25, 0.1)
    assert SMALL.distribution(row + 321.5).p == pytest.approx(SMALL.distribution(row).p)


def test_mean_variance_and_entropy_are_those_of_the_definition() -> None:
    found = SMALL.distribution(logs(0.1, 0.2, 0.3, 0.05, 0.25, 0.1))
    values, weights = np.array([0, 1, 2, 3]), np.array([0.05, 0.3, 0.25, 0.4])
    expected = float(values @ weights)
    assert found.mean == pytest.approx(expected)
    assert found.variance == pytest.approx(float(weights @ (values - expected) ** 2))
    assert found.entropy == pytest.approx(float(-(weights @ np.log(weights))))


def test_certain_token_has_no_variance_and_no_entropy() -> None:
    found = SMALL.distribution([-math.inf, -math.inf, 7.0, -math.inf, -math.inf, -math.inf])
    assert (found.mean, found.variance, found.entropy, found.end) == (3.0, 0.0, 0.0, 0.0)


def test_ties_share_equally() -> None:
    found = SMALL.distribution(np.zeros(6))
    assert found.p == pytest.approx([0, 2 / 6, 1 / 6, 2 / 6])


def test_vocabulary_of_one_group_is_certain() -> None:
    grouping = Grouping([2, 2, 2])
    assert grouping.groups == (2,)
    assert grouping.distribution([5.0, -800.0, 3.0]).p == pytest.approx([0, 0, 1])


def test_unlikely_group_keeps_its_digits() -> None:
    """A sum from the row's maximum alone would give 0 for it."""
    grouping = Grouping([1, 2, 2])
    sums = grouping.log_sums([0.0, -2000.0, -2000.0])
    assert sums[1] == pytest.approx(-2000.0 + math.log(2), abs=1e-9)


def test_huge_logits_do_not_overflow() -> None:
    found = SMALL.distribution(np.array([3e38, 3e38, 0, 0, 0, 0], dtype=np.float32))
    assert found.p == pytest.approx([0, 1, 0, 0])


@pytest.mark.parametrize(
    "row",
    [
        np.zeros(5),
        np.zeros((1, 6)),
        [math.nan, 0, 0, 0, 0, 0],
        [math.inf, 0, 0, 0, 0, 0],
        [-math.inf] * 6,
        [-math.inf, math.nan, 0, 0, 0, 0],
    ],
)
def test_row_without_a_distribution_is_refused(row: object) -> None:
    with pytest.raises(BadRow):
        SMALL.distribution(row)  # type: ignore[arg-type]


@pytest.mark.parametrize(("lengths", "ends"), [((), ()), ((1, -1), ()), ((1, 2), (2,))])
def test_vocabulary_that_is_none_is_refused(
    lengths: tuple[int, ...], ends: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        Grouping(lengths, ends)


@given(arrays(np.float64, 6, elements=st.floats(-1e4, 1e4)))
def test_any_row_gives_a_distribution_that_sums_to_one(row: np.ndarray) -> None:
    found = SMALL.distribution(row)
    assert found.p.min() >= 0
    assert found.p.sum() + found.end == pytest.approx(1.0, abs=1e-12)
    assert 0 <= found.mean <= 3 + 1e-9
    assert found.variance >= 0
    assert found.entropy >= 0


def test_wide_vocabulary_agrees_with_a_plain_sum() -> None:
    chance = np.random.default_rng(4)
    lengths, row = chance.integers(0, 20, 50_000), chance.normal(0, 4, 50_000)
    found = Grouping(lengths.tolist(), ends={7}).distribution(row)
    weights = np.exp(row - row.max())
    weights /= weights.sum()
    assert found.end == pytest.approx(weights[7], rel=1e-9)
    lengths[7] = -1
    for size in range(20):
        assert found.p[size] == pytest.approx(weights[lengths == size].sum(), rel=1e-9)


# -- several tokens --------------------------------------------------------------------------------


def test_no_token_adds_no_byte() -> None:
    assert total([]).tolist() == [1.0]


def test_two_coins_add_up_to_a_binomial() -> None:
    coin = ByteLengths(np.array([0.5, 0.5]), 0.0)
    assert repeated(coin, 2) == pytest.approx([0.25, 0.5, 0.25])


def test_means_and_variances_of_independent_steps_add_up() -> None:
    steps = [ByteLengths(np.array([0.2, 0.3, 0.5]), 0.0), ByteLengths(np.array([0.0, 1.0]), 0.0)]
    steps.append(ByteLengths(np.array([0.1, 0.0, 0.0, 0.9]), 0.0))
    found = total(steps)
    assert mean(found) == pytest.approx(sum(step.mean for step in steps))
    assert deviation(found) ** 2 == pytest.approx(sum(step.variance for step in steps))


def test_nothing_follows_an_end() -> None:
    step = ByteLengths(np.array([0.0, 0.5]), 0.5)
    assert repeated(step, 3) == pytest.approx([0.5, 0.25, 0.125, 0.125])


def test_quantiles_are_whole_bytes_and_reach_the_end() -> None:
    p = np.array([0.1, 0.2, 0.3, 0.4])
    assert [quantile(p, tau) for tau in (0.0, 0.1, 0.11, 0.3, 0.6, 0.99, 1.0)] == [
        0, 0, 1, 1, 2, 3, 3,
    ]  # fmt: skip


def test_length_given_that_it_goes_on_leaves_the_end_out() -> None:
    found = ByteLengths(np.array([0.0, 0.2, 0.3]), 0.5).going_on
    assert found.p == pytest.approx([0, 0.4, 0.6])
    assert found.end == 0.0
    with pytest.raises(BadRow):
        _ = ByteLengths(np.zeros(3), 1.0).going_on


def test_mixture_is_the_average_of_its_places() -> None:
    found = mixture([ByteLengths(np.array([0.0, 1.0]), 0.0), ByteLengths(np.array([0.5]), 0.5)])
    assert found.p == pytest.approx([0.25, 0.5])
    assert found.end == pytest.approx(0.25)
