"""The refinement in flight: structure of the text, features, arithmetic, fitting, figures."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from appliance.forecast import refinefit, refinescore, signs
from appliance.forecast.dataset import Answered, Signal
from appliance.forecast.hazard import Lengths, fitted
from appliance.forecast.refine import (
    HORIZONS,
    BadRefiner,
    Refined,
    Refinement,
    Refiner,
)
from appliance.forecast.structure import Structure

LIMIT = 512
SHAPE = 2, len(HORIZONS), 2 + len(signs.NAMES)


def make_prior(hazard: float = 0.12) -> Lengths:
    return Lengths(np.full(24, hazard))


def make_refiner(near: float = 0.0, tail: float = 0.0) -> Refiner:
    """Adds `near` to the log odds of every interval and `tail` to the log of the tail's factor."""
    weights, tails = np.zeros(SHAPE), np.zeros((2, 1 + len(signs.NAMES)))
    weights[..., 0], weights[..., 1], tails[:, 0] = near, 1.0, tail
    return Refiner(weights, tails)


def refined(prior: Lengths, refiner: Refiner | None, generated: int, limit: int = LIMIT) -> Refined:
    return Refinement(prior, limit, refiner).update(
        Signal(generated, -5.0, 2.0, -1.0), "So it is. "
    )


def shape_of(*texts: str):
    structure = Structure()
    for text in texts:
        structure.read(text)
    return structure.shape


# -- the text --------------------------------------------------------------------------------------


def test_open_code_is_seen_until_it_is_closed():
    assert shape_of("Look:\n```py", "thon\nprint(1)\n").fence_open
    assert not shape_of("Look:\n```py", "thon\nprint(1)\n", "```\n").fence_open
    assert not shape_of("Look:\n```python\nprint(1)\n``", "`").fence_open


def test_list_items_and_paragraphs_are_counted_across_pieces():
    shape = shape_of("First:\n\n1. on", "e\n2", ". two\n\n- three\n# Head\nplain")
    assert (shape.items, shape.paragraphs, shape.in_item) == (4, 2, False)
    assert shape_of("a\n", "* b").in_item


def test_sentence_and_line_ends_are_seen_in_both_languages():
    assert shape_of("It is so.").sentence_end
    assert shape_of('He said: "no!"').sentence_end
    assert shape_of("好的。").sentence_end
    assert not shape_of("It is so, and").sentence_end
    assert shape_of("one\n").line_end
    assert not shape_of("one").line_end


def test_depth_counts_open_brackets_and_forgets_those_of_prose():
    assert shape_of('{"a": [1, {"b": ').depth == 3
    assert shape_of('{"a": [1]}').depth == 0
    assert shape_of("((((:\nplain words\nmore").depth <= 1


def test_repetition_is_seen_only_where_text_comes_again():
    phrase = "the cat sat on the mat and looked at us. "
    assert shape_of(phrase, phrase, phrase).repeated > 0.9
    fresh = "quite another sentence about rivers and hills of the north. "
    assert shape_of(phrase, fresh).repeated == 0.0


def test_empty_text_and_a_flood_are_read_alike():
    shape = shape_of("", "x" * 100_000, "")
    assert shape.items == 0
    assert shape_of("").depth == 0


# -- the features ----------------------------------------------------------------------------------


def test_features_have_names_and_are_finite_whatever_the_signals_say():
    follower = signs.Signs()
    for signal in (
        Signal(8, math.nan, math.inf, -math.inf),
        Signal(0, math.inf, -1.0, math.nan),
        Signal(16, -1e9, 1e9, 1.0),
    ):
        found = follower.read(signal, "\u200b😀", math.inf)
        assert len(found) == len(signs.NAMES)
        assert all(math.isfinite(value) for value in found)


def test_a_chance_to_end_is_remembered_for_a_while():
    follower = signs.Signs()
    at = signs.NAMES.index("eos_chance_highest")
    assert follower.read(Signal(8, 0.0, 1.0, -1.0), "", 0.0)[at] == 1.0
    later = [follower.read(Signal(16 + 8 * k, -9.0, 1.0, -1.0), "", 0.0)[at] for k in range(4)]
    assert later[0] == 1.0
    assert later[-1] < 0.01


# -- what is told ----------------------------------------------------------------------------------


@pytest.mark.parametrize("generated", [8, 64, 248, 4000, 5000])
@pytest.mark.parametrize("refiner", [None, make_refiner()])
def test_without_anything_learned_it_tells_what_is_left_of_the_prior(generated, refiner):
    prior = make_prior(0.5)
    left = prior.residual(generated)
    found = refined(prior, refiner, generated, 1 << 19)
    for tau in (0.1, 0.5, 0.9):
        assert found.quantile(tau) == pytest.approx(left.quantile(tau), rel=0.01, abs=1)
    for steps in (*HORIZONS, 300):
        assert found.ends_within(steps) == pytest.approx(left.ends_within(steps), abs=0.004)


