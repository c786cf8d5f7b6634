"""Bounds: as calibrated, and as they follow what is seen afterwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.control.correction import MOST as BIAS_MOST
from appliance.forecast.conformal import (
    MOST,
    NINETY,
    ONLINE,
    TAUS,
    Corrected,
    Table,
    correct,
    fit,
    guarantee,
    misses,
    warped,
)
from appliance.forecast.hazard import CAP, EDGES, GlobalHazard, Lengths
from appliance.forecast.telling import counts, mean_of_minimum, pinball
from appliance.forecast.tracking import Outcome, Running, Tracker
from tests.unit.bundle_parts import lognormal

SIGMA = 0.7
MEDIANS = np.exp(np.linspace(3, 6.2, 24))
POOL = [lognormal(median, SIGMA) for median in MEDIANS]


def draw(rng: np.random.Generator, n: int) -> tuple[list[Lengths], np.ndarray]:
    """Forecasts that are right, and answers."""
    picks = rng.integers(len(POOL), size=n)
    lengths = np.exp(np.log(MEDIANS[picks]) + SIGMA * rng.normal(size=n))
    return [POOL[pick] for pick in picks], np.maximum(1, np.rint(lengths)).astype(int)


# Before anything is served


def test_offset_is_the_score_of_the_promised_rank() -> None:
    rng = np.random.default_rng(1)
    raw, lengths = draw(rng, 99)
    table = fit(raw, lengths, np.zeros(99, bool), ["chat"] * 99)
    bounds = np.array([one.quantile(0.9) for one in raw])
    scores = np.sort(np.log(lengths / bounds))
    assert table.offsets("chat")[NINETY] == pytest.approx(scores[90 - 1])  # ceil(100 * 0.9)


def test_calibrated_bounds_hold_for_new_answers_of_a_forecaster_that_is_wrong() -> None:
    rng = np.random.default_rng(2)
    raw, lengths = draw(rng, 2000)
    table = fit(raw, np.rint(lengths * 1.7), np.zeros(2000, bool), ["chat"] * 2000)
    fresh, answers = draw(rng, 4000)
    for at, tau in enumerate(TAUS):
        bounds = [correct(one, table.offsets("chat")).bounds[at] for one in fresh]
        assert np.mean(np.rint(answers * 1.7) <= bounds) == pytest.approx(tau, abs=0.03)


def test_answers_that_were_cut_off_do_not_shorten_bounds() -> None:
    rng = np.random.default_rng(3)
    raw, lengths = draw(rng, 4000)
    caps = rng.integers(64, 512, size=4000)  # a quarter is cut
    cut = lengths > caps
    assert cut.mean() > 0.2
    whole = fit(raw, lengths, np.zeros(4000, bool), ["chat"] * 4000).offsets("chat")
    seen = fit(raw, np.minimum(lengths, caps), cut, ["chat"] * 4000).offsets("chat")
    taken_as_ends = fit(raw, np.minimum(lengths, caps), cut & False, ["chat"] * 4000).offsets(
        "chat"
    )
    for at in (1, 2, 3):  # 0.5, 0.7, 0.9
        assert seen[at] == pytest.approx(whole[at], abs=0.12)
    assert taken_as_ends[NINETY] < whole[NINETY] - 0.2


def test_route_with_few_answers_takes_the_offsets_of_all() -> None:
    rng = np.random.default_rng(4)
    raw, lengths = draw(rng, 300)
    routes = ["chat"] * 290 + ["rare"] * 10
    table = fit(raw, lengths, np.zeros(300, bool), routes)
    assert table.offsets("rare") == table.offsets("never seen")
    assert table.offsets("chat") != table.offsets("rare")
    assert Table().offsets("chat") == (0.0,) * len(TAUS)


def test_too_few_answers_promise_nothing_and_the_sentence_says_so() -> None:
    rng = np.random.default_rng(5)
    raw, lengths = draw(rng, 64)
    table = fit(raw, lengths, np.zeros(64, bool), ["chat"] * 64)
    assert "no bound at 99 % is guaranteed" in guarantee(table, "chat", 0.99)  # 65 * 0.99 > 64
    assert "P(L <= bound) >= 90 %" in guarantee(table, "chat", 0.9)
    assert "not for any one prompt" in guarantee(table, "chat", 0.9)
    assert "not for any one prompt" in ONLINE
    assert "0 calibration answers" in guarantee(Table(), "chat", 0.9)


def test_guarantee_over_cut_answers_says_what_it_rests_on() -> None:
    rng = np.random.default_rng(6)
    raw, lengths = draw(rng, 400)
    cut = lengths > 300
    table = fit(raw, np.minimum(lengths, 300), cut, ["chat"] * 400)
    assert f"{int(cut.sum())} of them were cut off" in guarantee(table, "chat", 0.5)


@pytest.mark.parametrize("limit", [64, 256, 1 << 20])
def test_right_forecast_misses_as_often_as_it_says_wherever_the_limit_lies(limit: int) -> None:
    rng = np.random.default_rng(9)
    raw, lengths = draw(rng, 3000)
    counted = np.zeros(len(TAUS))
    for one, length in zip(raw, lengths, strict=True):
        bounds = np.array(one.quantiles(TAUS), dtype=float)
        counted += misses(bounds, one, int(min(length, limit)), bool(length > limit))
    assert 1 - counted / 3000 == pytest.approx(TAUS, abs=0.025)


# Correction of a distribution


@given(
    st.lists(st.floats(-6, 3), min_size=24, max_size=24),
    st.lists(st.floats(-MOST, MOST), min_size=len(TAUS), max_size=len(TAUS)),
    st.integers(1, 200_000),
)
def test_told_numbers_never_fall_nor_leave_the_limit(
    logits: list[float], offsets: list[float], limit: int
) -> None:
    corrected = correct(Lengths.from_logits(logits), offsets)
    p10, p50, p90, p99, mean = counts(corrected, limit)
    assert 1 <= p10 <= p50 <= p90 <= p99 <= limit
    assert 1 <= mean <= limit
    assert np.all((corrected.lengths.hazards > 0) & (corrected.lengths.hazards < 1))


def test_limit_of_no_tokens_tells_zeros() -> None:
    assert counts(correct(POOL[3], (0.0,) * len(TAUS)), 0) == (0, 0, 0, 0, 0)


def test_correction_by_nothing_changes_nothing() -> None:
    corrected = correct(POOL[7], np.zeros(len(TAUS)))
    assert corrected.lengths is POOL[7]
    whole = [int(bound + 1e-6) for bound in corrected.bounds]
    assert tuple(whole) == POOL[7].quantiles(TAUS)


def test_warped_distribution_is_the_shifted_one_where_all_offsets_are_alike() -> None:
    moved = warped(POOL[9], [0.5] * len(TAUS))
    far = EDGES[4:20]
    assert moved.survival(far) == pytest.approx(POOL[9].shifted(0.5).survival(far), abs=0.03)


def test_mean_under_a_limit_is_the_sum_of_survivals() -> None:
    for limit in (1, 17, 64, 65, 500, 4096, 9000):
        assert mean_of_minimum(POOL[12], limit) == pytest.approx(POOL[12].mean(limit), rel=0.003)


def test_pinball_loss_is_least_at_the_quantiles() -> None:
    assert pinball((10, 20, 30, 40), 20) < pinball((10, 80, 90, 95), 20)
    assert pinball((7, 7, 7, 7), 7) == 0.0


# While serving


def simulate(
    seed: int, answers: int, *, drift_at: int = 1 << 30, factor: float = 1.0, cap: int = 1 << 20
) -> np.ndarray:
    """Whether each answer, as far as it may be seen, was within the 90 % bound told for it."""
    rng = np.random.default_rng(seed)
    raw, lengths = draw(rng, answers)
    tracker = Tracker((0.0,) * len(TAUS))
    within = []
    for at in range(answers):
        length = max(1, round(lengths[at] * (factor if at >= drift_at else 1.0)))
        told = correct(raw[at], tracker.offsets)
        bound = told.bounds[NINETY] + 1e-6
        within.append(min(length, cap) <= bound)
        seen = min(length, cap)
        tracker.observe(Outcome(told, seen, length > cap))
    return np.array(within)


def test_coverage_stays_at_ninety_percent_where_nothing_changes() -> None:
    for seed in range(2):
        within = simulate(seed, 2000)
        assert 0.88 <= within.mean() <= 0.92
        assert within.reshape(-1, 200).mean(axis=1).min() >= 0.85


def test_answers_that_are_cut_off_do_not_drag_bounds_along() -> None:
    """A quarter never shows how long it would have become; bounds are right for it all the same."""
    rng = np.random.default_rng(1)
    raw, lengths = draw(rng, 2000)
    tracker = Tracker((0.0,) * len(TAUS))
    within = []
    for one, length in zip(raw, lengths, strict=True):
        told = correct(one, tracker.offsets)
        within.append(length <= told.bounds[NINETY] + 1e-6)
        tracker.observe(Outcome(told, min(length, 256), length > 256))
    assert np.mean(lengths > 256) > 0.2
    assert 0.88 <= np.mean(within) <= 0.92


@pytest.mark.parametrize("factor", [2.0, 0.5])
@pytest.mark.parametrize("cap", [1 << 20, 512])
def test_coverage_is_back_within_200_answers_of_a_drift(factor: float, cap: int) -> None:
    runs = [simulate(seed, 800, drift_at=400, factor=factor, cap=cap) for seed in range(4)]
    after = np.array([run[400:] for run in runs])
    assert after[:, 100:300].mean(axis=1).min() >= 0.85
    assert after[:, 200:].mean(axis=1).min() >= 0.85
    if cap > CAP:  # what a limit cuts off is within any bound beyond it
        assert 0.87 <= after[:, 200:].mean() <= 0.94


def test_coverage_heals_where_short_answers_end_first() -> None:
    """64 run at once; each shows itself while it runs, and ends after as many steps as tokens."""
    within = concurrent(seed=1, answers=1200, drift_at=400, factor=2.0)
    assert np.mean(within[600:800]) >= 0.85
    assert 0.86 <= np.mean(within[600:]) <= 0.94


def concurrent(seed: int, answers: int, drift_at: int, factor: float) -> list[bool]:
    rng = np.random.default_rng(seed)
    raw, lengths = draw(rng, answers + 64)
    tracker = Tracker((0.0,) * len(TAUS))
    running: dict[int, tuple[int, int, Corrected]] = {}
    within: list[bool] = []
    now = started = 0
    while len(within) < answers:
        while len(running) < 64 and started < len(raw):
            length = max(1, round(lengths[started] * (factor if started >= drift_at else 1.0)))
            running[started] = (now, length, correct(raw[started], tracker.offsets))
            started += 1
        now += 8
        tracker.running(
            [Running(one, told, min(now - at, n)) for one, (at, n, told) in running.items()]
        )
        for one, (at, length, told) in sorted(running.items()):
            if now - at >= length:
                within.append(length <= told.bounds[NINETY] + 1e-6)
                outcome = Outcome(told, length, False)
                tracker.observe(outcome, one)
                del running[one]
    return within


def test_running_requests_raise_the_bias_before_they_end() -> None:
    raw = lognormal(100, 0.5)
    tracker, blind = Tracker((0.0,) * len(TAUS)), Tracker((0.0,) * len(TAUS))
    told = correct(raw, tracker.offsets)
    for length in (90, 95, 100, 105, 110) * 6:
        for each in (tracker, blind):
            each.observe(Outcome(told, length, False))
    tracker.running([Running(serial, told, 300) for serial in range(1, 60)])
    assert blind.bias == 0.0
    assert tracker.bias > 0.0


def test_running_request_beyond_its_bound_counts_once() -> None:
    raw = lognormal(100, 0.5)
    tracker, late = Tracker((0.0,) * len(TAUS)), Tracker((0.0,) * len(TAUS))
    told = correct(raw, tracker.offsets)
    for _ in range(5):
        tracker.running([Running(7, told, 5000)])
    outcome = Outcome(told, 6000, False)
    tracker.observe(outcome, 7)
    late.observe(outcome, 7)
    tracker.running([])
    assert tracker.offsets == pytest.approx(late.offsets)


def test_bias_needs_more_than_noise_and_is_bounded() -> None:
    raw = lognormal(100, 0.7)
    rng = np.random.default_rng(3)
    noise, far = Tracker((0.0,) * len(TAUS)), Tracker((0.0,) * len(TAUS))
    told = correct(raw, noise.offsets)
    for _ in range(64):
        length = max(1, round(100 * np.exp(0.7 * rng.normal())))
        noise.observe(Outcome(told, length, False))
        far.observe(Outcome(told, 20 * length, False))
    assert noise.bias == 0.0
    assert far.bias == pytest.approx(BIAS_MOST * 64 / 96)


def test_nothing_but_cut_answers_teaches_no_bias_and_keeps_offsets_bounded() -> None:
    raw = lognormal(100, 0.7)
    tracker = Tracker((0.0,) * len(TAUS))
    for _ in range(500):
        told = correct(raw, tracker.offsets)
        tracker.observe(Outcome(told, 16, True))
    assert tracker.bias == 0.0
    assert np.abs(tracker.offsets).max() <= MOST


def test_offsets_stay_bounded_whatever_comes() -> None:
    raw = lognormal(100, 0.7)
    for length in (1, 1 << 20):
        tracker = Tracker((0.0,) * len(TAUS))
        for _ in range(2000):
            told = correct(raw, tracker.offsets)
            tracker.observe(Outcome(told, length, False))
        assert np.abs(tracker.offsets).max() <= MOST + BIAS_MOST


def test_global_distribution_learns_and_its_bounds_hold() -> None:
    rng = np.random.default_rng(8)
    _, lengths = draw(rng, 1500)
    hazard, tracker = GlobalHazard(512), Tracker((0.0,) * len(TAUS), unbiased=True)
    within = []
    for length in lengths:
        raw = hazard.lengths()
        told = correct(raw, tracker.offsets)
        within.append(length <= told.bounds[NINETY] + 1e-6)
        seen, cut = min(int(length), 512), bool(length > 512)
        tracker.observe(Outcome(told, seen, cut))
        hazard.observe(seen, cut)
    assert 0.88 <= np.mean(within[200:]) <= 0.92
