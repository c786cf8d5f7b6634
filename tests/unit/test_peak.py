"""The most cells that running sequences come to hold."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.peak import predicted_peak

growings = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 80)), max_size=6)


def played(growing: list[tuple[int, int]], shared: int) -> int:
    """The same by letting every sequence grow, a token a step, and end."""
    most = shared + sum(own for _, own in growing)
    for step in range(1, max((left for left, _ in growing), default=0) + 1):
        most = max(most, shared + sum(own + step for left, own in growing if left >= step))
    return most


@given(growing=growings, shared=st.integers(0, 50))
def test_peak_is_what_a_play_of_the_future_holds_at_most(
    growing: list[tuple[int, int]], shared: int
) -> None:
    assert predicted_peak(growing, shared) == played(growing, shared)


def test_peak_is_less_than_the_sum_of_all_that_each_may_hold() -> None:
    growing = [(10, 100), (100, 50), (200, 20)]
    assert predicted_peak(growing, 0) == 270
    assert sum(left + own for left, own in growing) == 480


def test_nobody_needs_nothing_but_what_is_shared() -> None:
    assert predicted_peak([], 7) == 7
