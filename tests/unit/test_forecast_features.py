"""The pipeline: fitted on training prompts alone, the same after storing, finite whatever comes."""

import io
from typing import Any

import numpy as np
import pytest

from appliance.forecast.commontokens import STRENGTH, CommonTokens
from appliance.forecast.embedders import unit
from appliance.forecast.features import SHOWN, Fitted, Outcome, Pipeline, fit
from appliance.forecast.lexical import NAMES as WORDS
from appliance.forecast.neighbours import EMPTY
from appliance.forecast.neighbours import NAMES as NEAR
from appliance.forecast.projection import COMPONENTS, LIMIT, Scaling, principal
from appliance.forecast.question import Question, Turn

DIMENSIONS = 24
TEXTS = ("Why is {} so?", "Write a long essay on {}.", "Is {} big?", "List 5 names of {}.")
LENGTHS = (60, 400, 5, 30)
"""Of the answers to each of TEXTS."""


def asking(text: str) -> Question:
    return Question((Turn("user", text),), tuple(text.encode("utf-8", "replace")))


def questions(count: int) -> list[Question]:
    return [asking(TEXTS[n % 4].format("x" * (n // 4 % 7 + 1))) for n in range(count)]


def embeddings(count: int, seed: int = 1) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(count, DIMENSIONS)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def answers(count: int) -> list[list[Outcome]]:
    return [[Outcome(LENGTHS[n % 4] + n % 3, n % 4 == 1)] * (1 + n % 2) for n in range(count)]


def fitted(count: int = 80, **others: Any) -> Fitted:
    families = np.arange(count) // 2
    made = questions(count)
    return fit(made, embeddings(count), answers(count), families, embedder="e-1", **others)


FITTED = fitted()
PIPELINE = FITTED.pipeline


def stored(pipeline: Pipeline) -> dict[str, np.ndarray]:
    """Through a file, without pickles."""
    file = io.BytesIO()
    np.savez(file, **pipeline.arrays())
    file.seek(0)
    return dict(np.load(file, allow_pickle=False))


def test_rows_are_words_components_and_neighbours_in_that_order() -> None:
    expected = (*WORDS, *(f"component_{n}" for n in range(SHOWN)), *NEAR)
    assert PIPELINE.names == expected
    assert PIPELINE.width == len(expected) == FITTED.matrix.shape[1]
    assert FITTED.matrix.shape[0] == 80


def test_training_rows_are_scaled() -> None:
    matrix = FITTED.matrix.astype(np.float64)
    varies = matrix.std(axis=0) > 0
    assert varies.sum() > 25
    np.testing.assert_allclose(matrix.mean(axis=0), 0, atol=1e-2)
    np.testing.assert_allclose(matrix.std(axis=0)[varies], 1, atol=0.1)


def test_what_never_varied_in_training_says_nothing_later() -> None:
    at = PIPELINE.names.index("temperature")
    question = Question((Turn("user", "x"),), (1,), temperature=1.9)
    row = PIPELINE.row(question, embeddings(1)[0], FITTED.neighbours)
    assert row.values[at] == 0


def test_neighbours_tell_the_length() -> None:
    at = PIPELINE.names.index("near_median")
    fresh = [asking(text.format("bread")) for text in TEXTS]
    matrix = PIPELINE.matrix(fresh, embeddings(4, seed=9), FITTED.neighbours)
    why, essay, yes_no, names = matrix[:, at]
    assert yes_no < names < why < essay


def test_a_training_prompt_does_not_see_its_own_family() -> None:
    count = 40
    made, families = [asking("the very same words")] * count, np.zeros(count, np.int64)
    found = fit(made, embeddings(count), answers(count), families, embedder="e-1")
    assert len(found.neighbours) == count + count // 2
    near = found.pipeline.names.index("near_mean")
    assert (found.matrix[:, near:] == 0).all(), "all are EMPTY, so nothing varies"
    row = found.pipeline.row(made[0], embeddings(1)[0], found.neighbours, exclude=0)
    np.testing.assert_array_equal(found.pipeline.others.mean[-len(NEAR) :], EMPTY)
    assert np.isfinite(row.values).all()


def test_fitting_sees_nothing_but_its_arguments_so_it_repeats() -> None:
    again = fitted()
    np.testing.assert_array_equal(again.matrix, FITTED.matrix)


def test_a_pipeline_is_the_same_after_storing() -> None:
    common = CommonTokens.of(q.prompt for q in questions(80))
    found = fitted(common=common)
    again = Pipeline.from_arrays(stored(found.pipeline))
    question, embedding = asking("Why in 3 words?"), embeddings(1, seed=4)[0]
    ours = found.pipeline.row(question, embedding, found.neighbours)
    theirs = again.row(question, embedding, found.neighbours)
    np.testing.assert_array_equal(ours.values, theirs.values)
    np.testing.assert_array_equal(ours.place, theirs.place)
    assert again.embedder == "e-1"
    np.testing.assert_array_equal(again.common.weights([1, 87]), common.weights([1, 87]))


def test_a_place_is_what_its_neighbours_take() -> None:
    question, embedding = asking("Why?"), embeddings(1)[0]
    near = PIPELINE.neighbourhood()
    place = PIPELINE.place(question, embedding)
    near.add(place, 3.0)
    assert len(near) == 1
    assert np.linalg.norm(place) == pytest.approx(1, abs=1e-5)
    row = PIPELINE.row(question, embedding, near)
    np.testing.assert_array_equal(row.place, place)


HOSTILE = {
    "empty": "",
    "surrogates": "\ud800" * 50,
    "emoji": "😀\u200b" * 9999,
    "unknown": "ཨོཾ་མ་ཎི",
    "long": "word " * 100_000,
    "zero": "\0",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -np.inf, 3e38])
def test_rows_are_finite_whatever_comes(text: str, value: float) -> None:
    embedding = np.full(DIMENSIONS, value, dtype=np.float32)
    row = PIPELINE.row(asking(text), embedding, FITTED.neighbours)
    assert row.values.dtype == row.place.dtype == np.float32
    assert row.values.shape == (PIPELINE.width,)
    assert np.isfinite(row.values).all()
    assert np.isfinite(row.place).all()
    assert np.abs(row.values).max() <= LIMIT


def test_a_prompt_of_100_000_tokens_is_read_like_any_other() -> None:
    question = Question((Turn("user", "Why? " * 100_000),), tuple(range(100_000)))
    row = PIPELINE.row(question, embeddings(1)[0], PIPELINE.neighbourhood())
    assert np.isfinite(row.values).all()


def test_without_an_embedding_the_words_must_do() -> None:
    count = 40
    none = np.zeros((count, 0), np.float32)
    found = fit(questions(count), none, answers(count), np.arange(count), embedder="none")
    assert found.pipeline.width == len(WORDS) + len(NEAR)
    assert np.isfinite(found.matrix).all()
    again = Pipeline.from_arrays(stored(found.pipeline))
    assert np.isfinite(again.row(asking("x"), none[0], found.neighbours).values).all()


@pytest.mark.parametrize("count", [1, 2, 10])
def test_few_prompts_make_a_pipeline_too(count: int) -> None:
    found = fitted(count)
    assert np.isfinite(found.matrix).all()
    assert Pipeline.from_arrays(stored(found.pipeline)).width == found.pipeline.width


def test_training_embeddings_that_are_not_finite_do_no_harm() -> None:
    bad = embeddings(40)
    bad[3] = np.nan
    found = fit(questions(40), bad, answers(40), np.arange(40), embedder="e-1")
    assert np.isfinite(found.matrix).all()
    assert Pipeline.from_arrays(found.pipeline.arrays()).embedder == "e-1"


def test_prompts_and_answers_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="differ in number"):
        fit(questions(3), embeddings(3), answers(2), np.arange(3), embedder="e-1")
    with pytest.raises(ValueError, match="differ in number"):
        fit([], embeddings(0), [], np.arange(0), embedder="e-1")


def damaged() -> dict[str, dict[str, np.ndarray]]:
    good = PIPELINE.arrays()
    return {
        "lacks weights": {name: a for name, a in good.items() if name != "weights"},
        "version 99": {**good, "version": np.array(99)},
        "version": {**good, "version": np.array("one")},
        "centre is damaged": {**good, "centre": np.full(DIMENSIONS, np.nan, np.float32)},
        "components is damaged": {**good, "components": good["components"][0]},
        "others_mean is damaged": {**good, "others_mean": good["others_mean"].astype(np.float64)},
        "do not fit together": {**good, "components": good["components"][:, :5]},
        "fit together": {**good, "weights": good["weights"][:3]},
        "common_ids is damaged": {**good, "common_ids": np.array([2, 2], np.int32)},
        "common tokens": {**good, "common_ids": np.array([2, 3], np.int32)},
    }


@pytest.mark.parametrize("says", damaged())
def test_damaged_arrays_are_refused_by_name(says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Pipeline.from_arrays(damaged()[says])


def test_common_tokens_count_little_and_unseen_ones_fully() -> None:
    common = CommonTokens.of([(1, 2, 2), (1, 3), (1,), (1, 9)])
    everywhere, half, unseen = common.weights([1, 3, 4])
    assert everywhere == pytest.approx(1 / (1 + STRENGTH))
    assert half == pytest.approx(1 / (1 + STRENGTH / 4))
    assert unseen == 1
    assert CommonTokens().weights([5, 6]).tolist() == [1, 1]
    assert len(common.weights([])) == 0


def test_components_are_the_directions_of_most_variance() -> None:
    rng = np.random.default_rng(2)
    strong = rng.normal(size=(200, 1)) * np.array([[3.0, 0, 4.0]])
    data = (strong + rng.normal(size=(200, 3)) * 0.01 + 7).astype(np.float32)
    centre, components = principal(data)
    np.testing.assert_allclose(centre, data.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(components[0], [0.6, 0, 0.8], atol=1e-2)
    np.testing.assert_allclose(components @ components.T, np.eye(3), atol=1e-4)
    assert len(principal(embeddings(300))[1]) == min(DIMENSIONS, COMPONENTS)


def test_scaling_limits_what_is_far_out() -> None:
    scaling = Scaling.of(np.array([[0.0, 5], [2.0, 5]], dtype=np.float32))
    found = scaling.scaled(np.array([1e9, 7], dtype=np.float32))
    assert found.tolist() == [LIMIT, 0]
    assert unit(found).tolist() == [1, 0]