def test_a_corrected_prior_stays_corrected():
    prior = make_prior().shifted(0.7)
    found = refined(prior, make_refiner(), 40, 1 << 19)
    assert found.quantile(0.5) == pytest.approx(prior.residual(40).quantile(0.5), rel=0.01)
    assert found.lengths.quantile(0.5) == pytest.approx(found.quantile(0.5), rel=0.03)


def test_quantiles_rise_and_stay_within_what_is_known():
    found = refined(make_prior(), make_refiner(2.0, -1.0), 72)
    quantiles = found.quantiles((0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0))
    assert list(quantiles) == sorted(quantiles)
    assert quantiles[0] >= 73
    assert quantiles[-1] == LIMIT
    assert 73 <= found.mean() <= LIMIT


def test_a_sign_of_the_end_shortens_and_its_absence_lengthens():
    prior = make_prior()
    soon, plain, late = (refined(prior, make_refiner(z), 64) for z in (3.0, 0.0, -3.0))
    assert soon.quantile(0.5) < plain.quantile(0.5) < late.quantile(0.5)
    assert soon.ends_within(8) > 5 * late.ends_within(8)
    assert soon.mean() < plain.mean() < late.mean()


def test_the_tail_stretches_by_its_own_factor():
    prior = make_prior()
    plain = refined(prior, make_refiner(), 64, 1 << 19)
    slow = refined(prior, make_refiner(tail=-1.0), 64, 1 << 19)
    assert slow.ends_within(64) == pytest.approx(plain.ends_within(64))
    assert slow.quantile(0.9) > 1.5 * plain.quantile(0.9)


def test_the_mean_is_the_area_under_the_survival():
    found = refined(make_prior(), make_refiner(0.5, 0.3), 48)
    area = 48 + sum(found.survival(g) for g in range(48, LIMIT))
    assert found.mean() == pytest.approx(area, rel=0.02)


def test_as_lengths_it_tells_the_same_at_the_edges_of_the_bins():
    from appliance.forecast.hazard import EDGES

    found = refined(make_prior(), make_refiner(1.0, -0.4), 100, 1 << 19)
    edges = EDGES[EDGES > 100][:-1]
    assert found.lengths.given == 100
    assert found.lengths.survival(edges) == pytest.approx(
        np.array([found.survival(edge) for edge in edges]), abs=1e-3
    )


def test_text_switches_to_the_weights_that_read_it():
    near, tail = make_refiner().near.copy(), make_refiner().tail
    near[1, :, 0] = 3.0
    refiner = Refiner(near, tail)
    signal = Signal(8, -5.0, 2.0, -1.0)
    silent = Refinement(make_prior(), LIMIT, refiner).update(signal)
    told = Refinement(make_prior(), LIMIT, refiner).update(signal, "word")
    assert told.ends_within(8) > silent.ends_within(8)


def test_extreme_weights_leave_every_number_finite():
    found = refined(make_prior(), make_refiner(1e9, -1e9), 8)
    assert math.isfinite(found.mean())
    assert found.quantile(0.5) >= 9
    late = refined(make_prior(), make_refiner(-1e9, 1e9), 8)
    assert late.ends_within(8) < 1e-3


# -- kept ------------------------------------------------------------------------------------------


def test_a_refiner_comes_back_as_it_was_saved(tmp_path: Path):
    path = tmp_path / "refine.npz"
    make_refiner(0.25, -0.5).save(path)
    assert np.array_equal(Refiner.load(path).near, make_refiner(0.25).near)


def test_foreign_arrays_are_refused_with_a_reason(tmp_path: Path):
    good = make_refiner().arrays()
    for change in (
        {"version": np.array(99)},
        {"near": np.zeros((1, 2))},
        {"tail": np.full((2, 1 + len(signs.NAMES)), np.nan)},
    ):
        with pytest.raises(BadRefiner):
            Refiner.from_arrays({**good, **change})
    with pytest.raises(BadRefiner, match="near"):
        Refiner.from_arrays({"version": good["version"], "tail": good["tail"]})
    path = tmp_path / "junk"
    path.write_bytes(b"PK\x03\x04 not much")
    with pytest.raises(BadRefiner, match="no refiner"):
        Refiner.load(path)


# -- learned ---------------------------------------------------------------------------------------


