"""A ledger of which a bit has turned, so that a row is no text any more, is damaged."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.cli import run
from appliance.ledger.errors import LedgerError
from appliance.ledger.writer import Ledger
from tests.unit.keys_parts import make_store


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound SQLite file, whose last entry holds a byte that no text holds."""
    make_store(tmp_path).create("app-of-the-tenant", ["infer"])
    (path,) = tmp_path.glob("**/ledger.sqlite")
    with closing(sqlite3.connect(path)) as db:
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        body = db.execute("SELECT CAST(body AS BLOB) FROM entries").fetchone()[0]
        changed = bytes(body).replace(b"tenant", b"t\xffnant")
        db.execute("UPDATE entries SET body = CAST(? AS TEXT)", (changed,))
        db.commit()
    monkeypatch.setenv("STEELYARD_STATE", str(path.parent))
    return path


def test_it_is_not_opened_and_what_to_do_is_said(damaged: Path) -> None:
    with pytest.raises(
        LedgerError, match=r"is damaged: keep a copy .* \(a row is no text\)"
    ) as told:
        Ledger.open(damaged)
    assert "app-of" not in str(told.value)


@pytest.mark.parametrize("command", ["audit seal", "audit log"])
def test_commands_say_so_too_and_nothing_of_what_the_row_holds(
    damaged: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(command.split()) == 1
    err = capsys.readouterr().err
    assert "restore the newest backup that verifies" in err
    assert "OperationalError" not in err
    assert "app-of" not in err


def test_its_verification_names_the_row(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "verify"]) == 1
    assert "row 1" in capsys.readouterr().out
