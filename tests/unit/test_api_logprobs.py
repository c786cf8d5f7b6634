"""Log-probabilities that join to the text."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.answers import Logprob, encode, timings_of, usage_of
from appliance.api.logprobs import Aligner, Pieces, legacy
from appliance.engine.reports import Counts, TokenLogprob
from tests.unit.api_box import BytePreparer, counts


def entry(piece: bytes) -> Logprob:
    return Logprob(0, piece.decode("utf-8", "replace"), -1.0, list(piece), [])


def joined(entries: list[Logprob]) -> bytes:
    return b"".join(bytes(e.bytes) for e in entries)


@given(st.text(max_size=20), st.data())
def test_any_cut_of_a_text_gives_each_token_once(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)))) | {0, len(raw)})
    pieces = [raw[a:b] for a, b in itertools.pairwise(cuts) if a < b]
    aligner = Aligner()
    shown: list[Logprob] = []
    sent = b""
    lag = data.draw(st.integers(0, 4))
    for place, piece in enumerate(pieces):
        settled = b"".join(pieces[: max(0, place + 1 - lag)]).decode("utf-8", "ignore").encode()
        shown += aligner.feed(settled[len(sent) :].decode(), [entry(piece)])
        sent = settled
        assert raw.startswith(joined(shown))
    shown += aligner.feed(raw[len(sent) :].decode(), [])
    shown += aligner.finish()
    assert joined(shown) == raw
    assert len(shown) == len(pieces)


def test_tokens_that_never_show_have_no_logprobs() -> None:
    aligner = Aligner()
    shown = aligner.feed("Hello", [entry(b"Hel"), entry(b"lo"), entry(b"</s>")])
    assert joined(shown) == b"Hello"
    assert aligner.finish() == []


def test_a_token_that_a_stop_string_cuts_is_shown() -> None:
    aligner = Aligner()
    assert aligner.feed("a", [entry(b"a"), entry(b"b END")]) != []
    assert aligner.feed("b", []) == []
    assert joined(aligner.finish()) == b"b END"


def test_a_hidden_token_in_the_middle_does_not_shift_the_others() -> None:
    shown = Aligner().feed("ab", [entry(b"a"), entry(b"<|x|>"), entry(b"b")])
    assert joined(shown) == b"ab"


def test_bytes_that_are_no_text_are_kept() -> None:
    shown = Aligner().feed("\ufffd!", [entry(b"\xff"), entry(b"!")])
    assert [e.bytes for e in shown] == [[255], [33]]


async def test_pieces_are_asked_for_once() -> None:
    asked = 0

    class Counting(BytePreparer):
        async def vocabulary(self) -> tuple[bytes, ...]:
            nonlocal asked
            asked += 1
            return await super().vocabulary()

    pieces = Pieces(Counting())  # type: ignore[arg-type]
    await pieces.load()
    await pieces.load()
    assert asked == 1
    found = pieces.logprob(TokenLogprob(65, float("-inf"), ((66, -2.0),)))
    assert (found.token, found.logprob, found.top_logprobs[0].token) == ("A", -9999.0, "B")
    assert b"null" not in encode(found)


def test_the_old_shape_counts_characters() -> None:
    found = legacy([entry("é".encode()), entry(b"ab"), entry(b"c")], 10)
    assert found.text_offset == [10, 11, 13]


def test_usage_counts_prompts_once_and_all_choices() -> None:
    first = [counts(10, 5, cached=4, hidden=1), counts(10, 7, cached=4, hidden=2)]
    usage = usage_of([first, [counts(3, 1)]])
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (13, 13, 26)
    assert usage.prompt_tokens_details.cached_tokens == 4
    assert usage.completion_tokens_details.hidden_tokens == 4


def test_rates_leave_the_first_token_out_and_never_divide_by_zero() -> None:
    timings = timings_of([[Counts(10, 4, 11, 1, 8, 6, 30.0, 500.0, 2.0, 3, 6)]])
    assert (timings.cache_n, timings.prompt_n, timings.predicted_n) == (4, 6, 11)
    assert timings.prompt_per_second == pytest.approx(200)
    assert timings.predicted_per_second == pytest.approx(20)
    assert (timings.draft_n, timings.draft_n_accepted, timings.parallel) == (8, 6, 3)
    empty = timings_of([[Counts(4, 4, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0)]])
    assert empty.predicted_per_second == 0
    assert b"draft_n" not in encode(empty)


def test_prompt_that_was_not_computed_is_not_told_as_if_it_was() -> None:
    nothing = timings_of([[Counts(10, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0)]])
    assert (nothing.cache_n, nothing.prompt_n) == (0, 0)
    shared = counts(10, 5, cached=4)
    again = Counts(10, 9, 5, 0, 0, 0, 1.0, 1.0, 1.0, 2, 13, 1)
    assert timings_of([[shared, again]]).prompt_n == 6
