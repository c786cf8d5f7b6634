"""The console on a terminal that is not there: keys in, cells out."""

from pathlib import Path

import pytest
from textual.events import CursorPosition

from appliance.frames import Alarm
from tests.unit.app_parts import shop
from tests.unit.console_box import make_live
from tests.unit.console_shop import SECRET
from tests.unit.console_views import STATE
from tui.link import Answer
from tui.problem import Problem
from tui.screen import Ask, Call
from tui.trust import Shown


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# -- keys ------------------------------------------------------------------------------------------


async def test_small_keys_reach_the_screen_and_digits_change_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        await it.press("j", "s", "enter", "space", "tab", "plus")
        assert it.probe.keys == ["j", "s", "enter", "space", "tab", "+"]
        await it.press("2")
        assert "2>Requests" in it.text[0]
        await it.press("7")
        assert "2>Requests" in it.text[0]


async def test_keys_of_a_text_field_are_text(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.probe.text, it.probe.effects = "", {}
        for key in ("q", "2", "slash", "p", "X", "space", "question_mark", "你"):
            await it.press(key)
        assert it.probe.text == "q2/pX ?你"
        assert not it.link.acted
        await it.press("f1")
        assert "Help" in it.screen


async def test_capitals_ask_first_and_only_y_acts(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        for key in ("n", "enter", "Y", "escape", "space"):
            await it.press("X")
            await it.armed()
            assert "asked by alice on box7" in it.screen
            await it.press(key)
            assert it.desk.box is None
        assert not it.link.acted
        await it.press("X")
        await it.armed()
        await it.press("y")
        await it.until(lambda: it.link.acted)
        assert it.link.acted == [("DELETE", "/admin/requests/8f00", None)]


async def test_keys_typed_before_the_dialog_was_drawn_are_dropped(tmp_path: Path) -> None:
    async with shop(tmp_path, unanswered_s=60.0) as it:
        await it.press("X", "y", "y")
        assert it.desk.box is not None
        assert not it.link.acted
        it.app._answers = True
        while it.app._probes:  # the terminal says that it has drawn all of it
            it.app.post_message(CursorPosition(0, 0))
            await it.pilot.pause()
        await it.armed()
        await it.press("y")
        await it.until(lambda: it.link.acted)


async def test_action_that_cannot_be_taken_back_needs_its_name_typed(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.probe.effects["X"] = Ask("Revoke", ("x",), Call("DELETE", "/k"), typed="ops")
        await it.press("X")
        await it.armed()
        await it.press("y", "enter")
        assert not it.link.acted
        await it.press("backspace", "o", "p", "s", "enter")
        await it.until(lambda: it.link.acted)


async def test_operator_without_a_name_is_asked_for_it_before_the_first_action(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path, operator="") as it:
        await it.press("X", "b", "o", "b", "enter")
        await it.armed()
        assert "asked by bob" in it.screen
        assert it.link.operator == "bob"


async def test_secret_is_shown_once_and_no_earlier_key_closes_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.probe.effects["N"] = Call("POST", "/admin/keys", {"name": "a"})
        await it.press("N")
        await it.until(lambda: it.desk.box is not None)
        assert SECRET in it.screen
        await it.armed()
        await it.press("enter")
        assert SECRET not in it.screen


async def test_nothing_takes_the_place_of_a_secret_that_is_not_read_yet(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.probe.effects["N"] = Call("POST", "/admin/keys", {"name": "a"})
        await it.press("N")
        await it.until(lambda: it.desk.box is not None)
        it.desk.broke(ZeroDivisionError("later"))
        assert SECRET in it.screen
        await it.armed()
        await it.press("enter")
        assert "Report:" in it.screen


async def test_drain_and_hold_work_on_every_screen_and_take_turns(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        await it.press("2", "D")
        await it.armed()
        await it.press("y")
        it.link.live = make_live(state="DRAINING")
        await it.press("D")
        await it.armed()
        await it.press("y")
        await it.press("H")
        await it.armed()
        await it.press("y")
        await it.until(lambda: len(it.link.acted) == 3)
        paths = [path for _, path, _ in it.link.acted]
        assert paths == ["/admin/drain", "/admin/resume", "/admin/hold"]


async def test_read_only_console_never_acts(tmp_path: Path) -> None:
    async with shop(tmp_path, read_only=True) as it:
        await it.press("m", "X", "D")
        assert it.desk.box is None
        assert "X" not in it.probe.keys
        assert "--read-only" in it.screen


# -- the link --------------------------------------------------------------------------------------


async def test_lost_link_is_told_dims_values_and_stops_capitals(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.clock.now += 42
        it.link.retry_at = it.link.clock.now + 3
        it.link.problem = Problem("link.refused", ("http://box7",))
        assert it.text[0].startswith("LOST 42s, retry 3 s")
        assert "Nothing listens at http://box7" in it.screen
        await it.press("X")
        assert it.desk.box is None
        assert "X" not in it.probe.keys


async def test_problem_before_the_first_frame_fills_the_screen(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.live = it.link.received = None
        it.link.problem = Problem("link.scope", ("admin", "no"))
        assert "The key lacks scope admin" in it.screen


async def test_unknown_outcome_is_called_unknown(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        problem = Problem("link.timeout", ("http://box7",))
        it.link.answers["DELETE /admin/requests/8f00"] = Answer(problem=problem, done=None)
        await it.press("X")
        await it.armed()
        await it.press("y")
        await it.until(lambda: "Unknown whether it was done" in it.screen)


async def test_screens_get_their_data_and_failures_in_words(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.answers["/admin/keys"] = Answer({"keys": []})
        await it.until(lambda: it.probe.received)
        it.link.answers["/admin/keys"] = Answer(problem=Problem("link.said", ("\x1b[31m", "x")))
        it.link.clock.now += 5.1
        it.link.received = it.link.clock.now
        await it.until(lambda: it.probe.received[-1][1])
        assert it.probe.received[-1][1] == "\\x1b[31m [x]"


async def test_certificate_is_shown_and_only_y_trusts_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        shown = Shown("box7:443", ":".join(["AB"] * 32), "pem", False)
        it.link.shown = shown
        await it.until(lambda: it.desk.box is not None)
        assert "AB:AB:AB" in it.screen
        await it.armed()
        await it.press("n")
        assert not it.link.taken
        await it.press("ctrl+p", *"certif", "enter")
        await it.armed()
        await it.press("y")
        await it.until(lambda: it.link.taken)


# -- filter, freeze, alarms, palette ---------------------------------------------------------------


async def test_filter_is_in_force_while_it_is_typed_and_survives_other_screens(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as it:
        await it.press("2", "slash", "w", "i", "q", "backspace")
        assert it.text[1] == "wiki"
        assert "filter: wi_" in it.screen
        await it.press("enter", "1", "2")
        assert it.text[1] == "wiki"
        await it.press("slash", "escape")
        assert it.text[1:3] == ["crm-bot", "wiki"]


async def test_frozen_screen_keeps_its_frame_and_walks_back(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        for second in range(30):
            it.link.clock.now += 1
            it.link.received = it.link.clock.now
            it.link.live = make_live(host=f"s{second}")
            it.desk.lines()
        await it.press("p")
        it.link.live = make_live(host="later")
        it.link.clock.now += 2
        it.link.received = it.link.clock.now
        it.desk.lines()
        assert it.desk.view().age_s == 2
        assert "s29" in it.text[0]
        assert "FROZEN" in it.text[0]
        await it.press("X")
        assert it.desk.box is None
        await it.press("left_square_bracket")
        assert "s19" in it.text[0]
        await it.press(*["left_square_bracket"] * 3)
        assert "Nothing further back" in it.screen
        await it.press("p")
        assert "later" in it.text[0]


ALARM = Alarm(id="a1", code="x", screen=2, prio=1, text="Engine down.", since_ms=1)


async def test_worst_alarm_is_three_keys_away(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.state = type(STATE)(
            alarms=(ALARM,), chain=STATE.chain, model=STATE.model, process=STATE.process
        )
        await it.press("0", "m", "enter")
        await it.until(lambda: it.link.acted)
        assert it.link.acted == [("POST", "/admin/alarms/a1/seen", None)]
        assert "2>Requests" in it.text[0]


async def test_alarm_is_snoozed_with_a_reason(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.live = make_live(worst=ALARM, alarms_1=1)
        await it.press("z", "down", "enter", "f", "a", "n", "enter")
        await it.until(lambda: it.link.acted)
        body = {"minutes": 120, "reason": "fan"}
        assert it.link.acted == [("POST", "/admin/alarms/a1/snooze", body)]


async def test_palette_finds_commands_and_changes_language_and_theme(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        await it.press("ctrl+p", *"lang", "enter")
        assert "服务中" in it.text[0]
        await it.press("ctrl+p", *"dark", "enter")
        assert it.desk.settings.theme == "dark"
        await it.press("ctrl+p", *"no such command", "enter", "escape")
