"""The chat's form: what goes with every question, and what a field cannot take."""

from typing import Any

import pytest

from tests.unit.chat_screen_parts import come, seen, sent
from tests.unit.screen_checks import printed
from tui.screens.chat import Chat


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
