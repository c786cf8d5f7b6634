"""What corrects forecasts: found from answers, within bounds, and never from noise."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.control.compensator import (
    DEAD_BAND,
    ENOUGH,
    MOST_SCALE,
    MOST_SHIFT,
    SHRINK,
    Compensator,
)
from appliance.control.correction import MOST, Correction
from appliance.control.window import SIZE, Flight, Sample

SIGMA = 0.5
any_float = st.floats(allow_nan=True, allow_infinity=True)


def answers(seed: int, count: int, off: float = 0.0, sigma: float = SIGMA) -> list[Sample]:
    """Of a forecaster that is wrong by `off`, log units."""
    rng = random.Random(seed)
    medians = [rng.gauss(5.0, 0.7) for _ in range(count)]
    return [Sample(m + off + rng.gauss(0.0, sigma), m, SIGMA) for m in medians]


def corrected(samples: list[Sample]) -> Correction:
    return Compensator("x").tick(1.0, samples)


@pytest.mark.parametrize("off", [math.log(1.3), math.log(0.7), 0.6])
def test_known_bias_is_found_from_64_answers(off: float) -> None:
    found = [corrected(answers(seed, SIZE, off)) for seed in range(40)]
    left = sorted(off - one.filtered for one in found)[20]
    assert abs(left) < DEAD_BAND * SIGMA / math.sqrt(SIZE)
    assert abs(left) < abs(off) / 2
    assert all(one.valid and one.n == SIZE for one in found)


def test_right_forecasts_are_left_alone_mostly() -> None:
    moved = [abs(corrected(answers(seed, SIZE)).filtered) for seed in range(100)]
    assert sum(one > 0.05 for one in moved) <= 15
    assert max(moved) < 0.25


def test_raw_filtered_and_valid_are_told_together() -> None:
    found = corrected(answers(1, SIZE, 2.0))
    assert found.raw is not None
    assert found.raw > 1.5
    assert found.filtered == pytest.approx(MOST * SIZE / (SIZE + SHRINK))
    assert (found.valid, found.channel, found.at, found.sigma) == (True, "x", 1.0, SIGMA)


def test_few_answers_correct_nothing() -> None:
    found = corrected(answers(1, ENOUGH - 1, 0.7))
    assert (found.valid, found.filtered, found.log_factor(9.0)) == (False, 0.0, 0.0)
    assert found.raw is not None


def test_answers_that_were_all_cut_correct_nothing() -> None:
    cut = [Sample(1.0, 5.0, SIGMA, cut=True)] * SIZE
    found = corrected(cut)
    assert (found.raw, found.valid, found.filtered) == (None, False, 0.0)


def test_running_answers_raise_the_correction_before_they_end() -> None:
    compensator = Compensator()
    before = compensator.tick(0.0, answers(2, 30, sigma=0.1))
    flights = [Flight(6.5, 5.0)] * 60
    after = compensator.tick(1.0, running=flights)
    assert before.filtered == 0.0
    assert after.filtered > 0.05
    assert compensator.tick(2.0, running=[]).filtered == 0.0


def test_running_answers_that_have_just_begun_say_nothing() -> None:
    compensator = Compensator()
    before = compensator.tick(0.0, answers(3, SIZE, 0.5))
    after = compensator.tick(0.0, running=[Flight(0.0, 5.0)] * 200)
    assert after == before


def test_window_that_scatters_less_than_calibrated_takes_no_step() -> None:
    calm = corrected(answers(4, 300, 0.5, sigma=0.4 * SIGMA))
    wide = corrected(answers(4, 300, 0.5, sigma=1.0 * SIGMA))
    assert (calm.steps, calm.shift) == (0, 0.0)
    assert wide.steps > 0
    assert 0.0 < wide.shift <= MOST_SHIFT


def test_steps_stop_at_the_bound_and_nothing_winds_up_behind_it() -> None:
    compensator = Compensator()
    far = compensator.tick(0.0, answers(5, 400, 2.0))
    assert far.clipped > 100
    assert far.filtered <= MOST
    back = compensator.tick(0.0, answers(6, SIZE, 0.0))
    assert abs(back.filtered) < 0.15


def test_scale_is_learned_where_long_answers_are_off_and_short_ones_are_not() -> None:
    rng = random.Random(7)
    samples = []
    for _ in range(400):
        arm = rng.gauss(0.0, 0.8)
        samples.append(Sample(5.0 + 0.7 * arm + rng.gauss(0.0, SIGMA), 5.0 + arm, SIGMA))
    found = corrected(samples)
    assert 1.0 - MOST_SCALE <= found.scale < 1.0
    assert found.log_factor(7.0) < found.filtered < found.log_factor(3.0)


def test_correction_fades_once_forecasts_are_right_again() -> None:
    compensators = [Compensator() for _ in range(20)]
    off = [one.tick(0.0, answers(at, 300, 0.4)) for at, one in enumerate(compensators)]
    on = [one.tick(0.0, answers(100 + at, 600)) for at, one in enumerate(compensators)]
    assert sum(one.filtered for one in off) / 20 > 0.25
    assert abs(sum(one.filtered for one in on)) / 20 < 0.05


def test_what_is_no_number_is_refused_and_counted() -> None:
    compensator = Compensator()
    before = compensator.tick(0.0, answers(10, SIZE, 0.5))
    nan, inf = math.nan, math.inf
    bad = [Sample(nan, 5.0, 1.0), Sample(5.0, inf, 1.0), Sample(5.0, 5.0, nan), Sample(5, 5, 0)]
    after = compensator.tick(0.0, bad, [Flight(nan, 5.0), Flight(5.0, -inf)])
    assert after.rejected == 4
    assert (after.raw, after.filtered, after.n) == (before.raw, before.filtered, before.n)
    assert compensator.flights == ()


@given(
    st.lists(st.builds(Sample, any_float, any_float, any_float, st.booleans()), max_size=150),
    st.lists(st.builds(Flight, any_float, any_float), max_size=40),
    any_float,
)
def test_whatever_comes_the_correction_is_finite_and_bounded(
    samples: list[Sample], flights: list[Flight], median: float
) -> None:
    found = Compensator().tick(0.0, samples, flights)
    assert abs(found.filtered) <= MOST
    assert abs(found.shift) <= MOST_SHIFT
    assert abs(found.scale - 1.0) <= MOST_SCALE
    assert found.raw is None or math.isfinite(found.raw)
    if math.isfinite(median):
        assert abs(found.log_factor(median)) <= MOST


@given(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=20, max_size=100))
def test_same_answers_give_the_same_bits(values: list[tuple[float, bool]]) -> None:
    samples = [Sample(5.0 + off, 5.0, SIGMA, cut) for off, cut in values]
    one, other = corrected(samples), corrected(samples)
    assert repr(one) == repr(other)
