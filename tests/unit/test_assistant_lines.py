"""The assistant line by line: what it asks, and what becomes of the answers."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from bench import images_setup
from tests.unit.assistant_parts import PACKAGED, SECRET, Shelf, machine
from tui.assistant import plan
from tui.assistant.lines import FINISHED, LEFT, Lines
from tui.assistant.machine import DONE


class Desk:
    """A person with answers, and what they were told; after the last one they are gone."""

    def __init__(self, root: Path, typed: Iterable[str], shelf: Shelf | None = None) -> None:
        self.shelf = shelf or Shelf()
        box = machine(root, self.shelf)
        self.told: list[str] = []
        self._typed = iter(typed)
        self.lines = Lines(box, box.look(), "en", self._answer, self._hidden, self.told.append)

    def _answer(self, question: str) -> str:
        self.told.append(question)
        try:
            return next(self._typed)
        except StopIteration:
            raise EOFError from None

    def _hidden(self, question: str) -> str:
        return self._answer(question)

    @property
    def said(self) -> str:
        return "\n".join(self.told)


ENTER = ""
KEEP = (ENTER, ENTER, ENTER, ENTER, ENTER, ENTER, ENTER, ENTER, ENTER)
"""Language, network, time, password twice, others, admin key, board, model: as they are."""


def test_enter_alone_changes_nothing_and_tells_what_is_missing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [*KEEP, "y"])
    assert desk.lines.talk() == FINISHED
    assert desk.shelf.ran == []
    assert (tmp_path / DONE).exists()
    assert "Nothing would be changed" in desk.said
    assert "TODO  Login: root has no password. step Login" in desk.said
    assert "nobody can log in" in desk.said


def test_everything_is_answered_and_applied(tmp_path: Path) -> None:
    desk = Desk(
        tmp_path,
        [ENTER, "3", "1", "192.168.7.20/24", "192.168.7.1", "192.168.7.1", "2", "time.site",
         "long enough", "long enough", "2", "box.site", "webapp", "2", "alice", "2", "2",
         "y", "x", "y", "y"],
    )  # fmt: skip
    assert desk.lines.talk() == FINISHED
    facts = desk.lines.facts
    assert facts.static is not None
    assert (facts.serves, facts.names, facts.time_server) == ("0.0.0.0", ("box.site",), "time.site")
    assert desk.said.count(SECRET) == 2
    assert desk.said.count("Type y when you have written them down") == 2  # x was no answer
    assert "chpasswd" in desk.shelf.lines
    assert any("model use Qwen" in line for line in desk.shelf.lines)
    assert "long enough" not in desk.said


def test_wrong_answer_is_told_and_the_step_is_asked_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [ENTER, "9", "3", ENTER, "192.168.7.20", ENTER, ENTER,
                           ENTER, ENTER, "192.168.7.20/24", ENTER, ENTER])  # fmt: skip
    assert desk.lines.talk() == LEFT
    assert "! Type the number of one of them." in desk.said
    assert "! The prefix is missing: write it as 192.168.7.20/24." in desk.said
    assert desk.lines.answers["net.address"] == "192.168.7.20/24"
    assert "Time (step 3 of 9)" in desk.said


def test_less_than_goes_a_step_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [ENTER, ENTER, "2", "<", ENTER, "1", "<", "<"])
    desk.lines.talk()
    steps = [line.split(" (")[0] for line in desk.told if "(step " in line]
    assert steps == ["Language", "Network", "Time", "Network", "Time", "Login", "Time", "Network"]
    assert desk.lines.answers["time.how"] == "keep"


def test_dash_empties_what_stands_there(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [ENTER, ENTER, "3", "-"])
    desk.lines.talk()
    assert "'' is no time" in desk.said


def test_leaving_writes_nothing_wherever_it_is(tmp_path: Path) -> None:
    typed = [ENTER, "2", ENTER, *KEEP[2:], "n", *KEEP]
    for many in range(len(typed)):
        desk = Desk(tmp_path / str(many), typed[:many])
        assert desk.lines.talk() == LEFT
        assert desk.shelf.ran == []
        assert "Nothing was written" in desk.said
        assert not (tmp_path / str(many) / "var").exists()


def test_failure_is_told_and_the_box_listed(tmp_path: Path) -> None:
    shelf = Shelf(fails="chpasswd")
    typed = [*KEEP[:3], "long enough", "long enough", *KEEP[5:], "y", "n"]
    desk = Desk(tmp_path, typed, shelf)
    assert desk.lines.talk() == LEFT
    assert "! Not done: chpasswd: it failed." in desk.said
    assert "This box, 3 to do:" in desk.said


def test_in_chinese(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ["2", *KEEP[1:], "y"])
    assert desk.lines.talk() == FINISHED
    assert "网络 (第 2 步，共 9 步)" in desk.said
    assert "待办  登录：root 没有密码" in desk.said or "待办  登录: root 没有密码" in desk.said


def test_terminal_is_not_steered_by_what_the_machine_says(tmp_path: Path) -> None:
    shelf = Shelf(keys={"a\x1b[2J": "admin"}, models=("m\x07",))
    desk = Desk(tmp_path, KEEP, shelf)
    desk.lines.talk()
    assert "\x1b" not in desk.said
    assert "\x07" not in desk.said
    assert r"a\x1b[2J" in desk.said


def test_set_up_can_be_done_again(tmp_path: Path) -> None:
    """What was answered stands there, and leaving then is no failure."""
    first = Desk(tmp_path, [ENTER, "3", "1", "10.0.0.5/8", ENTER, ENTER, *KEEP[2:], "y", "y"])
    assert first.lines.talk() == FINISHED
    again = Desk(tmp_path, [ENTER])
    assert again.lines.talk() == FINISHED
    assert "as it is: 10.0.0.5/8" in again.said


def test_answers_of_the_bench_lead_to_the_end(tmp_path: Path) -> None:
    """`bench.images` gives them to a booted machine, which has no network."""
    shelf = Shelf(models=(PACKAGED,))
    machine(tmp_path, interfaces=0)
    desk = Desk(tmp_path, images_setup.answers("1"), shelf)
    assert desk.lines.talk() == FINISHED
    assert {"app-1", "admin-1"} <= set(shelf.keys)
    assert desk.lines.facts.serves == "0.0.0.0"


@pytest.mark.parametrize("said", ["y", "Y", " y "])
def test_yes_is_yes(tmp_path: Path, said: str) -> None:
    assert Desk(tmp_path, [*KEEP, "maybe", said]).lines.talk() == FINISHED
    assert not (tmp_path / plan.PENDING).exists()
