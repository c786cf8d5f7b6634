"""How a calibration is known to others: its files, whoever began it."""

import os
from pathlib import Path

import pytest

from appliance.calibrate.generate import Progress
from appliance.calibrate.status import BusyError, Result, Status, StatusFiles, Wish
from appliance.calibrate.teller import Ears, Stopped, Teller
from appliance.commands.calibratetext import line_of


def test_before_any_calibration_there_is_none(tmp_path: Path) -> None:
    files = StatusFiles(tmp_path)
    assert files.read() == Status()
    assert not files.running
    assert files.wished == "go"


def test_status_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    files, status = StatusFiles(tmp_path), Status(state="done", result=Result(why="it wins"))
    files.write(status)
    assert files.read() == status
    assert [file.name for file in files.folder.iterdir()] == ["status.json"]


def test_one_that_was_killed_is_told_as_failed_and_that_its_answers_are_kept(
    tmp_path: Path,
) -> None:
    files = StatusFiles(tmp_path)
    files.write(Status(state="running", phase="generate", done=3, total=9))
    found = files.read()
    assert (found.state, found.done) == ("failed", 3)
    assert "it goes on" in found.problem


def test_two_calibrations_never_run_at_once(tmp_path: Path) -> None:
    files = StatusFiles(tmp_path)
    with files.take():
        files.write(Status(state="running"))
        assert StatusFiles(tmp_path).read().state == "running"
        with pytest.raises(BusyError, match="runs already"):
            StatusFiles(tmp_path).take()
    assert not files.running


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"state": "odd"}', b"\xff\xfe"])
def test_a_corrupt_status_is_told_and_stops_nothing(tmp_path: Path, data: bytes) -> None:
    files = StatusFiles(tmp_path)
    files.write(Status())
    (files.folder / "status.json").write_bytes(data)
    assert "cannot be read: remove it" in files.read().problem
    files.write(Status(state="done"))
    assert files.read().state == "done"


@pytest.mark.parametrize("text", ["hold", " stop\n", "nonsense", "\udcff"])
def test_a_wish_that_is_none_counts_as_go(tmp_path: Path, text: str) -> None:
    files = StatusFiles(tmp_path)
    files.wish("go")
    (files.folder / "wish").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert files.wished == {"hold": "hold", " stop\n": "stop"}.get(text, "go")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def teller(tmp_path: Path, told: list[Status], wish: Wish = "go") -> tuple[Teller, Clock]:
    clock = Clock()
    ears = Ears(StatusFiles(tmp_path), told.append, lambda: wish, clock)
    return Teller(ears, Status(state="running", pid=os.getpid())), clock


def test_phases_are_told_at_once_and_progress_only_now_and_then(tmp_path: Path) -> None:
    told: list[Status] = []
    one, clock = teller(tmp_path, told)
    one.phase("generate", 10)
    one.generated(Progress(1, 10, 2.0, 4.5, ""))
    assert [status.phase for status in told] == ["prepare", "generate"]
    clock.now = 1.0
    one.generated(Progress(2, 10, 2.0, 4.0, "operator"))
    assert (told[-1].done, told[-1].eta_ms, told[-1].held) == (2, 4000, True)
    one.end(Result(why="it wins"))
    assert StatusFiles(tmp_path).read().state == "done"


def test_a_wish_to_stop_ends_training_as_well(tmp_path: Path) -> None:
    one, _ = teller(tmp_path, [], "stop")
    with pytest.raises(Stopped):
        one.share(0.5)
    with pytest.raises(Stopped):
        one.phase("train")


def test_a_status_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "calibration").write_text("a file where a folder should be")
    told: list[Status] = []
    one, _ = teller(tmp_path, told)
    one.failed("no room")
    assert told[-1].problem == "no room"


def test_the_command_line_tells_each_state_in_a_sentence() -> None:
    running = Status(state="running", phase="generate", done=612, total=1000, eta_ms=1_320_000)
    assert line_of(running) == ("generate [###############.........]  61 %  612/1000  ETA 22 min")
    assert "starts one" in line_of(Status())
    assert line_of(Status(state="failed", problem="no room")) == "failed: no room"
    assert "kept" in line_of(Status(state="stopped"))
    held = Status(state="running", phase="generate", total=4, waits="others")
    assert line_of(held).endswith("ETA ?  waits, the box is busy")


def test_status_names_stay_as_consoles_know_them() -> None:
    known = set(Status.__struct_fields__)
    assert known >= {"state", "phase", "done", "total", "rate", "eta_ms", "held", "waits", "by",
                     "problem", "result", "model", "started_ms", "ended_ms"}  # fmt: skip
