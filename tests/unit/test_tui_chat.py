"""Screen 8: typing, sending, what comes back, and what others' text cannot do."""

import json
from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.ledger.verify import token_digest
from tests.unit.console_box import Reply, console_box
from tests.unit.console_views import STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.cells import foreign
from tui.conversation import Exchange, digest, inert, row_of
from tui.field import Field
from tui.lines import text_of, width_of
from tui.link import Link
from tui.screen import Copy, Query, Save, Stop, Stream, Tell
from tui.screens.chat import WHOAMI, Chat
from tui.trust import Trust
from tui.view import View

SETTINGS = {"sampling.temperature": "0.8", "limits.max_tokens_default": "0"}
EVIL = "\x1b[31mred\x07 \u202egnp.exe [bold]x[/bold] 称重"
texts = st.text(st.characters(blacklist_categories=()), max_size=80)
NAMED = (
    *("enter", "escape", "up", "down", "left", "right", "home", "end", "backspace", "delete"),
    *("tab", "shift+tab", "ctrl+j", "ctrl+w", "ctrl+u", "ctrl+k", "ctrl+left", "ctrl+right"),
    *("pageup", "pagedown", "E", "X", "N", "c", "w", "g", "space", "f5"),
)
keys = st.one_of(st.characters(blacklist_categories=()), st.sampled_from(NAMED))


def seen(kind: str = "normal", **given: Any) -> View:
    return changed(view(kind, **given), state=replace(STATE, settings=SETTINGS))


def typed(screen: Chat, text: str) -> None:
    for sign in text:
        screen.press("ctrl+j" if sign == "\n" else sign, seen())


def sent(screen: Chat, text: str) -> Stream:
    """What a prompt becomes."""
    screen.press("enter", seen())
    typed(screen, text)
    effect = screen.press("enter", seen())
    assert isinstance(effect, Stream)
    return effect


def come(screen: Chat, **event: Any) -> None:
    screen.streamed(json.dumps(event), None)


def delta(screen: Chat, text: str, *ids: int) -> None:
    come(screen, id="chatcmpl-1", choices=[{"delta": {"content": text}, "token_ids": list(ids)}])


def answered(screen: Chat, text: str = "It weighs.") -> None:
    """A whole answer, as the box streams it."""
    prompt, answer = [11, 12, 13], [21, 22]
    come(
        screen, id="chatcmpl-1", choices=[{"delta": {"role": "assistant"}}], prompt_token_ids=prompt
    )
    delta(screen, text, *answer)
    timings = {"queue_ms": 80.0, "prompt_ms": 100.0, "predicted_ms": 50.0, "prompt_n": 2}
    end = {"X-Token-Diff-SHA256": digest(prompt, answer)}
    come(screen, choices=[{"delta": {}, "finish_reason": "stop"}], timings=timings, **end)
    details = {"cached_tokens": 1}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": details}
    come(screen, choices=[], usage=usage, **end)
    screen.streamed(None, None)


# -- drawing -------------------------------------------------------------------------------------


