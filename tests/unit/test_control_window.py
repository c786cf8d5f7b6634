"""Kaplan and Meier's estimate of 64 samples."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from appliance.control.window import SIZE, Sample, Window, falls, quantile

residuals = st.floats(-3, 3)


def test_window_keeps_the_newest_64() -> None:
    window = Window(Sample(float(at), 0.0, 1.0) for at in range(100))
    assert [one.length for one in window] == [float(at) for at in range(100 - SIZE, 100)]


@given(st.lists(residuals, min_size=1, max_size=60), st.sampled_from((0.1, 0.25, 0.5, 0.75, 0.9)))
def test_quantile_without_cut_answers_is_the_order_statistic(
    values: list[float], tau: float
) -> None:
    found = quantile(falls((value, False, 0.0) for value in values), tau)
    rank = math.ceil(tau * len(values) - 1e-6)
    assert found == sorted(values)[rank - 1]


def test_quantile_that_cut_answers_hide_is_unknown() -> None:
    curve = falls([(1.0, False, 0.0), (2.0, True, 0.0), (3.0, True, 0.0)])
    assert quantile(curve, 0.3) == 1.0
    assert quantile(curve, 0.5) is None


def test_at_equal_values_the_ends_come_before_the_cuts() -> None:
    curve = falls([(1.0, True, 0.0), (1.0, False, 0.0)])
    assert curve == [(1.0, 1.0, 0.5, 0.0)]


@given(st.lists(st.tuples(residuals, st.booleans(), st.just(0.0)), max_size=80))
def test_survival_never_rises_and_order_of_samples_does_not_matter(
    values: list[tuple[float, bool, float]],
) -> None:
    curve = falls(values)
    left = [1.0, *(after for _, _, after, _ in curve)]
    assert all(0.0 <= b <= a for a, b in pairwise(left))
    assert falls(reversed(values)) == curve
