"""`steelyard backup` and `steelyard restore` as an operator types them."""

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.backup import sealing
from appliance.cli import FAILED, USAGE, run
from tests.unit.backup_parts import MODEL, PASSPHRASE, make_state


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = tmp_path / "steelyard.toml"
    config.write_text('[server]\nstate_dir = "state"\n')
    monkeypatch.setenv("STEELYARD_CONFIG", str(config))
    monkeypatch.setattr(sealing, "N", 1 << 10)
    (tmp_path / "usb").mkdir()
    return make_state(tmp_path / "state")


@pytest.fixture
def usb(tmp_path: Path) -> Path:
    return tmp_path / "usb"


Said = pytest.CaptureFixture[str]


def actions(state: Path) -> list[str]:
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
        rows = db.execute("SELECT action FROM entries WHERE kind = 'action' ORDER BY seq")
        return [name for (name,) in rows]


def test_a_backup_is_taken_listed_verified_and_restored(
    state: Path, usb: Path, tmp_path: Path, capsys: Said
) -> None:
    assert run(["backup", str(usb)]) == 0
    (path,) = usb.iterdir()
    assert capsys.readouterr().out.startswith(f"{path}\n")
    assert run(["backup", "list", str(usb)]) == 0
    assert path.name in capsys.readouterr().out
    assert run(["backup", "verify", str(path)]) == 0
    said = capsys.readouterr().out
    assert "every byte is as it was written" in said
    assert f"models: {MODEL} (their names only)" in said
    assert run(["restore", str(path), "--into", str(tmp_path / "new")]) == 0
    said = capsys.readouterr()
    assert f"its configuration is {tmp_path / 'new/restored/steelyard.toml'}" in said.out
    assert f"steelyard model use {MODEL}" in said.err


def test_taking_a_backup_is_an_entry_of_the_ledger(state: Path, usb: Path) -> None:
    assert run(["backup", str(usb)]) == 0
    assert actions(state)[-1] == "backup"


def test_a_restore_that_is_refused_says_why_and_ends_with_1(
    state: Path, usb: Path, capsys: Said
) -> None:
    assert run(["backup", str(usb / "b")]) == 0
    assert run(["restore", str(usb / "b")]) == FAILED
    said = capsys.readouterr().err
    assert "--force" in said
    assert "Traceback" not in said
    assert run(["restore", str(usb / "b"), "--force"]) == 0
    assert actions(state)[-1] == "restore"


def test_an_unsound_ledger_ends_with_1_in_backup_and_in_verify(
    state: Path, usb: Path, capsys: Said
) -> None:
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db, db:
        db.execute("UPDATE entries SET body = replace(body, 'acme', 'evil') WHERE seq = 3")
    assert run(["backup", str(usb / "b")]) == 1
    assert "Warning: the ledger in it is not sound" in capsys.readouterr().err
    assert run(["backup", "verify", str(usb / "b")]) == 1
    assert run(["backup", "verify", str(usb / "b"), "--json"]) == 1
    out = capsys.readouterr().out
    assert json.loads(out[out.rindex("\n{") :])["problems"]


def test_json_is_for_programs(usb: Path, capsys: Said) -> None:
    assert run(["backup", "take", str(usb), "--json", "--keep", "2"]) == 0
    taken = json.loads(capsys.readouterr().out)
    assert Path(taken["path"]).parent == usb
    assert taken["bytes"] == Path(taken["path"]).stat().st_size
    assert run(["backup", "list", str(usb), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["path"], row["head_seq"], row["encrypted"]) == (
        taken["path"], taken["head_seq"], False,
    )  # fmt: skip


def test_a_passphrase_comes_from_the_first_line_of_a_file(
    usb: Path, tmp_path: Path, capsys: Said
) -> None:
    file = tmp_path / "passphrase"
    file.write_bytes(PASSPHRASE + b"\r\nnot this\n")
    given = ["--passphrase-file", str(file)]
    assert run(["backup", "take", str(usb), *given]) == 0
    (path,) = usb.iterdir()
    assert run(["backup", "verify", str(path), *given]) == 0
    assert "encrypted" in capsys.readouterr().out
    file.write_bytes(PASSPHRASE + b" ")
    assert run(["backup", "verify", str(path), *given]) == FAILED
    assert "the passphrase is not the one" in capsys.readouterr().err
    assert run(["backup", "list", str(usb)]) == 0
    assert "encrypted" in capsys.readouterr().out


def test_without_a_terminal_nothing_is_asked(
    usb: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run(["backup", "take", str(usb), "--encrypt"]) == FAILED
    assert "give --passphrase-file" in capsys.readouterr().err
    assert list(usb.iterdir()) == []


def test_keep_needs_a_directory(usb: Path, capsys: Said) -> None:
    assert run(["backup", "take", str(usb / "b"), "--keep", "3"]) == USAGE
    assert "--keep needs a directory" in capsys.readouterr().err
    assert list(usb.iterdir()) == []


def test_what_a_backup_says_of_itself_does_not_steer_the_terminal(
    usb: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "evil\x1b[2J")
    assert run(["backup", str(usb / "b.steelyard-backup")]) == 0
    capsys.readouterr()
    assert run(["backup", "list", str(usb)]) == 0
    assert "\x1b" not in capsys.readouterr().out