@given(
    texts,
    st.lists(st.tuples(texts, texts, st.sampled_from((None, "why", EVIL))), max_size=4),
    st.lists(keys, max_size=30),
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


# -- what comes ----------------------------------------------------------------------------------


def test_an_answer_tells_tokens_times_and_a_digest_that_was_checked() -> None:
    screen = Chat()
    sent(screen, "x")
    answered(screen)
    text = printed(screen, seen())
    assert "prompt 3 tok (1 cached)  output 2 tok  stop  TTFT 180 ms  230 ms  20 t/s" in text
    assert " matches" in text


def test_tokens_that_were_changed_on_the_way_are_told() -> None:
    screen = Chat()
    sent(screen, "x")
    answered(screen)
    screen.exchanges[-1].answer_ids[0] = 99
    screen._talk = type(screen._talk)()
    assert "DIFFERS" in printed(screen, seen())


def test_the_ledger_row_is_asked_for_until_it_is_known() -> None:
    screen = Chat()
    assert screen.wants(seen()) == (WHOAMI,)
    sent(screen, "x")
    answered(screen)
    row = Query("/admin/requests/chatcmpl-1", 1.0)
    assert screen.wants(seen()) == (WHOAMI, row)
    screen.receive(row, {"live": {}, "entries": []}, None)
    assert row in screen.wants(seen())
    screen.receive(row, {"live": None, "entries": [{"seq": 7}, {"seq": 48214}]}, None)
    assert "row 48214" in printed(screen, seen())
    assert screen.wants(seen()) == (WHOAMI,)


def test_reading_and_writing_tell_how_far_they_are() -> None:
    screen = Chat()
    sent(screen, "x")
    come(screen, id="c", prompt_progress={"total": 512, "cache": 0, "processed": 128, "time_ms": 1})
    assert "128 of 512 tok" in printed(screen, seen())
    delta(screen, "a", 1, 2, 3)
    assert "writing, 3 tok so far" in printed(screen, seen())


def test_a_refusal_tells_code_and_time_and_gives_the_prompt_back() -> None:
    screen = Chat()
    sent(screen, "my question")
    screen.streamed(None, "the queue is full: Retry-After 3 s [queue_full]")
    assert "REFUSED: the queue is full: Retry-After 3 s [queue_full]" in printed(screen, seen())
    assert screen.field.text == "my question"
    again = sent(screen, "")
    assert [said["content"] for said in again.body["messages"]] == ["my question"]


async def test_a_refusal_comes_over_the_wire_with_code_and_time() -> None:
    async with console_box() as box:
        refusal = Reply.refusal(503, "draining", "The box is draining.")
        refusal.type += "\r\nRetry-After: 10"
        box.replies["POST", "/v1/chat/completions"] = [refusal]
        link = Link(box.url, "sk-x", Trust(box.url))
        (part,) = [part async for part in link.stream("/v1/chat/completions", {})]
        await link.close()
        assert part.problem is not None
        assert seen().words(part.problem.key, *part.problem.args) == (
            "The box is draining. [draining, Retry-After 10 s]"
        )


def test_a_link_that_breaks_marks_the_answer_as_cut() -> None:
    screen = Chat()
    sent(screen, "x")
    delta(screen, "half of", 1)
    assert "CUT here: the link is lost" in printed(screen, seen("lost"))
    screen.streamed(None, "the connection broke")
    text = printed(screen, seen())
    assert "half of" in text
    assert "CUT here, the answer is not whole. the connection broke" in text


def test_a_stream_without_its_end_is_cut() -> None:
    screen = Chat()
    sent(screen, "x")
    delta(screen, "half", 1)
    screen.streamed(None, None)
    assert screen.exchanges[-1].phase == "cut"


@pytest.mark.parametrize(
    "data", ["", "{", "[]", '{"choices": 3}', '{"choices": [{"delta": {"content": 1}}]}', "\ud800"]
)
def test_an_event_of_another_shape_ends_the_answer(data: str) -> None:
    screen = Chat()
    sent(screen, "x")
    screen.streamed(data, None)
    assert screen.exchanges[-1].phase == "cut"
    exact(screen, seen())


def test_stopping_keeps_what_came_and_waits_for_the_stream_to_close() -> None:
    screen = Chat()
    sent(screen, "x")
    delta(screen, "half", 1)
    assert screen.press("X", seen()) == Stop()
    delta(screen, " more", 2)
    text = printed(screen, seen())
    assert "STOPPED here by you" in text
    assert "more" not in text
    screen.press("enter", seen())
    typed(screen, "y")
    assert isinstance(screen.press("enter", seen()), Tell)
    screen.streamed(None, None)
    assert isinstance(screen.press("enter", seen()), Stream)


def test_there_is_nothing_to_stop_copy_or_write_at_first() -> None:
    for key in "Xcw":
        assert isinstance(Chat().press(key, seen()), Tell)


def test_copies_and_files_hold_no_control_characters() -> None:
    screen = Chat()
    sent(screen, "x")
    answered(screen, "a\x1b[2J\x9b \u202eKäse\n\tb")
    assert screen.press("c", seen()) == Copy("a\\x1b[2J\\x9b \\u202eKäse\n\tb")
    saved = screen.press("w", seen())
    assert isinstance(saved, Save)
    assert "\x1b" not in saved.text
    assert "you: x" in saved.text


def test_a_new_conversation_forgets_the_old_one() -> None:
    screen = Chat()
    sent(screen, "x")
    assert isinstance(screen.press("N", seen()), Tell)
    answered(screen)
    screen.press("N", seen())
    assert len(sent(screen, "y").body["messages"]) == 1


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


# -- how to ask ----------------------------------------------------------------------------------


def filled(screen: Chat, **values: str) -> None:
    """Fill the form and take it."""
    screen.press("E", seen())
    assert screen.form is not None
    for name in ("temperature", "max_tokens", "budget", "tier", "system", "schema"):
        if name in values:
            screen.form.current.set("")
            screen.paste(values[name], seen())
        screen.press("tab", seen())
    screen.press("enter", seen())


def test_the_form_sets_what_goes_with_every_question() -> None:
    screen = Chat()
    schema = '{"type": "object",\n "properties": {}}'
    filled(screen, temperature="0.3", max_tokens="64", tier="flex", system="简短", schema=schema)
    assert screen.form is None
    body = sent(screen, "x").body
    assert (body["temperature"], body["max_tokens"], body["service_tier"]) == (0.3, 64, "flex")
    assert body["messages"][0] == {"role": "system", "content": "简短"}
    wanted = body["response_format"]
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"]["schema"] == {"type": "object", "properties": {}}
    assert "budget" not in body
    told = "temp 0.3  max 64  budget -  schema set  tier flex  system set"
    assert told in printed(screen, seen())


@pytest.mark.parametrize(
    ("typed", "mode", "shown"),
    [
        ("200", "soft", "200"),
        ("200 SOFT", "soft", "200"),
        (" 200  strict ", "strict", "200 strict"),
    ],
)
def test_a_budget_goes_with_every_question(typed: str, mode: str, shown: str) -> None:
    screen = Chat()
    filled(screen, budget=typed)
    assert sent(screen, "x").body["budget"] == {"tokens": 200, "mode": mode}
    assert f"budget {shown}  schema" in printed(screen, seen())


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ({"tokens": 40, "used": 41, "within": True, "ended": "steered"}, "budget 40 kept: ended"),
        ({"tokens": 40, "used": 20, "within": False, "ended": "gave_way"}, "budget 40 MISSED: an"),
        ({"tokens": 40, "used": 41, "within": True, "ended": "\x1b[1m"}, "budget 40 kept: "),
    ],
)
def test_what_became_of_the_budget_is_shown(kept: dict[str, Any], shown: str) -> None:
    screen = Chat()
    sent(screen, "x")
    come(screen, id="c", choices=[{"delta": {}, "finish_reason": "stop", "budget": kept}])
    come(screen, choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2})
    screen.streamed(None, None)
    assert shown in printed(screen, seen(width=120))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", "5.1"),
        ("temperature", "nan"),
        ("max_tokens", "0"),
        ("max_tokens", "-1"),
        ("max_tokens", "٣"),
        ("budget", "0"),
        ("budget", "strict"),
        ("budget", "20 hard"),
        ("budget", "20 soft strict"),
        ("tier", "best"),
        ("schema", "{"),
        ("schema", "[]"),
        ("schema", "[" * 20_000),
    ],
)
def test_what_a_field_cannot_take_is_told_beside_it(name: str, value: str) -> None:
    screen = Chat()
    filled(screen, **{name: value})
    assert screen.form is not None
    assert screen.form.problem[0] == name
    assert screen.form.current is screen.form.fields[name]
    assert seen().words(screen.form.problem[1]) in printed(screen, seen())
    screen.press("escape", seen())
    assert screen.form is None
    assert "temperature" not in sent(screen, "x").body


