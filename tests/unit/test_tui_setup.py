"""Screen 9: the list, where it leads, and what it says of itself."""

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Step
from tests.unit.console_views import STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.screen import Go, Show, Tell
from tui.screens.setup import COMMANDS, LEADS, Setup
from tui.view import View

STEPS = (
    Step(step="engine", state="ok", detail="decodes, loaded in 0.4 s"),
    Step(step="model", state="ok", detail="SmolLM2-135M, 51c2aabbccdd"),
    Step(step="admin_key", state="ok", detail="alice, 30 days left"),
    Step(step="app_key", state="todo", detail="none: only this machine may ask"),
    Step(step="ledger", state="ok", detail="commit 3 ms, 41 GB free"),
    Step(step="network", state="todo", detail="127.0.0.1:8421 only: set server.host"),
    Step(step="tls", state="wait", detail="waits for network"),
    Step(step="board", state="skip", detail="none"),
    Step(step="forecaster", state="skip", detail="none yet"),
)
DONE = tuple(replace(step, state="ok") for step in STEPS)
texts = st.text(st.characters(blacklist_categories=()), max_size=60)


def seen(steps: tuple[Step, ...] = STEPS, kind: str = "normal", **given: Any) -> View:
    return changed(view(kind, **given), state=replace(STATE, setup=steps))


@given(
    st.lists(st.builds(Step, step=texts, state=texts, detail=texts), max_size=20).map(tuple),
    st.integers(60, 160),
    st.integers(16, 50),
    st.sampled_from(("en", "zh")),
    st.lists(st.sampled_from(("up", "down", "enter", "v", "pagedown", "end")), max_size=5),
)
def test_every_row_is_exact_whatever_the_box_says(
    steps: tuple[Step, ...], width: int, height: int, lang: str, keys: list[str]
) -> None:
    screen, shown = Setup(), seen(steps, width=width, height=height, lang=lang)
    exact(screen, shown)
    for key in keys:
        screen.press(key, shown)
        exact(screen, shown)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", ["normal", "empty", "overload", "degraded", "lost"])
def test_looks_as_it_did(kind: str, lang: str) -> None:
    steps = {"empty": (), "overload": DONE}.get(kind, STEPS)
    agree(f"setup-{kind}-{lang}", printed(Setup(), seen(steps, kind, lang=lang)))


def test_says_nothing_before_the_box_did() -> None:
    assert "Nothing has come" in printed(Setup(), View())
    assert isinstance(Setup().press("enter", View()), Tell)
    assert isinstance(Setup().press("v", View()), Tell)


def test_opens_while_something_is_left_to_do() -> None:
    assert Setup.opens(seen())
    assert not Setup.opens(seen(DONE))
    assert not Setup.opens(View())


def test_the_cursor_begins_at_what_is_to_be_done_and_stays_there() -> None:
    screen = Setup()
    printed(screen, seen())
    assert screen.steps.current == STEPS[3]
    done = tuple(replace(step, state="ok") if step.step == "app_key" else step for step in STEPS)
    printed(screen, seen(done))
    assert screen.steps.current is not None
    assert screen.steps.current.step == "app_key"


def at(step: str, shown: View) -> Setup:
    """The screen with the cursor on that step."""
    screen = Setup()
    printed(screen, shown)
    assert screen.steps.select(step)
    return screen


@pytest.mark.parametrize(("step", "number"), LEADS.items())
def test_enter_leads_to_the_screen_of_the_step(step: str, number: int) -> None:
    assert at(step, seen()).press("enter", seen()) == Go(number)


@pytest.mark.parametrize("step", COMMANDS)
def test_enter_shows_the_commands_that_do_the_step(step: str) -> None:
    shown = at(step, seen()).press("enter", seen())
    assert isinstance(shown, Show)
    assert shown.lines[0].startswith("The box says: ")
    assert shown.lines[-len(COMMANDS[step]) :] == tuple(f"  {one}" for one in COMMANDS[step])


def test_every_step_is_led_somewhere_and_explained() -> None:
    words = seen().words
    for step in STEPS:
        assert (step.step in LEADS) != (step.step in COMMANDS)
        assert words.has(f"setup.{step.step}_why")


def test_a_step_of_a_newer_box_shows_as_it_is() -> None:
    steps = (Step(step="new\x1bone", state="later", detail="do [x]\x07"),)
    screen, shown = Setup(), seen(steps)
    text = printed(screen, shown)
    assert r"later new\x1bone    do [x]\x07" in text
    told = screen.press("enter", shown)
    assert told == Show(r"new\x1bone", (r"The box says: do [x]\x07",))


def test_v_says_how_fresh_the_list_is() -> None:
    told = Setup().press("v", seen())
    assert told == Tell("The box checks every second, last 0.1s ago: 4 of 9 done, 2 to do.")
