"""Vectors of prompts: of length 1, from a bounded part, and refusals that say why."""

from pathlib import Path

import numpy as np
import pytest

from appliance.forecast.commontokens import CommonTokens
from appliance.forecast.embedders import (
    Embedder,
    bounded,
    embed_all,
    embedder,
    unit,
    weighing,
)
from appliance.forecast.encoder import DIMENSIONS, Encoder, EncoderError
from appliance.forecast.question import Question, Turn
from tests.unit.test_gguf import PAIRS, make_gguf

ROWS = np.random.default_rng(5).normal(0, 1, (64, 32)).astype(np.float32)
CENTRE = ROWS.mean(axis=0)
ENCODER = Encoder()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file whose token table is ROWS."""
    path = tmp_path / "m.gguf"
    raw = ROWS.tobytes()
    whole = make_gguf(PAIRS, [("token_embd.weight", (32, 64), 0, 0, len(raw))])
    path.write_bytes(whole[: len(whole) - len(raw)] + raw)
    return path


def asking(text: str, prompt: tuple[int, ...] = (1,)) -> Question:
    return Question((Turn("system", "Be kind."), Turn("user", text)), prompt)


def one(source: Embedder, question: Question) -> np.ndarray:
    """The vector; `source` is closed."""
    found = source.embed(question)
    source.close()
    assert found.dtype == np.float32
    assert found.shape == (source.dimensions,)
    return found


@pytest.mark.parametrize("name", ["none", "tokens-4-4", "minilm-16-16"])
def test_an_embedder_keeps_the_name_it_was_asked_by(model: Path, name: str) -> None:
    source = embedder(name, model, ENCODER)
    source.close()
    assert source.name == name


def test_token_mean_is_the_mean_of_the_models_rows_about_their_centre(model: Path) -> None:
    found = one(embedder("tokens-4-4", model, ENCODER), asking("x", (3, 5, 5)))
    mean = (ROWS[3] + 2 * ROWS[5]) / 3 - CENTRE
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=2e-3)


def test_token_mean_reads_head_and_tail_alone(model: Path) -> None:
    prompt = (1, 2, *(63,) * 100_000, 3)
    found = one(embedder("tokens-2-1", model, ENCODER), asking("x", prompt))
    np.testing.assert_allclose(found, unit(ROWS[[1, 2, 3]].mean(axis=0) - CENTRE), atol=2e-3)


def test_common_tokens_count_little_in_the_mean(model: Path) -> None:
    source = embedder("tokens-4-4", model, ENCODER)
    weighed = weighing(source, CommonTokens.of([(1, 2), (1, 3), (1, 4)]))
    assert weighed.name == source.name
    rare = unit(ROWS[9] - CENTRE)
    assert weighed.embed(asking("x", (1, 1, 9))) @ rare > 0.99
    assert source.embed(asking("x", (1, 1, 9))) @ rare < 0.9
    source.close()
    nothing = embedder("none", model, ENCODER)
    assert weighing(nothing, CommonTokens()) is nothing


def test_nothing_to_read_is_zeros(model: Path) -> None:
    assert not one(embedder("tokens-4-4", model, ENCODER), asking("x", ())).any()
    assert not one(embedder("tokens-4-4", model, ENCODER), asking("x", (-1, 64, 10**12))).any()
    assert not one(embedder("minilm-8-8", model, ENCODER), asking("")).any()
    assert not one(embedder("minilm-8-8", model, ENCODER), Question((), ())).any()


def test_the_encoder_reads_head_and_tail_of_what_the_user_said_last(model: Path) -> None:
    source = embedder("minilm-8-8", model, ENCODER)
    short = source.embed(asking("Why is the sky blue?"))
    expected = ENCODER.embed(["Why is the sky blue?"]).vectors[0]
    np.testing.assert_allclose(short, expected, atol=1e-5)
    long = "Why is the sky blue? " + "blah " * 100_000 + "Tell me in three words now."
    other = "Why is the sky blue? " + "so " * 100_000 + "Tell me in three words now."
    assert source.embed(asking(long)) @ short > 0.4
    assert source.embed(asking(long)) @ source.embed(asking(other)) > 0.8
    assert np.linalg.norm(source.embed(asking(long))) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("text", ["\ud800", "😀\u200b" * 5000, "ཨོཾ་མ་ཎི", "\0" * 100, " " * 9999])
def test_any_text_gives_a_vector(model: Path, text: str) -> None:
    found = one(embedder("minilm-16-16", model, ENCODER), asking(text))
    assert found.shape == (DIMENSIONS,)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", ["", "bert-1-1", "tokens", "tokens-1", "tokens-1000-1", "none-1"])
def test_an_unknown_name_is_refused(model: Path, name: str) -> None:
    with pytest.raises(EncoderError, match="no embedder is called"):
        embedder(name, model, ENCODER)


@pytest.mark.parametrize("name", ["minilm-200-200", "minilm-0-0"])
def test_more_than_the_encoder_reads_is_refused(model: Path, name: str) -> None:
    with pytest.raises(EncoderError, match="the encoder reads"):
        embedder(name, model, ENCODER)


def test_many_questions_make_a_matrix(model: Path) -> None:
    source = embedder("tokens-4-4", model, ENCODER)
    assert embed_all(source, []).shape == (0, 32)
    assert embed_all(source, [asking("x", (1,)), asking("y", (2,))]).shape == (2, 32)
    source.close()
    assert embed_all(embedder("none", model, ENCODER), [asking("x")]).shape == (1, 0)


def test_ends_are_never_taken_twice() -> None:
    assert tuple(bounded((1, 2, 3), 2, 2)) == (1, 2, 3)
    assert bounded((1, 2, 3, 4, 5), 2, 2) == (1, 2, 4, 5)
    assert bounded((1, 2, 3), 2, 0) == (1, 2)
    assert bounded((1, 2, 3), 0, 2) == (2, 3)


def test_a_vector_that_has_no_length_becomes_zeros() -> None:
    for values in ([0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]):
        assert not unit(np.array(values, dtype=np.float32)).any()