def test_taking_everything_out_goes_back_to_the_boxs_own_values() -> None:
    screen = Chat()
    filled(screen, temperature="0", max_tokens="5", tier="priority")
    filled(screen, temperature="", max_tokens="", tier="")
    assert set(sent(screen, "x").body) == {
        "messages",
        "stream",
        "stream_options",
        "return_token_ids",
        "return_progress",
    }


# -- the text field ------------------------------------------------------------------------------


def drawn(field: Field, width: int = 10, height: int = 3) -> list[str]:
    return [text_of(row).rstrip() for row in field.draw(foreign, width, height)]


def test_wide_signs_are_kept_whole_at_the_edge() -> None:
    field = Field("a称重称重称", many=True)
    assert drawn(field) == ["a称重称重", "称_", ""]


def test_up_and_down_keep_the_cell_across_wide_signs() -> None:
    field = Field("称重称\nabcdef\n重", many=True)
    drawn(field)
    field.press("up")
    assert field.at == 6
    field.press("end")
    field.press("up")
    assert field.at == 3
    field.press("down")
    assert field.text[: field.at] == "称重称\nabcdef"


def test_words_and_lines_are_cut_whole() -> None:
    field = Field("one 称重 two\nlast", many=True)
    field.press("up")
    field.press("end")
    field.press("ctrl+w")
    assert field.text == "one 称重 \nlast"
    field.press("ctrl+u")
    assert field.text == "\nlast"
    field.press("ctrl+right")
    field.press("ctrl+left")
    field.press("ctrl+k")
    assert field.text == "\n"


def test_what_cannot_be_drawn_shows_escaped_and_is_deleted_whole() -> None:
    field = Field("a\x1bb", many=True)
    assert drawn(field)[0] == r"a\x1bb_"
    field.press("left")
    field.press("backspace")
    assert field.text == "ab"


def test_one_line_takes_no_line_breaks() -> None:
    field = Field("a\nb")
    assert field.text == "a b"
    assert not field.press("ctrl+j")
    assert not field.press("up")
    assert not field.press("f5")


def test_many_empty_lines_are_no_trouble() -> None:
    field = Field("\n" * 5000, many=True, most=20_000)
    assert len(drawn(field)) == 3
    field.press("up")
    assert field.at == 4999


@given(texts, st.lists(keys, max_size=40), st.integers(2, 40), st.integers(1, 6))
def test_a_field_is_exact_and_its_cursor_in_sight(
    text: str, pressed: list[str], width: int, height: int
) -> None:
    field = Field(text, many=True, most=100)
    width = max(width, 11)  # the longest escape and the cursor behind it
    for key in pressed:
        field.press(key)
        rows = field.draw(foreign, width, height)
        assert [width_of(row) for row in rows] == [width] * height
        assert 0 <= field.at <= len(field.text) <= 100
        assert any(span.role == "select" for row in rows for span in row)


@given(texts, texts)
def test_typing_is_inserting_at_the_cursor(before: str, after: str) -> None:
    field = Field(most=1000, many=True)
    for sign in before + after:
        field.press(sign)
    kept = "".join(sign for sign in before + after if sign.isprintable())
    assert field.text == kept.encode("utf-8", "replace").decode()


# -- outside -------------------------------------------------------------------------------------


@given(texts)
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
