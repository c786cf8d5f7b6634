"""The full-screen assistant without a terminal: what its keys do, and what it looks like."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.assistant_parts import Shelf, machine
from tests.unit.golden import agree
from tui.assistant import plan
from tui.assistant.checks import Wrong
from tui.assistant.machine import Facts, Interface, Key
from tui.assistant.plan import Outcome
from tui.assistant.steps import STEPS
from tui.assistant.walk import SUMMARY, Walk
from tui.cells import drawn, letter
from tui.lines import text_of, width_of

STATIC = ["pagedown", "down", "down", "enter", "enter"]
"""To the address of a static network."""
KEYS = (
    "up", "down", "tab", "shift+tab", "left", "right", "enter", "space", "pagedown", "pageup",
    "escape", "backspace", "q", "y", "ctrl+q", "ctrl+c", "a", "1", ".", "/", "f5", "home", "号",
)  # fmt: skip


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return machine(tmp_path).look()


def press(walk: Walk, *keys: str) -> str | None:
    effect = None
    for key in keys:
        effect = walk.press(key) or effect
    return effect


def seen(walk: Walk) -> str:
    """What stands there; every line is exact, and every sign may be drawn."""
    lines = walk.lines()
    assert len(lines) == walk.size[1]
    assert {width_of(row) for row in lines} == {walk.size[0]}
    letters = walk.words.lang == "en"
    for sign in "".join(map(text_of, lines)):
        assert drawn(sign) or (letters and letter(sign)), repr(sign)
    return "".join(f"{text_of(row).rstrip()}\n" for row in lines)


def to(walk: Walk, step: str) -> Walk:
    """To that step, without an answer on the way."""
    while walk.step.name != step:
        press(walk, "pagedown")
        assert walk.wrong is None
    return walk


def filled(facts: Facts) -> Walk:
    """All that a person might enter, at the last step."""
    walk = Walk(facts)
    press(walk, *STATIC, *"192.168.7.20/24", "enter", *"192.168.7.1", "enter", "enter", "enter")
    press(walk, "down", "enter", *"time.site", "enter", "enter")
    press(walk, *"long enough", "enter", *"long enough", "enter", "enter")
    press(walk, "down", "enter", *"box.site", "enter", *"webapp", "enter", "enter")
    press(walk, "down", "enter", "enter", "enter", "pagedown", "pagedown")
    assert walk.step.name == "summary", seen(walk)
    return walk


# -- keys ------------------------------------------------------------------------------------------


def test_enter_alone_goes_through_all_steps_and_changes_nothing(facts: Facts) -> None:
    walk = Walk(facts)
    for _ in range(40):
        if walk.at == SUMMARY:
            break
        press(walk, "enter")
    assert walk.at == SUMMARY
    assert walk.plan.changes == ()
    assert "Nothing would be changed" in seen(walk)
    assert walk.buttons()[0] == "finish"


def test_answers_become_a_plan_and_apply_hands_it_over(facts: Facts) -> None:
    walk = filled(facts)
    assert [told[0] for told in walk.plan.changes] == [
        f"assist.do.{what}"
        for what in ("network", "time", "password", "key", "key", "setting", "setting")
    ]
    assert press(walk, "enter") == "apply"
    assert walk.page == "busy"
    assert press(walk, *KEYS) is None  # what is typed meanwhile is for nobody
    assert walk.page == "busy"


def test_back_keeps_what_was_typed_and_next_checks_it(facts: Facts) -> None:
    walk = Walk(facts)
    press(walk, *STATIC, *"192.168.7.20", "pagedown")
    assert walk.wrong is not None
    assert walk.place.field is not None
    assert walk.place.field.name == "net.address"
    assert "192.168.7.20/24" in seen(walk)  # how it should be written
    press(walk, "pageup", "pagedown")
    assert walk.step.name == "network"
    assert walk.answers["net.address"] == "192.168.7.20"
    press(walk, "down", "down", "down", *"/24", "pagedown")
    assert walk.step.name == "time"


def test_option_is_chosen_by_space_and_enter_and_not_by_passing(facts: Facts) -> None:
    walk = to(Walk(facts), "network")
    press(walk, "down", "down")
    assert walk.answers["net.how"] == "keep"
    press(walk, "space")
    assert walk.answers["net.how"] == "static"
    press(walk, "up", "enter")
    assert walk.answers["net.how"] == "dhcp"


def test_language_changes_at_once(facts: Facts) -> None:
    walk = Walk(facts)
    press(walk, "down", "space")
    assert "语言" in seen(walk)


def test_terminal_that_draws_no_chinese_is_not_asked(facts: Facts) -> None:
    walk = Walk(replace(facts, chinese=False), "zh")
    assert "cannot draw Chinese" in seen(walk)
    press(walk, "down", "space")
    assert walk.words.lang == "en"


def test_password_is_never_on_the_screen(facts: Facts) -> None:
    walk = to(Walk(facts), "login")
    press(walk, *"hunter2hunter2", "enter")
    assert "hunter2" not in seen(walk)
    assert "*" * 14 in seen(walk)
    press(walk, *"hunter2hunter3", "pagedown")
    assert "not the same" in seen(walk)


def test_q_in_a_text_is_a_letter_and_elsewhere_asks_to_leave(facts: Facts) -> None:
    walk = to(Walk(facts), "login")
    press(walk, "q")
    assert walk.answers["login.first"] == "q"
    press(walk, "tab", "tab", "q")
    assert walk.page == "quit"


@pytest.mark.parametrize("name", [step.name for step in STEPS])
def test_one_can_leave_at_any_step_and_come_back_to_it(facts: Facts, name: str) -> None:
    walk = to(Walk(facts), name)
    assert press(walk, "ctrl+q") is None
    assert press(walk, "enter") is None  # the cursor is on Stay
    assert (walk.page, walk.step.name) == ("steps", name)
    assert press(walk, "ctrl+c", "tab", "enter") == "leave"
    assert press(walk, "tab", "enter") == "finish"
    assert "nobody can log in" in seen(walk)


def test_step_that_was_answered_and_became_wrong_is_gone_back_to(facts: Facts) -> None:
    walk = filled(facts)
    walk.answers["admin.name"] = "webapp"
    press(walk, "pageup", "pagedown")
    assert walk.step.name == "admin"
    assert "already" in seen(walk)


def test_pasted_text_goes_to_the_field(facts: Facts) -> None:
    walk = Walk(facts)
    press(walk, *STATIC)
    walk.paste(" 10.0.0.4/8\n")
    assert walk.answers["net.address"] == "10.0.0.4/8"
    press(walk, "ctrl+q")
    walk.paste("x")
    assert walk.answers["net.address"] == "10.0.0.4/8"


def test_keys_are_shown_until_somebody_says_that_they_are_noted(tmp_path: Path) -> None:
    box = machine(tmp_path, Shelf())
    walk = filled(box.look())
    press(walk, "enter")
    outcome = plan.apply(walk.plan, box, walk.began)
    walk.ended(outcome, box.look())
    for key in KEYS:
        if key != "y":
            assert press(walk, key) is None
            assert outcome.secrets[0][2] in seen(walk)
    press(walk, "y")
    assert walk.page == "done"
    assert outcome.secrets[0][2] not in seen(walk)
    assert press(walk, "enter") == "finish"
    walk.failed(Wrong("write", "/var", "read-only"))
    assert "cannot be written" in seen(walk)


def test_failure_is_told_and_leads_back_to_the_steps(facts: Facts) -> None:
    walk = filled(facts)
    press(walk, "enter")
    wrong = Wrong("command", "chpasswd", "no room")
    walk.ended(Outcome([("assist.do.check", ())], [], wrong), facts)
    assert "Not done: chpasswd: no room." in " ".join(seen(walk).replace("|", " ").split())
    press(walk, "enter")
    assert (walk.page, walk.at) == ("steps", 0)


@given(
    st.lists(st.sampled_from(KEYS), max_size=80),
    st.sampled_from([(80, 24), (140, 45), (81, 25)]),
    st.text(st.characters(blacklist_categories=()), max_size=40),
)
def test_no_key_breaks_it_whatever_the_machine_says(
    keys: list[str], size: tuple[int, int], text: str
) -> None:
    odd = Facts(
        host=text, interfaces=(Interface("a" * 15), Interface("b", False)), clock=text,
        time_server=text, serves=text, names=(text, text), board=text,
        keys=(Key(text, ("admin",)),), models=(text, text + "2"), model=text, config="[server]\n",
    )  # fmt: skip
    walk = Walk(odd)
    walk.size = size
    seen(walk)
    for key in keys:
        if press(walk, key) == "apply":
            walk.began(("assist.do.command", (text,)))
            seen(walk)
            failed = Wrong("command", text, text) if len(text) % 2 else None
            walk.ended(Outcome([], [(text, text, text)], failed), odd)
        seen(walk)


# -- looks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", [step.name for step in STEPS])
def test_every_step_looks_as_it_did(facts: Facts, name: str, lang: str) -> None:
    walk = filled(facts)
    walk.answers["lang"] = lang
    while walk.step.name != name:
        press(walk, "pageup")
    agree(f"assistant/{name}-{lang}", seen(walk))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_pages_beside_the_steps_look_as_they_did(tmp_path: Path, lang: str) -> None:
    box = machine(tmp_path, Shelf(fails="restart steelyard"))
    walk = filled(box.look())
    walk.answers["lang"] = lang
    press(walk, "ctrl+q")
    agree(f"assistant/quit-{lang}", seen(walk))
    press(walk, "enter", "enter")
    outcome = plan.apply(walk.plan, box, walk.began)
    # The configuration is tried beside the old one, at a path that differs from test to test.
    agree(f"assistant/busy-{lang}", seen(walk))
    walk.ended(outcome, box.look())
    agree(f"assistant/secrets-{lang}", seen(walk))
    press(walk, "y")
    agree(f"assistant/failed-{lang}", seen(walk))
    outcome.failed = None
    walk.ended(Outcome(outcome.done), box.look())
    agree(f"assistant/done-{lang}", seen(walk))
    walk.size = (140, 45)
    agree(f"assistant/done-wide-{lang}", seen(walk))