def make_answer(number: int, rng: np.random.Generator, tells: bool = True) -> Answered:
    """Its last two signals show the end coming; a third are cut at 256 tokens."""
    length = int(np.clip(rng.lognormal(4.6, 0.7), 12, 2000))
    cut, shown = length > 256, min(length, 256)
    signals = tuple(
        Signal(
            g,
            -1.0 + rng.normal(0, 0.3) if tells and length - g < 16 else -8.0 + rng.normal(),
            2.0,
            -1.0,
        )
        for g in range(8, shown + 1, 8)
    )
    return Answered(
        id=str(number),
        sample=0,
        temperature=0.7,
        top_p=0.95,
        max_tokens=256,
        seed=number,
        finish_reason="length" if cut else "stop",
        prompt_tokens=10,
        completion_tokens=shown,
        token_ids=tuple([65] * shown),
        signals=signals,
    )


def make_answers(count: int, seed: int, tells: bool = True) -> list[Answered]:
    rng = np.random.default_rng(seed)
    return [make_answer(number, rng, tells) for number in range(count)]


def of_all(answers: list[Answered]) -> Lengths:
    return fitted([a.completion_tokens for a in answers], [a.censored for a in answers])


def test_signals_that_tell_the_end_are_learned_and_others_are_not():
    learned_from, held = make_answers(200, 1), make_answers(80, 2)
    prior = of_all(learned_from)
    refiner = refinefit.fit(learned_from, [prior] * 200)
    found = refinescore.report([refinescore.moments(refiner, a, prior, prior) for a in held])
    ends = found.ends[0].scores
    assert ends["refined"].auroc > 0.9 > ends["residual"].auroc
    assert ends["refined"].brier < 0.8 * ends["residual"].brier
    mute = make_answers(200, 3, tells=False)
    refiner = refinefit.fit(mute, [of_all(mute)] * 200)
    assert np.abs(refiner.near[:, :, 2:]).max() < 2.0


def test_the_tail_is_learned_from_answers_that_were_cut_too():
    answers = make_answers(200, 4)
    right = of_all(answers)
    wrong = Lengths(np.clip(right.hazards * 3, 0, 0.9))
    refiner = refinefit.fit(answers, [wrong] * 200)
    prior, found = wrong.residual(64), Refinement(wrong, 4096, refiner)
    told = found.update(Signal(64, -8.0, 2.0, -1.0)).quantile(0.5)
    truth = right.residual(64).quantile(0.5)
    assert abs(math.log(told / truth)) < 0.5 * abs(math.log(prior.quantile(0.5) / truth))


def test_an_answer_that_was_cut_tells_nothing_of_what_came_after():
    answer = make_answer(0, np.random.default_rng(0))
    cut = refinefit.rows(
        Answered(
            **{
                **{f: getattr(answer, f) for f in answer.__struct_fields__},
                "finish_reason": "length",
                "completion_tokens": 20,
            }
        ),
        make_prior(),
    )
    assert len(cut.left) == 2  # after 8 and 16 tokens
    known, ended = refinefit.labels(cut, 0)
    assert known.tolist() == [True, False]
    assert not ended.any()


def test_text_between_signals_keeps_characters_that_two_tokens_share():
    answer = make_answer(0, np.random.default_rng(0))
    raw = "好".encode()
    split = Answered(
        **{
            **{f: getattr(answer, f) for f in answer.__struct_fields__},
            "token_ids": tuple([1] * 7 + [2, 3] + [1] * 7),
            "signals": (Signal(8, -1.0, 1.0, -1.0), Signal(16, -1.0, 1.0, -1.0)),
        }
    )
    texts = refinefit.texts_of(split, {1: b"a", 2: raw[:1], 3: raw[1:]})
    assert texts == ["aaaaaaa", "好aaaaaaa"]


def test_too_few_answers_with_signals_are_refused():
    answers = make_answers(20, 5)
    with pytest.raises(refinefit.TooFewSignals, match="20 of 20"):
        refinefit.fit(answers, [make_prior()] * 20)


def test_the_report_counts_every_running_answer_at_each_place():
    answers = make_answers(60, 6)
    prior = of_all(answers)
    found = refinescore.report(
        [refinescore.moments(make_refiner(), a, prior, prior) for a in answers]
    )
    assert found.answers == 60
    kept = msgspec.json.decode(msgspec.json.encode(found), type=refinescore.RefineReport)
    assert kept == found
    assert found.at[0].n == sum(a.completion_tokens > 8 for a in answers)
    assert found.at[-1].n == 0
    assert found.at[0].mae["residual"] == pytest.approx(found.at[0].mae["global"])
    assert sum(error.n for error in found.progress) == sum(
        s.generated < a.completion_tokens for a in answers for s in a.signals
    )
