"""From token pieces to text: whole characters, exact stops, every hidden token counted."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.detokenize import TextStream

LETTERS = "abÄ€🎉"
texts = st.text(LETTERS, max_size=20)
stops = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3).map(tuple)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[bytes]:
    """A text in pieces that respect no character; now and then one is empty."""
    data = draw(texts).encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in pairwise([0, *cuts, len(data)])]


def stream(pieces: list[bytes], stop: tuple[str, ...]) -> tuple[list[str], str, int, int]:
    """What comes out, the stop word, hidden tokens, and how many pieces were read."""
    made = TextStream(stop)
    shown = []
    for count, piece in enumerate(pieces, 1):
        fed = made.feed(piece)
        shown.append(fed.text)
        if fed.stop_word:
            return shown, fed.stop_word, fed.hidden, count
    return [*shown, made.flush()], "", 0, len(pieces)


def earliest(text: str, stop: tuple[str, ...]) -> int:
    """Where the earliest stop string of the text starts; -1 without one."""
    return min((at for word in stop if (at := text.find(word)) >= 0), default=-1)


@given(cut_texts(), stops)
def test_output_is_the_text_up_to_the_earliest_stop(
    pieces: list[bytes], stop: tuple[str, ...]
) -> None:
    shown, word, _, count = stream(pieces, stop)
    joined = "".join(shown)
    read = b"".join(pieces[:count]).decode("utf-8", "ignore")
    assert not any(word in joined for word in stop)
    if not word:
        assert joined == read == b"".join(pieces).decode()
        return
    at = earliest(read, stop)
    assert joined == read[:at]
    assert read[at:].startswith(word)
    before = b"".join(pieces[: count - 1]).decode("utf-8", "ignore")
    assert earliest(before, stop) == -1, "an earlier piece had completed a stop string"


@given(cut_texts(), st.text(LETTERS, min_size=1, max_size=4))
def test_single_stop_cuts_alike_however_the_text_arrives(pieces: list[bytes], word: str) -> None:
    text = b"".join(pieces).decode()
    shown, found, _, _ = stream(pieces, (word,))
    assert "".join(shown) == text.split(word)[0]
    assert bool(found) == (word in text)


@given(cut_texts(), stops)
def test_hidden_tokens_are_those_that_show_no_character(
    pieces: list[bytes], stop: tuple[str, ...]
) -> None:
    pieces = [piece for piece in pieces if piece]
    shown, word, hidden, count = stream(pieces, stop)
    if not word:
        assert hidden == 0
        return
    bytes_shown = len("".join(shown).encode())
    starts = [len(b"".join(pieces[:i])) for i in range(count)]
    assert hidden == sum(1 for start in starts if start >= bytes_shown)


@given(cut_texts())
def test_without_stops_nothing_complete_is_held_back(pieces: list[bytes]) -> None:
    made = TextStream()
    out = ""
    for count, piece in enumerate(pieces, 1):
        out += made.feed(piece).text
        assert out == b"".join(pieces[:count]).decode("utf-8", "ignore")
    assert made.flush() == ""


@given(st.lists(st.binary(max_size=5), max_size=8), stops)
def test_any_bytes_come_out_as_text(pieces: list[bytes], stop: tuple[str, ...]) -> None:
    shown, word, _, _ = stream(pieces, stop)
    joined = "".join(shown)
    assert not any(word in joined for word in stop)
    if not word:
        assert joined == b"".join(pieces).decode("utf-8", "replace")


def test_possible_beginning_of_a_stop_is_held_until_decided() -> None:
    made = TextStream(("STOP",))
    assert made.feed(b"a ST").text == "a "
    assert made.feed(b"A").text == "STA"
    assert made.feed(b"ST").text == ""
    assert made.flush() == "ST"


def test_token_of_which_a_part_shows_is_not_hidden() -> None:
    made = TextStream(("bc",))
    assert made.feed(b"ab").text == "a"
    fed = made.feed(b"c")
    assert (fed.stop_word, fed.hidden) == ("bc", 1)


def test_every_token_of_a_character_in_a_stop_string_is_hidden() -> None:
    made = TextStream(("🎉",))
    for byte in "🎉".encode()[:-1]:
        assert made.feed(bytes([byte])).stop_word == ""
    assert made.feed("🎉".encode()[-1:]).hidden == 4


def test_text_after_the_stop_in_the_same_token_is_dropped() -> None:
    fed = TextStream(("\n",)).feed("Grüße\nmehr".encode())
    assert (fed.text, fed.stop_word, fed.hidden) == ("Grüße", "\n", 0)


@pytest.mark.parametrize("stop", [("ab", "abc"), ("abc", "ab")])
def test_longest_of_stops_that_start_together_is_named(stop: tuple[str, ...]) -> None:
    assert TextStream(stop).feed(b"xabcx").stop_word == "abc"


def test_empty_stop_string_is_none() -> None:
    assert TextStream(("",)).feed(b"abc").text == "abc"


def test_incomplete_character_at_the_end_becomes_a_replacement() -> None:
    made = TextStream()
    assert made.feed("é".encode()[:1]).text == ""
    assert made.flush() == "\ufffd"
