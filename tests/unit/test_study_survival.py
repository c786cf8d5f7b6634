"""Statistics of lengths of which some were cut off."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.study.survival import figures, kaplan_meier, mean_interval, within_deviation

LENGTHS = st.lists(st.integers(1, 500), min_size=1, max_size=60)


def test_textbook_curve_is_reproduced() -> None:
    """Weeks in remission of 21 treated patients (Freireich and others 1963), in many textbooks."""
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    cut = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    curve = kaplan_meier(ended + cut, [False] * len(ended) + [True] * len(cut))
    assert curve.times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    expected = [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482]
    assert curve.survival == pytest.approx(expected, abs=1e-4)
    assert curve.quantile(0.5) == 23
    assert curve.quantile(0.9) is None


@given(LENGTHS)
def test_without_cuts_it_is_the_plain_mean_and_spread(lengths: list[int]) -> None:
    found = figures(lengths, [False] * len(lengths))
    assert found.km_mean == pytest.approx(np.mean(lengths))
    assert found.km_deviation == pytest.approx(np.std(lengths), abs=1e-6)
    assert found.km_median == np.quantile(lengths, 0.5, method="inverted_cdf")
    assert found.whole_mean == pytest.approx(np.mean(lengths))
    assert found.ended_mean == pytest.approx(np.mean(lengths))


def test_true_median_is_found_where_both_naive_ones_are_too_short() -> None:
    chance = np.random.default_rng(1)
    true = np.ceil(chance.lognormal(4.6, 0.9, 20_000)).astype(int)
    limits = chance.choice([64, 128, 256, 512], true.size)
    seen, cut = np.minimum(true, limits), true > limits
    found = figures(seen.tolist(), cut.tolist())
    median = float(np.median(true))
    assert found.km_median == pytest.approx(median, rel=0.03)
    assert np.median(seen[~cut]) < 0.8 * median
    assert np.median(seen) < 0.9 * median
    assert found.ended_mean is not None
    assert found.ended_mean < found.mean < found.km_mean


@given(LENGTHS, st.integers(2, 200))
def test_one_limit_for_all_leaves_the_mean_up_to_it(lengths: list[int], limit: int) -> None:
    seen = [min(n, limit) for n in lengths]
    found = figures(seen, [n > limit for n in lengths])
    assert found.km_mean == pytest.approx(np.mean(seen))


def test_exponential_tail_is_extrapolated_to_the_true_mean() -> None:
    true = np.ceil(np.random.default_rng(2).exponential(200, 50_000)).astype(int)
    found = figures(np.minimum(true, 300).tolist(), (true > 300).tolist())
    assert found.whole_mean == pytest.approx(200, rel=0.03)


def test_nothing_is_extrapolated_from_less_than_half() -> None:
    found = figures([5, 10, 10, 10], [False, True, True, True])
    assert found.whole_mean is None
    assert found.km_median is None
    assert found.cut == 3


def test_all_cut_off_tells_the_limit_and_no_more() -> None:
    found = figures([64, 64], [True, True])
    assert (found.km_mean, found.ended_mean, found.km_median) == (64, None, None)


def test_no_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="no lengths"):
        kaplan_meier([], [])


def test_interval_of_the_mean_treats_one_prompt_s_answers_as_one_piece_of_evidence() -> None:
    groups = [[10 * i] * 20 for i in range(1, 11)]
    low, high = mean_interval(groups)
    assert low < 45 < 55 < 65 < high
    assert mean_interval([[7], [7]]) == (7, 7)


def test_spread_within_prompts_leaves_out_that_between_them() -> None:
    assert within_deviation([[10, 12], [1000, 1002]]) == pytest.approx(np.sqrt(2))
    assert within_deviation([[10], [1000]]) is None
