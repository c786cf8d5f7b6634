"""How cells are parted between the pools, how tau follows overflows, what is fallen back from."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.control.budgets import (
    FALLBACKS,
    IDLE_CYCLES,
    NAN_S,
    TAU_LEAST,
    TAU_MOST,
    Budgets,
    Caution,
    Forecasting,
    Seen,
    Split,
    fallback,
    next_caution,
    next_split,
)

CELLS, SHARE, LEAST = 8192, 0.25, 128
BUSY = Seen(CELLS, a_used=1000, a_peak=1500, b_used=500, b_peak=800, batch=True)


def after(cycles: int, seen: Seen, split: Split | None = None) -> Split:
    split = split or Split(int(CELLS * SHARE))
    for _ in range(cycles):
        split = next_split(split, seen, share=SHARE, least=LEAST)
    return split


# -- the split -------------------------------------------------------------------------------------


def test_batch_requests_have_their_share_while_the_others_have_room() -> None:
    assert after(1, BUSY).b_cells == CELLS * SHARE
    assert after(1, BUSY, Split(0)).b_cells == CELLS * SHARE, "and get it back at once"


def test_idle_pool_b_gives_a_fifth_back_every_third_cycle_until_a_has_all() -> None:
    idle = replace(BUSY, batch=False, b_used=0, b_peak=0)
    split = after(IDLE_CYCLES - 1, idle)
    assert split.b_cells == 2048
    assert after(1, idle, split).b_cells == int(2048 * 0.8)
    assert after(200, idle).b_cells == 0


def test_idle_is_counted_anew_after_a_batch_request() -> None:
    idle = replace(BUSY, batch=False, b_used=0)
    split = after(2, idle)
    split = after(1, BUSY, split)
    assert after(2, idle, split).b_cells == 2048


def test_tight_pool_a_takes_what_its_predicted_peak_lacks() -> None:
    tight = replace(BUSY, a_used=5800, a_peak=6500)
    assert after(1, tight).b_cells == CELLS - 6500
    assert after(50, tight).b_cells == CELLS - 6500, "and then no more"


def test_pool_a_with_room_takes_nothing_whatever_is_predicted() -> None:
    roomy = replace(BUSY, a_used=3000, a_peak=8000)
    assert after(1, roomy).b_cells == 2048


def test_worse_forecasts_leave_less_to_pool_b_and_better_ones_hardly_more() -> None:
    shares = [after(3, replace(BUSY, error=error)).b_cells for error in (0.5, 0.8, 1.0, 1.5, 9.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == shares[1] == int(CELLS * SHARE / 0.8)
    assert shares[-1] == int(CELLS * SHARE / 2)


@pytest.mark.parametrize("error", [math.nan, math.inf, None])
def test_error_that_is_no_number_counts_as_that_of_calibration(error: float | None) -> None:
    assert after(1, replace(BUSY, error=error)).b_cells == 2048


cells = st.integers(1, 1 << 20)
seens = st.builds(
    Seen,
    cells=cells,
    a_used=st.integers(0, 1 << 20),
    a_peak=st.integers(0, 1 << 21),
    b_used=st.integers(0, 1 << 20),
    b_peak=st.integers(0, 1 << 21),
    batch=st.booleans(),
    starts=st.integers(0, 1000),
    overflows=st.integers(0, 1000),
    error=st.none() | st.floats(),
)


@given(st.lists(seens, min_size=1, max_size=30), st.floats(0, 1), st.integers(0, 1 << 20))
def test_both_pools_have_all_cells_and_neither_less_than_its_least(
    found: list[Seen], share: float, first: int
) -> None:
    split = Split(first)
    for seen in found:
        least = min(LEAST, seen.cells // 2)
        split = next_split(split, seen, share=share, least=least)
        assert 0 <= split.b_cells <= seen.cells - least
        assert split.idle < IDLE_CYCLES


@given(seens, st.floats(0, 1), st.integers(0, 1 << 20))
def test_whatever_stays_as_it_is_the_split_comes_to_rest(
    seen: Seen, share: float, first: int
) -> None:
    split, least = Split(first), min(LEAST, seen.cells // 2)
    for _ in range(300):
        split = next_split(split, seen, share=share, least=least)
    later = split
    for _ in range(2 * IDLE_CYCLES):
        later = next_split(later, seen, share=share, least=least)
        assert later.b_cells == split.b_cells
    if not seen.batch and not seen.b_used:
        assert split.b_cells == 0, "without batch requests pool A has all cells"


@given(st.lists(seens, min_size=1, max_size=30))
def test_budgets_never_fail_and_stay_in_their_bounds(found: list[Seen]) -> None:
    budgets = Budgets(share=SHARE, target=0.01, least=LEAST)
    for seen in found:
        budgets.tick(seen)
        assert budgets.split is not None
        assert 0 <= budgets.split.b_cells <= seen.cells
        assert TAU_LEAST <= budgets.caution.tau <= TAU_MOST


def test_nothing_is_parted_before_the_engine_has_told_its_cells() -> None:
    budgets = Budgets(share=SHARE, target=0.01, least=LEAST)
    budgets.tick(Seen(0))
    assert budgets.split is None
    budgets.tick(BUSY)
    assert budgets.split == Split(2048)
    budgets.renew()
    assert budgets.split is None


# -- tau -------------------------------------------------------------------------------------------


def overflow_share(steepness: float, starts: int, seed: int, target: float = 0.01) -> float:
    """Share of starts with an overflow where its chance falls with tau."""
    chance = random.Random(seed)
    caution, overflows = Caution(0.6), 0
    for _ in range(starts):
        happened = chance.random() < math.exp(-steepness * caution.tau)
        overflows += happened
        caution = next_caution(caution, 1, int(happened), target=target)
    return overflows / starts


@pytest.mark.parametrize("steepness", [5.0, 6.5, 8.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_overflows_come_to_their_target_whatever_forecasts_are_worth(
    steepness: float, seed: int
) -> None:
    assert overflow_share(steepness, 20_000, seed) == pytest.approx(0.01, abs=0.003)


def test_overflow_makes_cautious_at_once_and_calm_makes_bold_slowly() -> None:
    after_one = next_caution(Caution(0.6), 1, 1, target=0.01)
    assert after_one.tau - 0.6 > 0.05
    calm = after_one
    for _ in range(300):
        calm = next_caution(calm, 1, 0, target=0.01)
    assert 0.5 <= calm.tau < 0.6


def test_long_calm_is_soon_forgotten_when_cells_begin_to_run_out() -> None:
    caution = Caution(0.6)
    for _ in range(5000):
        caution = next_caution(caution, 1, 0, target=0.01)
    for _ in range(12):
        caution = next_caution(caution, 1, 1, target=0.01)
    assert caution.tau > 0.9


def test_starts_with_cells_to_spare_say_nothing_of_tau() -> None:
    budgets = Budgets(share=SHARE, target=0.01, least=LEAST)
    budgets.tick(replace(BUSY, starts=900))
    assert budgets.caution.tau == 0.6
    budgets.tick(replace(BUSY, a_peak=5000, starts=1800))
    assert budgets.caution.tau < 0.6


def test_counters_that_begin_anew_move_nothing() -> None:
    budgets = Budgets(share=SHARE, target=0.01, least=LEAST)
    budgets.tick(replace(BUSY, overflows=3))
    was = budgets.caution
    budgets.tick(replace(BUSY, overflows=0))
    assert budgets.caution == was


# -- fallback --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("ok", ""),
        ("global", "missing"),
        ("off", "off"),
        ("uncalibrated", "uncalibrated"),
        ("a new one", "missing"),
    ],
)
def test_queue_goes_by_arrival_where_forecasts_are_not_what_they_say(state: str, why: str) -> None:
    assert fallback(100.0, Forecasting(state)) == why
    assert not why or FALLBACKS[why]


def test_forecasts_are_trusted_again_some_time_after_one_was_broken() -> None:
    found = Forecasting("ok", last_nan=100.0)
    assert fallback(100.0 + NAN_S - 1, found) == "broken"
    assert fallback(100.0 + NAN_S, found) == ""
