"""The console on a terminal that is not there: keys in, cells out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.events import CursorPosition

from appliance.frames import Alarm
from tests.unit.console_box import make_live
from tests.unit.console_shop import SECRET, Clock, ScriptedLink, Shop, open_shop
from tests.unit.console_views import STATE
from tui.app import Console
from tui.broken import Broken
from tui.lines import Line, line, text_of, width_of
from tui.link import Answer
from tui.problem import Problem
from tui.screen import Ask, Call, Choose, Copy, Effect, Query, Save, Screen, Show, Table
from tui.settings import Settings
from tui.trust import Shown
from tui.view import View

CANCEL = Ask("Cancel 8f00", ("It ends at once.",), Call("DELETE", "/admin/requests/8f00"))


class Probe(Screen):
    """A screen that remembers its keys."""

    number = 1
    name = "overview"

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.effects: dict[str, Effect] = {"X": CANCEL}
        self.text: str | None = None
        self.pasted = ""
        self.received: list[tuple[Any, str | None]] = []
        self.failing = False

    @property
    def typing(self) -> bool:
        return self.text is not None

    def body(self, view: View) -> list[Line]:
        if self.failing:
            raise ZeroDivisionError("a bug")
        return [line(f"typed {self.text}")] if self.typing else []

    def press(self, key: str, view: View) -> Effect | None:
        self.keys.append(key)
        if self.text is not None:
            self.text += key
        return self.effects.get(key)

    def wants(self, view: View) -> tuple[Query, ...]:
        return (Query("/admin/keys"),)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        if data == "odd":
            raise TypeError("no such shape")
        self.received.append((data, error))

    def answered(self, call: Call, data: Any) -> Effect | None:
        return Show("Secret", (data["secret"],)) if call.path == "/admin/keys" else None

    def paste(self, text: str, view: View) -> None:
        self.pasted += text


class Listing(Screen):
    """A screen with a table."""

    number = 2
    name = "requests"

    def __init__(self) -> None:
        self.table = Table[str](lambda row: row)
        self.table.show(["crm-bot", "wiki"])

    def body(self, view: View) -> list[Line]:
        assert self.table is not None
        return [line(row) for row in self.table.rows]


class Counter(Shop):
    """With the screen that remembers."""

    @property
    def probe(self) -> Probe:
        found = self.desk.screens[0]
        found = found.screen if isinstance(found, Broken) else found
        assert isinstance(found, Probe)
        return found


@asynccontextmanager
async def shop(tmp_path: Path, **given: Any) -> AsyncIterator[Counter]:
    async with open_shop(tmp_path, [Probe(), Listing()], **given) as it:
        yield Counter(it.app, it.pilot, it.link)


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


# -- files, clipboard, paste -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", ".bashrc", "a b\n.csv", ""])
async def test_files_stay_in_the_folder_and_replace_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    async with shop(tmp_path, folder=folder) as it:
        it.probe.effects["w"] = Save(name, "text")
        await it.press("w", "w")
        files = list(folder.iterdir())
        assert len(files) == 2
        assert all(file.read_text() == "text" and file.name[0] != "." for file in files)


async def test_copying_hands_the_text_to_the_terminal(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.probe.effects["c"] = Copy("8f00")
        await it.press("c")
        assert it.app.clipboard == "8f00"


async def test_pasted_text_is_text_and_never_a_command(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.desk.paste("Xyq")
        assert it.desk.box is None
        await it.press("X")
        await it.armed()
        it.desk.paste("y")
        assert not it.link.acted
        await it.press("escape")
        it.probe.text = ""
        it.desk.paste("two\nlines")
        assert it.probe.pasted == "two\nlines"


# -- bad input -------------------------------------------------------------------------------------

EVIL = "\x1b]52;c;AAAA\x07\x1b[2J\u202e[red]boom[/red]\ud800\x9b31m"


async def test_control_characters_and_markup_of_others_never_act(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.live = make_live(
            host=EVIL, state=EVIL, degraded=EVIL, worst=Alarm(
                id=EVIL, code=EVIL, screen=1, prio=1, text=EVIL, since_ms=1
            )
        )  # fmt: skip
        it.link.problem = Problem("link.said", (EVIL, EVIL))
        it.probe.effects["s"] = Choose(EVIL, ((EVIL, EVIL),), lambda _: Show(EVIL, (EVIL,)))
        await it.press("0", "escape", "s", "enter")
        for row in it.desk.lines():
            assert text_of(row).isprintable()
            assert width_of(row) == 80
        await it.pilot.pause()


@pytest.mark.parametrize("size", [(40, 10), (1, 1), (10, 2), (59, 15), (300, 100)])
async def test_terminal_of_any_size_and_back(size: tuple[int, int], tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        before = it.text
        await it.press("question_mark")
        await it.pilot.resize_terminal(*size)
        await it.pilot.pause()
        it.desk.size = size
        rows = it.desk.lines()
        assert len(rows) == size[1]
        assert all(width_of(row) == size[0] for row in rows)
        await it.press("escape")
        await it.pilot.resize_terminal(80, 24)
        await it.pilot.pause()
        it.desk.size = (80, 24)
        assert it.text == before


async def test_screen_that_fails_names_its_report_and_the_others_go_on(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.probe.failing = True
        await it.until(lambda: "could not be drawn. Report:" in it.screen)
        assert "Traceback" not in it.screen
        report = next((tmp_path / "state" / "steelyard").iterdir())
        assert "ZeroDivisionError" in report.read_text()
        await it.press("2")
        assert "crm-bot" in it.screen
        it.probe.failing = False
        await it.press("1", "enter")
        assert it.desk.screen is it.probe


async def test_answer_that_a_screen_cannot_read_is_told_it_in_words(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.answers["/admin/keys"] = Answer("odd")
        it.link.clock.now += 5.1
        it.link.received = it.link.clock.now
        await it.until(lambda: it.probe.received[-1][1])
        assert "Report:" in str(it.probe.received[-1][1])
        assert it.desk.box is None


async def test_console_goes_to_another_box_by_its_address(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        other = ScriptedLink(it.link.clock)
        other.live = make_live(host="box8")
        it.app._connect = lambda url: other
        await it.press("ctrl+p", *"address", "enter", "ctrl+u", *"box8", "enter")
        assert "box8" in it.text[0]
        assert other.operator == "alice"


async def test_task_that_fails_is_reported_and_the_console_goes_on(tmp_path: Path) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("a bug")

    async with shop(tmp_path) as it:
        it.app.start(broken())
        await it.until(lambda: it.desk.box is not None)
        assert "Report:" in it.screen
        await it.armed()
        await it.press("enter", "2")
        assert "crm-bot" in it.screen


async def test_error_of_the_terminal_side_ends_with_the_report_alone(tmp_path: Path) -> None:
    clock = Clock()
    link = ScriptedLink(clock)
    settings = Settings(operator="a", version="0", folder=tmp_path)
    app = Console(lambda _: link, "http://box7", [Probe()], settings, now=clock)
    async with app.run_test() as pilot:
        await pilot.pause()
        app._handle_exception(ZeroDivisionError("a bug"))
    assert app.report.startswith(str(tmp_path))
    assert "a bug" in Path(app.report).read_text()


async def test_only_changed_rows_are_painted_again(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        rows = it.desk.lines()
        it.app.paper.put(rows, "terminal")
        assert not it.app.paper.put(list(rows), "terminal")
        assert it.app.paper.put([*rows[:-1], line("new".ljust(80))], "terminal")
