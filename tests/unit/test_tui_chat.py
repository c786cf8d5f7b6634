"""Screen 8: typing, sending, what comes back, and what others' text cannot do."""

import json
from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.ledger.verify import token_digest
from tests.unit.chat_screen_parts import KEYS, TEXTS, answered, come, delta, seen, sent, typed
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.conversation import Exchange, digest, inert, row_of
from tui.lines import text_of
from tui.screen import Query, Stream, Tell
from tui.screens.chat import WHOAMI, Chat
from tui.view import View

EVIL = "\x1b[31mred\x07 \u202egnp.exe [bold]x[/bold] 称重"


# -- drawing -------------------------------------------------------------------------------------


@given(
    TEXTS,
    st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from((None, "why", EVIL))), max_size=4),
    st.lists(KEYS, max_size=30),
    st.integers(60, 160),
    st.integers(16, 50),
    st.sampled_from(("en", "zh")),
    st.sampled_from(("normal", "lost")),
)
def test_every_row_is_exact_whatever_is_typed_and_answered(
    name: str,
    said: list[tuple[str, str, str | None]],
    pressed: list[str],
    width: int,
    height: int,
    lang: str,
    kind: str,
) -> None:
    screen, shown = Chat(), seen(kind, lang=lang, width=width, height=height)
    screen.receive(WHOAMI, {"key_name": name, "scopes": [name]}, None)
    for prompt, answer, error in said:
        exchange = Exchange(prompt, id=name)
        screen.exchanges.append(exchange)
        screen._open = True
        screen.streamed(json.dumps({"choices": [{"delta": {"content": answer}}]}), None)
        exact(screen, shown)
        screen.streamed(None, error)
    for key in pressed:
        screen.press(key, shown)
        exact(screen, shown)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_looks_as_it_did_before_anything_was_asked(lang: str) -> None:
    agree(f"chat-empty-{lang}", printed(Chat(), seen("empty", lang=lang)))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", ["normal", "overload", "degraded", "lost"])
def test_looks_as_it_did(kind: str, lang: str) -> None:
    screen = Chat()
    screen.receive(WHOAMI, {"key_name": "alice", "scopes": ["admin"]}, None)
    sent(screen, "List three uses\nof a steelyard 杆秤.")
    answered(screen, "It weighs goods, and shows \x1b[31m as text.\n\n[bold]x[/bold]")
    screen.receive(Query("/admin/requests/chatcmpl-1", 1.0), {"entries": [{"seq": 48214}]}, None)
    sent(screen, "And in Chinese?")
    if kind == "overload":
        screen.streamed(None, "the queue is full: try again in 3 s [queue_full]")
    elif kind == "degraded":
        delta(screen, "杆秤是", 31)
        come(screen, error={"message": "the engine crashed", "code": "engine_crashed"})
    else:
        delta(screen, "杆秤是", 31)
    agree(f"chat-{kind}-{lang}", printed(screen, seen(kind, lang=lang)))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_form_looks_as_it_did(lang: str) -> None:
    screen = Chat()
    screen.press("E", seen())
    screen.press("tab", seen())
    typed(screen, "none")
    screen.press("enter", seen())
    agree(f"chat-form-{lang}", printed(screen, seen(lang=lang)))


def test_an_answer_shows_as_text_and_never_acts() -> None:
    screen = Chat()
    sent(screen, "x")
    delta(screen, EVIL, 1)
    text = printed(screen, seen())
    assert r"\x1b[31mred\x07 \u202egnp.exe [bold]x[/bold] 称重" in text


def test_a_long_conversation_scrolls_and_stands_still_while_read() -> None:
    screen = Chat()
    sent(screen, "x")
    for at in range(100):
        delta(screen, f"line {at}\n", at)
    assert "line 99" in printed(screen, seen())
    screen.press("home", seen())
    first = printed(screen, seen()).splitlines()[:15]
    assert "line 0" in first[1]
    delta(screen, "line 100\n", 100)
    assert printed(screen, seen()).splitlines()[:15] == first
    screen.press("end", seen())
    assert "line 100" in printed(screen, seen())


def test_what_is_drawn_once_is_not_laid_out_again() -> None:
    screen = Chat()
    sent(screen, "x")
    answered(screen)
    shown = seen()
    assert (
        screen._talk.draw(screen.exchanges, shown)[0]
        is screen._talk.draw(screen.exchanges, shown)[0]
    )


# -- asking --------------------------------------------------------------------------------------


