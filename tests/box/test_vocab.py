"""The packaged model's vocabulary, as engine and prepare process see it."""

import pytest

from appliance import models
from appliance.config import ModelConfig
from appliance.engine.vocab import Vocab, VocabError


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab.open(models.locate(ModelConfig()))


@pytest.mark.parametrize("text", ["", "hello", "Grüße, 世界 🎉", "a\0b", "<|im_end|>", " \n\t "])
@pytest.mark.parametrize("parse_special", [True, False])
def test_text_survives_the_round_trip(vocab: Vocab, text: str, parse_special: bool) -> None:
    ids = vocab.tokenize(text, False, parse_special)
    assert vocab.detokenize(ids, special=True).decode() == text


def test_control_tokens_arise_and_show_only_on_request(vocab: Vocab) -> None:
    (end,) = vocab.tokenize("<|im_end|>", False, True)
    assert vocab.is_control(end)
    assert vocab.is_eog(end)
    assert vocab.piece(end) == b""
    assert vocab.piece(end, special=True) == b"<|im_end|>"
    assert end not in vocab.tokenize("<|im_end|>", False, False)
    assert "<|im_end|>" in vocab.control_texts


def test_text_longer_than_the_first_guess_is_whole(vocab: Vocab) -> None:
    text = "🎉" * 1000
    assert vocab.detokenize(vocab.tokenize(text, False, False)).decode() == text


def test_grammar_tokenizer_knows_every_token_and_end(vocab: Vocab) -> None:
    tokenizer = vocab.lltokenizer()
    assert tokenizer.vocab_size == vocab.n_tokens
    assert set(tokenizer.eos_tokens) == set(vocab.eogs)
    assert tokenizer.eos_token == vocab.eos


def test_file_that_is_no_model_is_refused(tmp_path: pytest.TempPathFactory) -> None:
    with pytest.raises(VocabError):
        Vocab.open(f"{tmp_path}/none.gguf")
