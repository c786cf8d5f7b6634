"""Prompts that are kept as token ids, as words again."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.forecast.encoder import EncoderError
from appliance.forecast.question import Turn
from appliance.forecast.spelling import Spelling, turns_of
from appliance.gguf.vocabulary import Vocabulary
from tests.unit.test_gguf import ARR, I32, PAIRS, STR, make_gguf

TEXT, CONTROL, BYTE = 1, 3, 6
CHAT = (
    ("<|im_start|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("user", TEXT),
    ("assistant", TEXT),
    ("system", TEXT),
    ("Ċ", TEXT),
    ("Hello", TEXT),
    ("Ġworld", TEXT),
    ("æĹ", TEXT),
    ("¥", TEXT),
)


def spelling(tokens: Any = CHAT, kind: str = "gpt2") -> Spelling:
    texts = tuple(text.encode() for text, _ in tokens)
    return Spelling(Vocabulary(kind, texts, tuple(of for _, of in tokens)))


def test_chat_is_parted_into_its_turns() -> None:
    ids = [0, 4, 5, 6, 1, 5, 0, 2, 5, 6, 7, 1, 5, 0, 3, 5]
    assert spelling().turns(ids) == (Turn("system", "Hello"), Turn("user", "Hello world"))


def test_character_of_several_tokens_is_put_together() -> None:
    assert spelling().turns([8, 9]) == (Turn("user", "日"),)


def test_plain_completion_is_one_turn_of_the_user() -> None:
    assert spelling().turns([6, 7]) == (Turn("user", "Hello world"),)


def test_sentence_piece_spaces_and_bytes_are_read() -> None:
    tokens = (("\u2581a", TEXT), ("<0xE6>", BYTE), ("<0x97>", BYTE), ("<0xA5>", BYTE))
    assert spelling(tokens, "llama").turns([0, 1, 2, 3]) == (Turn("user", "a日"),)


def test_headers_that_control_tokens_enclose_are_read() -> None:
    parts = ["", "user", "\n\nHi", "assistant", "\n\n"]
    assert turns_of(parts) == (Turn("user", "Hi"),)


@given(st.lists(st.integers(-5, 1 << 40), max_size=50))
def test_any_ids_give_turns_or_none(ids: list[int]) -> None:
    assert all(turn.text for turn in spelling().turns(ids))


def test_vocabulary_is_read_from_a_model_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    changes = {
        "tokenizer.ggml.tokens": (ARR, (STR, ["<s>", "</s>", "a", "Ġb"])),
        "tokenizer.ggml.token_type": (ARR, (I32, [CONTROL, CONTROL, TEXT, TEXT])),
    }
    path.write_bytes(make_gguf(PAIRS | changes))
    assert Spelling.of(path).turns([0, 2, 3, 1]) == (Turn("user", "a b"),)


@pytest.mark.parametrize("data", [b"", b"GGUF", b"PK", b"GGUF" + b"\xff" * 64])
def test_file_that_is_no_model_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(EncoderError, match="tokens cannot be read"):
        Spelling.of(tmp_path / "m")
    with pytest.raises(EncoderError, match="tokens cannot be read"):
        Spelling.of(tmp_path / "none")


@given(st.integers(4, 600), st.integers(0, 255))
def test_damaged_file_raises_only_our_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    data = bytearray(make_gguf(PAIRS))
    data[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    for damaged in (bytes(data), bytes(data[:at])):
        path.write_bytes(damaged)
        with suppress(EncoderError):  # any other exception fails here
            Spelling.of(path)
