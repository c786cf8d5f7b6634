"""The scores of forecasts, against their definitions."""

import numpy as np
import pytest

from appliance.forecast import reliability, scores
from appliance.forecast.bootstrap import interval
from appliance.forecast.hazard import BINS, Lengths


def make_hazards(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.02, 0.4, (rows, BINS))


def test_points_count_what_their_names_say() -> None:
    found = scores.points([100, 100, 10], [103, 150, 40])
    assert found["mae"] == pytest.approx((3 + 50 + 30) / 3)
    assert found["bias"] == found["mae"]
    assert found["medae"] == 30
    assert (
        found["within_3"]
        == found["within_10_percent"]
        == found["within_25_percent"]
        == (pytest.approx(1 / 3))
    )
    assert found["within_50"] == 1.0


def test_crps_is_the_integral_of_pinball_losses() -> None:
    hazards, cap = make_hazards(1), 300
    y = np.array([140])
    taus = (np.arange(4000) + 0.5) / 4000
    told = scores.quantiles(hazards, tuple(taus), cap)
    losses = scores.pinball(y, told, tuple(taus))
    assert len(losses) > 100
    off = y[:, None] - told
    integral = 2 * np.maximum(taus * off, (taus - 1) * off).mean()
    assert scores.crps(hazards, y, cap)[0] == pytest.approx(integral, rel=0.02)


def test_crps_of_a_sure_forecast_is_its_error() -> None:
    hazards = np.full((1, BINS), 1e-6)
    assert scores.crps(hazards, [500], 500)[0] == pytest.approx(0, abs=0.1)
    assert scores.crps(hazards, [100], 500)[0] == pytest.approx(400, rel=0.01)


def test_crps_sees_nothing_beyond_the_cap() -> None:
    hazards = make_hazards(1)
    assert scores.crps(hazards, [512], 512) == pytest.approx(scores.crps(hazards, [9999], 512))


def test_medians_are_those_of_the_distribution() -> None:
    rows = make_hazards(20)
    one_by_one = [Lengths(row).capped(400).quantile(0.5) for row in rows]
    assert scores.medians(rows, 400).tolist() == one_by_one


def test_the_noise_floor_leaves_each_answer_out_in_turn() -> None:
    four = {"a": [10, 20, 60, 30], "b": [7], "c": [10, 900]}
    assert scores.noise_floor(four) == pytest.approx((20 + 10 + 40 + 10) / 4)
    assert np.isnan(scores.noise_floor({"a": [10]}))


def test_a_floor_from_pairs_is_lowered_by_their_own_noise() -> None:
    assert scores.noise_floor({"a": [10, 30]}) == pytest.approx(20 / np.sqrt(2))
    draws = np.random.default_rng(0).normal(300, 40, (4000, 4))
    pairs, fours = (
        scores.noise_floor({n: row[:k].tolist() for n, row in enumerate(draws)}) for k in (2, 4)
    )
    assert 0.8 * fours < pairs < fours


def test_means_tell_apart_what_medians_at_the_cap_cannot() -> None:
    rows = np.stack([np.full(BINS, 0.01), np.full(BINS, 0.02)])
    assert scores.medians(rows, 512).tolist() == [512, 512]
    one, other = scores.means(rows, 512)
    assert one > other
    assert one == pytest.approx(Lengths(rows[0]).mean(512))


def test_skill_is_the_share_of_the_gap_that_is_closed() -> None:
    assert scores.skill(178, 123.4, 94) == pytest.approx(0.65)
    assert np.isnan(scores.skill(90, 80, 94))


def test_a_constant_forecast_ranks_nothing() -> None:
    assert scores.kendall([1, 2, 3], [5, 5, 5]) == 0.0
    assert scores.rank_accuracy([1, 2, 3], [5, 5, 5]) == 0.5
    assert scores.kendall([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)


def test_auroc_counts_ties_half() -> None:
    assert scores.auroc([0, 0, 1, 1], [1, 2, 2, 3]) == pytest.approx(3.5 / 4)
    assert np.isnan(scores.auroc([1, 1], [1, 2]))


def test_a_bound_is_judged_in_its_worst_group_and_block() -> None:
    truth = np.r_[np.full(200, 10), np.full(200, 90)]
    found = reliability.upper(truth, np.full(400, 50), ["short"] * 200 + ["long"] * 200)
    assert found["coverage"] == 0.5
    assert found["worst_group"] == 0.0 == found["block_least"]
    assert found["block_most"] == 1.0


def test_groups_that_are_too_small_say_nothing() -> None:
    assert np.isnan(reliability.worst([True] * 5, ["few"] * 5))


def test_an_interval_pays_for_width_and_for_what_is_outside() -> None:
    found = reliability.central([5, 25], [0, 0], [10, 10], 0.9)
    assert found["coverage"] == 0.5
    assert found["mean_width"] == 10
    assert found["interval_score"] == pytest.approx(10 + 2 / 0.1 * 15 / 2)


def test_true_chances_are_calibrated_and_false_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    chance = rng.uniform(0, 1, 20000)
    came = rng.random(20000) < chance
    honest, wrong = (reliability.events(came, told) for told in (chance, chance**3))
    assert honest["ece"] < 0.02 < 0.1 < wrong["ece"]
    assert honest["brier"] < wrong["brier"]
    assert honest["auroc"] == pytest.approx(wrong["auroc"])  # the same order


def test_events_of_which_none_can_be_judged_are_told_as_unknown() -> None:
    found = reliability.events([], [])
    assert found.pop("count") == 0
    assert np.isnan(list(found.values())).all()
    assert found.keys() == reliability.events([1, 0], [0.9, 0.2]).keys() - {"count"}


def test_a_right_forecast_is_reliable_however_many_answers_were_cut() -> None:
    rng, hazards = np.random.default_rng(0), make_hazards(1500, 5)
    hazards[:, :9] = 0.003  # short lengths are whole tokens: no level is met exactly there
    grid = np.arange(3000)
    drawn = [int(np.searchsorted(-Lengths(row).survival(grid), -rng.random())) for row in hazards]
    real = np.maximum(drawn, 1)
    for cap in (10000, 128):
        cut = real > cap
        found = reliability.curve(hazards, np.minimum(real, cap), cut, (0.1, 0.5, 0.9))
        for level, share in found:
            assert share == pytest.approx(level, abs=0.04)
    assert cut.mean() > 0.2


def test_answers_of_one_family_are_not_counted_as_many() -> None:
    rng = np.random.default_rng(0)
    per_family = rng.standard_normal(30)
    wide = interval(np.repeat(per_family, 20), np.repeat(np.arange(30), 20))
    narrow = interval(np.repeat(per_family, 20), np.arange(600))
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])
