"""Nearest prompts: what they say, how many are kept, and what is not let in."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from appliance.forecast.neighbours import EMPTY, NAMES, NEAREST, Neighbours

Vector = NDArray[np.float32]


def towards(angle: float) -> Vector:
    return np.array([math.cos(angle), math.sin(angle)], dtype=np.float32)


def said(near: Neighbours, angle: float, **others: int) -> dict[str, float]:
    return dict(zip(NAMES, map(float, near.statistics(towards(angle), **others)), strict=True))


def test_without_neighbours_the_default_is_said() -> None:
    np.testing.assert_array_equal(Neighbours(2).statistics(towards(0)), EMPTY)


def test_one_neighbour_says_its_own_length() -> None:
    near = Neighbours(2)
    near.add(towards(0), 5.0, censored=True)
    found = said(near, 0.0)
    assert found["near_mean"] == found["near_median"] == 5.0
    assert (found["near_deviation"], found["near_censored"]) == (0.0, 1.0)
    assert found["near_cosine"] == pytest.approx(1.0)


def test_only_the_nearest_count() -> None:
    near = Neighbours(2)
    for n in range(NEAREST):
        near.add(towards(0.01 * n), 2.0)
        near.add(towards(2 + 0.01 * n), 6.0)
    assert said(near, 0.0)["near_mean"] == pytest.approx(2.0)
    assert said(near, 2.0)["near_mean"] == pytest.approx(6.0)


def test_a_nearer_one_counts_more() -> None:
    near = Neighbours(2)
    near.add(towards(0.1), 2.0)
    near.add(towards(1.0), 6.0)
    found = said(near, 0.0)
    assert 2.0 < found["near_mean"] < 2.2
    assert found["near_deviation"] > 0
    assert found["near_median"] == 4.0


def test_what_was_cut_off_early_only_tells_that_it_would_have_gone_on() -> None:
    near = Neighbours(2)
    for length, censored in ((2.0, True), (2.0, True), (5.0, False), (6.0, False)):
        near.add(towards(0), length, censored)
    found = said(near, 0.0)
    assert (found["near_mean"], found["near_median"]) == (5.5, 5.5)
    assert found["near_censored"] == 0


def test_what_was_cut_off_last_is_the_share_that_goes_on() -> None:
    near = Neighbours(2)
    for length, censored in ((3.0, False), (6.0, True), (6.0, False), (6.0, True)):
        near.add(towards(0), length, censored)
    found = said(near, 0.0)
    assert found["near_censored"] == pytest.approx(0.5)
    assert found["near_mean"] == pytest.approx(5.25)
    assert found["near_median"] == 6.0


def test_the_own_family_can_be_left_out() -> None:
    near = Neighbours(2)
    near.add(towards(0), 2.0, family=7)
    near.add(towards(1), 6.0, family=8)
    assert said(near, 0.0, exclude=7)["near_mean"] == pytest.approx(6.0)
    near = Neighbours(2)
    near.add(towards(0), 2.0, family=7)
    np.testing.assert_array_equal(near.statistics(towards(0), exclude=7), EMPTY)


def test_the_newest_push_out_the_oldest() -> None:
    near = Neighbours(2, capacity=3)
    for n in range(10):
        near.add(towards(0), float(n))
    assert len(near) == 3
    assert said(near, 0.0)["near_mean"] == pytest.approx(8.0)
    np.testing.assert_array_equal(near.arrays()["log_lengths"], [7.0, 8.0, 9.0])


@pytest.mark.parametrize(
    ("vector", "length"),
    [
        ([0.0, 0.0], 1.0),
        ([math.nan, 1.0], 1.0),
        ([math.inf, 1.0], 1.0),
        ([1.0, 0.0], math.nan),
        ([1.0, 0.0], math.inf),
    ],
)
def test_what_is_not_finite_is_passed_over(vector: list[float], length: float) -> None:
    near = Neighbours(2)
    near.add(np.array(vector, dtype=np.float32), length)
    assert len(near) == 0


def test_a_bad_question_gets_the_default() -> None:
    near = Neighbours(2)
    near.add(towards(0), 2.0)
    for vector in ([math.nan, 0.0], [0.0, 0.0], [math.inf, 0.0]):
        found = near.statistics(np.array(vector, dtype=np.float32))
        np.testing.assert_array_equal(found, EMPTY)


def test_a_vector_of_other_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="among those of 2"):
        Neighbours(2).add(np.ones(3, dtype=np.float32), 1.0)


def test_arrays_bring_all_back() -> None:
    rng = np.random.default_rng(3)
    near = Neighbours(8, capacity=50)
    for n in range(70):
        vector = rng.normal(size=8).astype(np.float32)
        near.add(vector / np.linalg.norm(vector), float(n) / 20, n % 3 == 0, n % 5)
    again = Neighbours.from_arrays(near.arrays(), capacity=50)
    probe = rng.normal(size=8).astype(np.float32)
    probe /= np.linalg.norm(probe)
    for exclude in (None, 2):
        ours = near.statistics(probe, exclude=exclude)
        np.testing.assert_allclose(again.statistics(probe, exclude=exclude), ours, atol=1e-2)
    assert len(Neighbours.from_arrays(near.arrays(), capacity=10)) == 10


def test_arrays_that_do_not_fit_are_refused() -> None:
    near = Neighbours(2)
    near.add(towards(0), 2.0)
    good = near.arrays()
    bad = [
        {**good, "vectors": good["vectors"][:0]},
        {**good, "vectors": good["vectors"][0]},
        {**good, "censored": np.array(["no"])},
        {name: good[name] for name in ("vectors", "censored", "families")},
    ]
    for arrays in bad:
        with pytest.raises(ValueError, match="neighbours"):
            Neighbours.from_arrays(arrays)


def test_answers_to_one_prompt_share_its_place_and_go_one_by_one() -> None:
    near = Neighbours(2, capacity=4)
    for length in (1.0, 2.0, 3.0):
        near.add(towards(0), length)
    near.add(towards(1), 7.0)
    near.add(towards(2), 8.0)  # pushes out the oldest answer, not the place
    assert len(near) == 4
    assert near.arrays()["log_lengths"].tolist() == [2.0, 3.0, 7.0, 8.0]
    assert said(near, 0.0)["near_median"] == pytest.approx(5.0)
    near.add(towards(2), 9.0)
    near.add(towards(2), 9.5)  # the place at 0 has none left
    again = Neighbours.from_arrays(near.arrays(), capacity=4)
    for angle in (0.0, 1.0, 2.0):
        np.testing.assert_allclose(
            near.statistics(towards(angle)), again.statistics(towards(angle)), atol=2e-3
        )
    assert said(near, 0.0)["near_cosine"] == pytest.approx(math.cos(1.0), abs=1e-6)


@given(added=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 9), st.booleans()), max_size=40))
def test_what_is_kept_is_always_the_newest(added: list[tuple[int, float, bool]]) -> None:
    near = Neighbours(2, capacity=7)
    for place, length, censored in added:
        near.add(towards(float(place)), length, censored, place)
    kept, found = added[-7:], near.arrays()
    assert found["families"].tolist() == [place for place, _, _ in kept]
    assert found["censored"].tolist() == [censored for _, _, censored in kept]
    np.testing.assert_allclose(found["log_lengths"], [n for _, n, _ in kept], atol=1e-5)
