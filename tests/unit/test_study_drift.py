"""Two tokenizers on the same lines."""

from collections.abc import Iterable

import pytest

from appliance.study import drift


class Chunks:
    """A tokenizer of `size` bytes a token; a lossy one forgets the last byte of a text."""

    n_tokens = 256

    def __init__(self, size: int, lossy: bool = False) -> None:
        self._size, self._lossy = size, lossy

    def tokenize(self, text: str | bytes, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        assert not parse_special
        data = text.encode() if isinstance(text, str) else text
        data = data[:-1] if self._lossy else data
        parts = [data[i : i + self._size] for i in range(0, len(data), self._size)]
        return [int.from_bytes(b"\x01" + part) for part in parts]

    def detokenize(self, tokens: Iterable[int], special: bool = False) -> bytes:
        return b"".join(t.to_bytes(self._size + 1).lstrip(b"\0")[1:] for t in tokens)


TEXTS = {"English": ("abcd", "abcd efgh"), "Chinese": ("杆秤",)}


def test_figures_are_those_of_the_definitions() -> None:
    found = drift.report(("one", "two"), Chunks(1), Chunks(2), TEXTS)
    english, chinese = found.groups
    assert (english.lines, english.bytes, english.characters, english.words) == (2, 13, 13, 3)
    assert (english.a.tokens, english.b.tokens) == (13, 7)
    assert english.b.per_byte == pytest.approx(7 / 13)
    assert english.b.per_word == pytest.approx(7 / 3)
    assert english.ratio == pytest.approx(7 / 13)
    assert english.quantiles[1] == pytest.approx((2 / 4 + 5 / 9) / 2)
    assert english.worst == pytest.approx(5 / 9)
    assert (chinese.words, chinese.characters, chinese.a.per_character) == (2, 2, 3)


def test_budget_under_the_second_model_lets_the_same_text_through() -> None:
    found = drift.report(("one", "two"), Chunks(2), Chunks(1), TEXTS)
    assert found.groups[1].budget == 2 * drift.BUDGET
    same = drift.report(("one", "one"), Chunks(2), Chunks(2), TEXTS)
    assert [group.budget for group in same.groups] == [drift.BUDGET] * 2


def test_tokenizer_that_loses_something_is_named() -> None:
    (group, _) = drift.report(("a", "b"), Chunks(1), Chunks(1, lossy=True), TEXTS).groups
    assert group.a.lossless
    assert not group.b.lossless


@pytest.mark.parametrize(
    ("line", "words"),
    [("one two", 2), ("  one  ", 1), ("杆秤", 2), ("用Python写", 3), ("カメラ", 3), ("...", 1)],
)
def test_word_is_what_space_parts_or_one_character(line: str, words: int) -> None:
    assert drift.words_of(line) == words
