"""Two models' tokenizers compared, and what the difference means."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance import models
from appliance.commands.modeltext import drift
from appliance.gguf import BadModel
from appliance.gguf.tokenizer import read_tokenizer
from appliance.prepare.retokenizing import SAMPLES, Change, compare, drift_of
from tests.unit.model_parts import WORDS, gguf_bytes, pairs, tensors, write_mite
from tests.unit.test_gguf import STR, U32


def write_words(path: Path, words: list[str]) -> Path:
    path.write_bytes(gguf_bytes(pairs(words), tensors(3 + 256 + len(words))))
    return path


def test_a_tokenizer_is_read_with_its_special_tokens(tmp_path: Path) -> None:
    found = read_tokenizer(write_mite(tmp_path / "mite.gguf"))
    assert (found.kind, found.pre, found.size) == ("llama", "", 267)
    assert found.specials == {"bos": 1, "eos": 2, "unknown": 0}
    assert found.controls == {b"<s>", b"</s>"}
    assert found.flags == {"add_bos_token": False}
    assert found.text_of(2) == "</s>"
    assert found.text_of(10_000) == "?"


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(BadModel, match=rf"^{tmp_path}/a\.gguf: the file is truncated"):
        read_tokenizer(tmp_path / "a.gguf")


def test_equal_tokenizers_differ_in_nothing(tmp_path: Path) -> None:
    one = read_tokenizer(write_mite(tmp_path / "a.gguf"))
    two = read_tokenizer(write_mite(tmp_path / "b.gguf", general__name=(STR, "Other")))
    assert compare(one, two) == ()


def test_every_fact_that_differs_is_told(tmp_path: Path) -> None:
    old = read_tokenizer(write_mite(tmp_path / "a.gguf"))
    swapped = read_tokenizer(write_words(tmp_path / "b.gguf", [*WORDS[:-2], WORDS[-1], WORDS[-2]]))
    assert [change.what for change in compare(old, swapped)] == ["vocabulary"]
    new = read_tokenizer(
        write_mite(
            tmp_path / "c.gguf",
            tokenizer__ggml__pre=(STR, "qwen2"),
            tokenizer__ggml__eos_token_id=(U32, 1),
            tokenizer__ggml__add_bos_token=None,
        )
    )
    assert compare(old, new) == (
        Change("pre-tokenizer", "not said", "qwen2"),
        Change("eos", "</s> (2)", "<s> (1)"),
        Change("add_bos_token", "no", "not said"),
    )


async def test_the_same_tokenizer_changes_nothing_for_clients(tmp_path: Path) -> None:
    one, two = write_mite(tmp_path / "a.gguf"), write_mite(tmp_path / "b.gguf")
    found = await drift_of(one, two)
    assert found.same
    assert all(count.before == count.after for count in found.counts)
    assert "budgets, quotas and prices keep their meaning" in drift(found)


async def test_another_tokenizer_is_counted_on_texts_by_llama_cpp_itself(tmp_path: Path) -> None:
    found = await drift_of(models.packaged_model(), write_mite(tmp_path / "mite.gguf"))
    assert not found.same
    counts = {count.text: count for count in found.counts}
    assert counts.keys() == SAMPLES.keys()
    # The mite knows hardly more than single bytes.
    assert counts["English"].after > 2 * counts["English"].before
    assert all(count.after <= count.bytes + 1 for count in found.counts)
    text = drift(found)
    assert "English" in text
    assert "Run `steelyard calibrate`" in text
    assert "look at the quotas" in text
    assert {"tokenizer", "tokens", "bos"} <= {change.what for change in found.changes}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


BODY = gguf_bytes(pairs(), tensors()[:1])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), max_size=8))
def test_flipped_bytes_give_a_tokenizer_or_a_bad_model(
    folder: Path, flips: list[tuple[int, int]]
) -> None:
    body = bytearray(BODY)
    for at, byte in flips:
        body[at] = byte
    (folder / "flipped.gguf").write_bytes(body)
    with contextlib.suppress(BadModel):
        found = read_tokenizer(folder / "flipped.gguf")
        assert compare(found, found) == ()
