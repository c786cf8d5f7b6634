"""The console's files, clipboard and paste, and input of every bad kind."""

from pathlib import Path

import pytest

from appliance.frames import Alarm
from tests.unit.app_parts import Probe, shop
from tests.unit.console_box import make_live
from tests.unit.console_shop import Clock, ScriptedLink
from tui.app import Console
from tui.lines import line, text_of, width_of
from tui.link import Answer
from tui.problem import Problem
from tui.screen import Choose, Copy, Save, Show
from tui.settings import Settings


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


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
