"""Quality: scores of chances, the tally of signals, the head, and what may be called quality."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from appliance.forecast import chances, glm, quality, qualityfit
from appliance.forecast.dataset import Answered, Signal

SIZE = 8


# -- scores ----------------------------------------------------------------------------------------


def test_auroc_counts_pairs_and_ties_half():
    came = np.array([0.0, 0.0, 1.0, 1.0])
    assert chances.auroc(np.array([0.1, 0.2, 0.3, 0.4]), came) == 1.0
    assert chances.auroc(np.array([0.4, 0.3, 0.2, 0.1]), came) == 0.0
    assert chances.auroc(np.array([0.1, 0.2, 0.2, 0.4]), came) == 0.875
    assert chances.auroc(np.full(4, 0.5), came) == 0.5
    assert chances.auroc(np.full(4, 0.5), np.ones(4)) is None


def test_within_groups_an_order_that_only_tells_the_group_is_worth_nothing():
    groups = np.repeat([0, 1], 100)
    came = np.concatenate([np.arange(100) < 10, np.arange(100) < 90]).astype(float)
    told = groups * 0.8 + 0.1
    assert chances.auroc(told, came) > 0.8
    assert chances.auroc_within(told, came, groups) == 0.5
    assert chances.auroc_within(told, np.ones(200), groups) is None


def test_ece_and_brier_of_known_cases():
    came = np.tile([0.0, 1.0], 150)
    assert chances.ece(np.full(300, 0.5), came) == pytest.approx(0.0)
    assert chances.ece(np.full(300, 0.9), came) == pytest.approx(0.4)
    assert chances.ece(came, came) == 0.0
    assert chances.brier(np.full(300, 0.5), came) == 0.25


def test_ece_sees_what_cancels_on_average():
    told = np.repeat([0.2, 0.8], 300)
    came = np.concatenate([np.arange(300) % 2, np.arange(300) % 2]).astype(float)
    assert chances.ece(told, came) == pytest.approx(0.3)


def test_quintiles_are_of_like_size():
    found = chances.quintiles(np.arange(100.0))
    assert np.bincount(found).tolist() == [20] * 5
    assert set(chances.quintiles(np.ones(10))) == {0}


def test_logistic_regression_finds_what_made_the_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8000, 2))
    y = (rng.random(8000) < 1 / (1 + np.exp(-(0.5 + 1.5 * x[:, 0])))).astype(float)
    found = glm.logistic(x, y, ridge=1e-3)
    assert found == pytest.approx([0.5, 1.5, 0.0], abs=0.12)


def test_poisson_regression_finds_the_factor_of_a_rate():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8000, 1))
    exposure = rng.uniform(0.1, 2.0, 8000)
    y = rng.poisson(exposure * np.exp(-0.7 + 0.5 * x[:, 0])).astype(float)
    found = glm.poisson(x, y, ridge=1e-3, exposure=exposure, weight=np.ones(8000))
    assert found == pytest.approx([-0.7, 0.5], abs=0.08)


def test_separable_data_gives_finite_weights():
    x = np.arange(100.0)[:, None]
    found = glm.logistic(x, (x[:, 0] > 50).astype(float), ridge=1.0)
    assert np.isfinite(found).all()


# -- the tally -------------------------------------------------------------------------------------


def features(*signals: Signal, tokens: int = 100, ended: bool = True) -> dict[str, float]:
    tally = quality.Tally()
    for signal in signals:
        tally.add(signal)
    return dict(zip(quality.NAMES, tally.features(tokens, ended), strict=True))


def test_the_tally_finds_the_weakest_window():
    logprobs = [-1.0] * 6 + [-5.0] * 4 + [-1.0] * 6
    found = features(*(Signal(8 * k, -5.0, 2.0, p) for k, p in enumerate(logprobs, 1)))
    assert found["logprob_lowest_window"] == -5.0
    assert found["logprob_mean"] == -2.0
    assert found["entropy_first"] == 2.0
    assert found["no_signals"] == 0.0


def test_an_answer_too_short_for_a_signal_says_so():
    found = features(tokens=3)
    assert found["no_signals"] == 1.0
    assert found["log_length"] == pytest.approx(math.log(3))
    assert all(math.isfinite(value) for value in features(tokens=0).values())


def test_signals_that_are_no_numbers_are_passed_over():
    bad = Signal(8, math.nan, math.nan, -math.inf)
    assert features(bad) == features()
    assert features(bad, Signal(16, -1.0, 1.0, -1.0))["entropy_first"] == 1.0


# -- the head --------------------------------------------------------------------------------------


def make_checked(count: int, seed: int, *, learnable: bool) -> qualityfit.Checked:
    """Whether an answer is right hangs on its mean logprob and on its vector, or on nothing."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, len(quality.NAMES)))
    prompts = rng.normal(size=(count, SIZE)).astype(np.float32)
    answers = rng.normal(size=(count, SIZE)).astype(np.float32)
    answers[:, 0] *= 3
    odds = 1.2 * values[:, 2] + 0.6 * answers[:, 0] if learnable else np.zeros(count)
    came = (rng.random(count) < 1 / (1 + np.exp(-odds))).astype(float)
    sources = rng.integers(0, 3, count)
    return qualityfit.Checked(values, prompts, answers, came, np.arange(count), sources)


def test_a_head_that_beats_its_baselines_may_be_called_quality():
    found = qualityfit.report(make_checked(900, 1, learnable=True))
    assert found.claim == "quality"
    assert found.reasons == ()
    assert msgspec.json.decode(msgspec.json.encode(found), type=qualityfit.QualityReport) == found
    assert found.ways["head"].score.auroc > 0.75
    assert found.ways["head"].aurc < found.ways["base_rate"].aurc
    assert all(low > 0 for low, _ in found.gains.values())


