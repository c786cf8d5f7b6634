"""A file that a long command cannot write in the end is refused in the beginning."""

import os
from pathlib import Path
from typing import Any

import pytest

from appliance.calibrate import job
from appliance.cli import run
from appliance.support import parts


@pytest.fixture(autouse=True)
def _nothing_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the long part was begun")

    monkeypatch.setattr(parts, "gather", begun)
    monkeypatch.setattr(job, "calibrate", begun)
    monkeypatch.setenv("STEELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("STEELYARD_URL", raising=False)


COMMANDS = (["support"], ["calibrate", "--output"], ["calibrate", "--report"])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_in_no_directory_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (tmp_path / "file").touch()
    for place in ("none/out", "file/out"):
        assert run([*command, str(tmp_path / place)]) == 1
        assert "is no directory. Make it, or name another" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_that_this_user_may_not_write_is_refused_at_once(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    ask = os.access

    def access(path: Any, mode: int, **more: Any) -> bool:
        return os.fspath(path) != os.fspath(tmp_path) and ask(path, mode, **more)

    monkeypatch.setattr(os, "access", access)
    assert run([*command, str(tmp_path / "out")]) == 1
    assert "is not to be written by this user" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_in_its_place_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (tmp_path / "out").mkdir()
    assert run([*command, str(tmp_path / "out")]) in (1, 2)  # some options say it by themselves
    assert "directory" in capsys.readouterr().err


def test_a_support_bundle_that_is_there_is_told_of_before_all_is_gathered_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").touch()
    assert run(["support", str(tmp_path / "out")]) == 1
    assert "is there already: name another file, or give --force" in capsys.readouterr().err