def test_enter_types_and_enter_sends() -> None:
    screen = Chat()
    assert not screen.typing
    stream = sent(screen, "What is 称重?\nTell me.")
    assert stream.path == "/v1/chat/completions"
    assert stream.body == {
        "messages": [{"role": "user", "content": "What is 称重?\nTell me."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_progress": True,
    }
    assert not screen.typing
    assert "waiting for the box" in printed(screen, seen())


def test_the_conversation_goes_along() -> None:
    screen = Chat()
    sent(screen, "one")
    answered(screen, "first")
    stream = sent(screen, "two")
    assert [said["content"] for said in stream.body["messages"]] == ["one", "first", "two"]


def test_pasted_lines_stay_lines_and_halves_of_pairs_cannot_break_the_request() -> None:
    screen = Chat()
    screen.press("enter", seen())
    screen.paste("a\r\nb\rc\x1b\ud800", seen())
    stream = screen.press("enter", seen())
    assert isinstance(stream, Stream)
    assert stream.body["messages"][0]["content"] == "a\nb\nc\x1b?"


def test_a_prompt_too_long_says_what_was_left_out() -> None:
    screen = Chat()
    screen.press("enter", seen())
    screen.paste("称" * 30_000, seen())
    assert len(screen.field.text) == 20_000
    assert "full at 20000 signs" in printed(screen, seen())


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_prompt_is_not_sent(text: str) -> None:
    screen = Chat()
    screen.press("enter", seen())
    typed(screen, text)
    assert isinstance(screen.press("enter", seen()), Tell)
    assert screen.exchanges == []


@pytest.mark.parametrize("given", [{"link": "lost"}, {"link": "frozen"}, {"read_only": True}])
def test_nothing_is_sent_without_link_or_leave(given: dict[str, Any]) -> None:
    screen = Chat()
    screen.press("enter", seen())
    typed(screen, "x")
    assert isinstance(screen.press("enter", seen(**given)), Tell)
    assert screen.field.text == "x"


def test_one_answer_at_a_time() -> None:
    screen = Chat()
    sent(screen, "one")
    screen.press("enter", seen())
    typed(screen, "two")
    told = screen.press("enter", seen())
    assert isinstance(told, Tell)
    assert "X stops it" in told.text
    assert screen.field.text == "two"


def test_escape_leaves_the_text_and_capitals_act_again() -> None:
    screen = Chat()
    screen.press("enter", seen())
    typed(screen, "EXNq")
    screen.press("escape", seen())
    assert not screen.typing
    assert screen.field.text == "EXNq"


# -- the key's scope -----------------------------------------------------------------------------


def test_a_key_without_infer_is_told_and_how_to_make_one() -> None:
    screen = Chat()
    screen.receive(WHOAMI, {"key_name": "alice", "scopes": ["admin", "metrics"]}, None)
    text = printed(screen, seen())
    assert "The key alice has the scopes admin, metrics, not infer" in text
    assert "steelyard keys create NAME --scope infer --scope admin" in text


@pytest.mark.parametrize("scopes", [["admin", "infer"], None, "infer"])
def test_a_key_that_may_ask_or_is_unknown_is_not_blamed(scopes: Any) -> None:
    screen = Chat()
    screen.receive(WHOAMI, {"key_name": "alice", "scopes": scopes}, None)
    assert "not infer" not in printed(screen, seen())


# -- outside -------------------------------------------------------------------------------------


@given(TEXTS)
def test_inert_text_has_no_control_characters(text: str) -> None:
    assert all(sign in "\n\t" or sign.isprintable() for sign in inert(text))


@given(st.lists(st.integers(0, 2**32 - 1)), st.lists(st.integers(0, 2**32 - 1)))
def test_the_digest_is_the_boxs_own(prompt: list[int], answer: list[int]) -> None:
    assert digest(prompt, answer) == token_digest(prompt, answer)


def test_what_is_no_token_has_no_digest() -> None:
    assert digest([-1], []) == digest([2**32], []) == ""


@pytest.mark.parametrize("data", [None, 3, {}, {"entries": None}, {"entries": [3]}])
def test_no_ledger_row_is_found_where_there_is_none(data: Any) -> None:
    assert row_of(data) is None


def foretelling() -> View:
    """A box that forecasts."""
    plain = seen()
    assert plain.live is not None
    return changed(plain, live=replace(plain.live, forecast_state="global"))


def test_a_box_that_forecasts_is_asked_to_tell_and_one_that_does_not_is_not() -> None:
    asked = {}
    for kind, drawn in (("with", foretelling()), ("without", silent())):
        screen = Chat()
        screen.press("enter", drawn)
        screen.press("a", drawn)
        effect = screen.press("enter", drawn)
        assert isinstance(effect, Stream)
        asked[kind] = effect.body.get("return_forecast")
    assert asked == {"with": True, "without": None}


def silent() -> View:
    """A box whose forecasts are off."""
    plain = seen()
    assert plain.live is not None
    return changed(plain, live=replace(plain.live, forecast_state="none"))


def test_a_running_answer_shows_what_is_expected_now_and_an_ended_one_what_was_foretold() -> None:
    screen = Chat()
    sent(screen, "hi")
    first = {"generated": 0, "p10": 20, "p50": 100, "p90": 300}
    come(screen, choices=[{"delta": {"role": "assistant"}}], forecast=first)
    later = {"generated": 8, "p10": 60, "p50": 130, "p90": 310}
    come(screen, choices=[{"delta": {"content": "Hello"}, "token_ids": [1]}], forecast=later)
    text = "\n".join(map(text_of, screen.body(seen())))
    assert "writing, 1 tok so far ...  forecast 130 (60-310)" in text
    come(screen, choices=[{"delta": {}, "finish_reason": "stop"}])
    come(screen, usage={"prompt_tokens": 3, "completion_tokens": 1})
    screen.streamed(None, None)
    text = "\n".join(map(text_of, screen.body(seen())))
    assert "output 1 tok  forecast 100 (20-300)" in text
