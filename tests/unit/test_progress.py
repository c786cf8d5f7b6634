"""The line that says how far a job is."""

import io
import os
from contextlib import redirect_stderr

import pytest

from appliance.commands import progress
from appliance.commands.progress import Line, Working, bar_of, line_of

Said = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Monotonic seconds, as the test says."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """40 columns wide; to be standard error."""
    size = os.terminal_size((40, 24))
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda: size)
    return Terminal()


def test_a_bar_says_how_far_and_how_long() -> None:
    assert line_of("copy", 0, 0, 0) == f"copy     [{'#' * 24}] 100 %"
    assert line_of("copy", 1, 4, 10) == f"copy     [{'#' * 6}{'.' * 18}]  25 %  ETA 30 s"
    assert bar_of(0.0) == f"[{'.' * 24}]   0 %"


def test_on_a_terminal_one_line_is_drawn_over_and_left_empty(
    terminal: Terminal, clock: Clock
) -> None:
    with redirect_stderr(terminal), Line() as line:
        clock.now += 1
        line.say("one")
        line.say("too soon")
        line.say("two", news=True)
    assert terminal.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K"


def test_no_line_is_longer_than_the_terminal_is_wide(terminal: Terminal) -> None:
    with redirect_stderr(terminal), Line() as line:
        line.say("x" * 100, news=True)
    assert terminal.getvalue() == f"\r\x1b[K{'x' * 39}\r\x1b[K"


def test_a_job_that_is_done_at_once_shows_nothing(terminal: Terminal, clock: Clock) -> None:
    with redirect_stderr(terminal), Working() as working:
        working.tell("copy", 1, 2)
        working.tell("copy", 2, 2)
    assert terminal.getvalue() == ""


def test_in_a_log_there_is_a_line_now_and_then(clock: Clock, capsys: Said) -> None:
    with Working() as working:
        for done in range(31):
            working.tell("copy", done, 100)
            clock.now += 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("]")[1] for line in lines] == ["  10 %  ETA 90 s", "  20 %  ETA 80 s",
                                                      "  30 %  ETA 70 s"]  # fmt: skip
    assert "\x1b" not in "".join(lines)


def test_the_time_left_is_that_of_the_phase(clock: Clock, capsys: Said) -> None:
    with Working() as working:
        working.tell("copy", 0, 100)
        clock.now += 1000
        working.tell("check", 0, 100)
        clock.now += 20
        working.tell("check", 50, 100)
    assert capsys.readouterr().err.splitlines()[-1].endswith(" 50 %  ETA 20 s")


def test_who_wants_none_gets_none(clock: Clock, capsys: Said) -> None:
    with Working(quiet=True) as working:
        clock.now += 100
        working.tell("copy", 1, 2)
        working.say("copy", news=True)
    assert capsys.readouterr().err == ""