def test_a_head_without_anything_to_learn_is_only_confidence_and_says_why():
    found = qualityfit.report(make_checked(900, 2, learnable=False))
    assert found.claim == "confidence"
    assert any("base_rate" in reason for reason in found.reasons)


def test_just_enough_answers_are_enough_for_the_report_too():
    found = qualityfit.report(make_checked(qualityfit.FEWEST, 15, learnable=True))
    assert found.ways["head"].score.n == qualityfit.FEWEST


def test_knowing_only_the_source_is_not_quality():
    data = make_checked(900, 3, learnable=False)
    rates = np.array([0.1, 0.5, 0.9])[data.sources]
    came = (np.random.default_rng(4).random(900) < rates).astype(float)
    told = {"head": rates, "base_rate": np.full(900, came.mean())}
    lengths = np.random.default_rng(5).normal(size=900)
    found = qualityfit.judged(told, came, lengths, data.families, data.sources)
    assert found.claim == "confidence"
    assert "one source" in found.reasons[-1]


def test_too_few_checked_answers_are_refused():
    with pytest.raises(qualityfit.TooFewChecked, match="50 answers"):
        qualityfit.fit(make_checked(50, 6, learnable=True))
    data = make_checked(400, 7, learnable=True)
    data.passed[:] = 1.0
    with pytest.raises(qualityfit.TooFewChecked, match="400 of them passed"):
        qualityfit.report(data)


def test_a_head_comes_back_from_its_arrays_and_tells_the_same():
    data = make_checked(400, 8, learnable=True)
    head = qualityfit.fit(data, "quality")
    again = quality.Head.from_arrays(head.arrays())
    assert again is not None
    assert again.claim == "quality"
    one = again.told(data.features[0].tolist(), data.prompts[0], data.answers[0])
    assert one == pytest.approx(float(qualityfit.tell(head, data)[0]))
    assert 0.0 < one < 1.0


def test_vectors_of_another_width_or_none_count_as_nothing():
    head = qualityfit.fit(make_checked(400, 9, learnable=True))
    values = [0.0] * len(quality.NAMES)
    none = head.told(values, np.zeros(0, np.float32), np.zeros(0, np.float32))
    assert none == pytest.approx(quality.sigmoid(float(head.weights[0])))


@pytest.mark.parametrize("width", [0, 3])
def test_vectors_that_never_differ_teach_nothing_and_break_nothing(width):
    data = make_checked(400, 14, learnable=True)
    same = np.ones((400, width), np.float32)
    head = qualityfit.fit(replace(data, prompts=same, answers=same))
    assert np.isfinite(head.weights).all()
    assert not head.project.any()
    vector = np.full(width, 1e6, np.float32)
    assert 0.0 < head.told(data.features[0].tolist(), vector, vector) < 1.0


def test_damaged_heads_are_refused_and_a_missing_one_is_none():
    good = qualityfit.fit(make_checked(400, 10, learnable=True)).arrays()
    assert quality.Head.from_arrays({"near": np.zeros(3)}) is None
    for name, value in (
        ("quality_version", np.array([99, 0])),
        ("quality_project", np.zeros((2, 2), np.float32)),
        ("quality_weights", np.full_like(good["quality_weights"], np.nan)),
    ):
        with pytest.raises(quality.BadQuality):
            quality.Head.from_arrays({**good, name: value})
    del good["quality_mean"]
    with pytest.raises(quality.BadQuality, match="mean"):
        quality.Head.from_arrays(good)


# -- before it runs --------------------------------------------------------------------------------


def test_platt_scaling_makes_logits_honest():
    rng = np.random.default_rng(11)
    truth = rng.normal(size=4000)
    passed = (rng.random(4000) < 1 / (1 + np.exp(-(truth - 1)))).astype(float)
    slope, intercept = qualityfit.platt(truth * 4, passed)  # four times too sure
    assert slope == pytest.approx(0.25, abs=0.04)
    assert quality.before(4.0, slope, intercept) == pytest.approx(0.5, abs=0.05)


def test_a_logit_that_misleads_is_replaced_by_the_base_rate():
    rng = np.random.default_rng(12)
    passed = (rng.random(1000) < 0.2).astype(float)
    slope, intercept = qualityfit.platt(-passed + rng.normal(0, 0.1, 1000), passed)
    assert slope == 0.0
    assert quality.before(100.0, slope, intercept) == pytest.approx(passed.mean())


@pytest.mark.parametrize(("strength", "claim"), [(1.5, "quality"), (0.0, "confidence")])
def test_the_claim_before_the_answer_is_decided_on_families_not_seen(strength, claim):
    rng = np.random.default_rng(13)
    logits = rng.normal(size=1200)
    passed = (rng.random(1200) < 1 / (1 + np.exp(-strength * logits))).astype(float)
    lengths = rng.normal(size=1200)
    found = qualityfit.before(
        logits, passed, lengths, np.arange(1200) // 2, rng.integers(0, 3, 1200)
    )
    assert found.report.claim == claim
    assert set(found.report.ways) == {"head", "base_rate", "length"}


def test_features_of_a_kept_answer_are_those_of_its_signals():
    answer = Answered(
        id="a",
        sample=0,
        temperature=0.7,
        top_p=0.95,
        max_tokens=64,
        seed=1,
        finish_reason="length",
        prompt_tokens=3,
        completion_tokens=64,
        signals=(Signal(8, -1.0, 2.5, -0.5),),
    )
    found = dict(zip(quality.NAMES, qualityfit.features_of(answer), strict=True))
    assert (found["entropy_first"], found["ended"]) == (2.5, 0.0)
