"""Commands of a user who may not open the box's state say that, and nothing of damaged files."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.alone import CannotServe, refuse_strangers
from appliance.cli import run
from tests.unit.keys_parts import make_store

COMMANDS = [
    "audit export {out}",
    "audit key",
    "audit log",
    "audit seal",
    "audit verify",
    "backup take {out}",
    "calibrate",
    "calibrate status",
    "calibrate versions",
    "control replay",
    "cost rates",
    "cost report",
    "keys create a",
    "keys list",
    "model list",
    "model use x",
    "model verify",
    "requests list",
    "requests show 1",
    "selftest",
    "serve --port 0",
    "tenants list",
    "tls export-ca {out}/ca.pem",
    "tls renew",
    "tls show",
    "tune",
    "tune clear",
    "tune show",
    "usage",
]


@pytest.fixture
def shut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory that nobody may open. Root may open everything: access is said to be
    refused to him, as the kernel would refuse it to others."""
    state = tmp_path / "state"
    state.mkdir(mode=0o000)
    (tmp_path / "out").mkdir()
    ask = os.access

    def access(path: Any, mode: int, **more: Any) -> bool:
        return os.fspath(path) != os.fspath(state) and ask(path, mode, **more)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setenv("STEELYARD_STATE", str(state))
    yield state
    state.chmod(0o700)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stranger_is_told_to_be_somebody_else(
    shut: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    arguments = [part.format(out=shut.parent / "out") for part in command.split()]
    assert run(arguments) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{shut} belongs to another user" in err
    assert "run this as root" in err
    assert not any((shut.parent / "out").iterdir())
    shut.chmod(0o700)
    assert not any(shut.iterdir())


def test_a_directory_below_one_that_is_shut_is_shut(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(Path, "stat", refused)
    with pytest.raises(CannotServe, match="belongs to another user"):
        refuse_strangers(Path("/var/lib/private/steelyard"))


def test_a_directory_that_is_not_there_refuses_nobody(tmp_path: Path) -> None:
    refuse_strangers(tmp_path / "not" / "there")
    refuse_strangers(tmp_path)


def test_a_file_in_its_place_is_no_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("STEELYARD_STATE", str(place))
        assert run(["keys", "list"]) == 1
        err = capfd.readouterr().err
        assert f"{place} " in err
        assert "server.state_dir" in err
        assert "moved away" not in err
    assert run(["doctor", "--only", "permissions"]) == 1


def _io_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


def test_a_sound_ledger_that_cannot_be_read_now_is_not_to_be_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = make_store(tmp_path).create("app", ["infer"])
    store = make_store(tmp_path)
    store.path.chmod(0o666)
    assert store.problem.endswith("(chmod 600 it). Nobody can authenticate until that is mended")
    store.path.chmod(0o600)
    assert store.authenticate(secret) is not None

    def failed(*_: object, **__: object) -> None:
        raise _io_error()

    monkeypatch.setattr(sqlite3, "connect", failed)
    told = make_store(tmp_path).problem
    assert "check its free space" in told
    assert "moved away" not in told


@pytest.mark.parametrize("plots", ["appliance.calibrate.plots", "appliance.study.plots"])
def test_pictures_are_drawn_without_a_home_and_without_a_word(plots: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"import {plots}, matplotlib.figure"],
        env={"PATH": os.environ["PATH"], "HOME": "/proc/nobody"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_keys_that_cannot_be_read_are_said_so_once(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"x" * 4096)
    (tmp_path / "ledger.sqlite").chmod(0o600)
    ended = subprocess.run(
        [sys.executable, "-m", "appliance", "keys", "list"],
        env={**os.environ, "STEELYARD_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr.count("the keys cannot be read")) == (1, 1)


def test_a_model_file_can_be_looked_at_by_anybody(
    shut: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["model", "info", str(shut.parent / "none.gguf")]) == 1
    assert "another user" not in capfd.readouterr().err
