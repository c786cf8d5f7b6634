"""What an update asks of a real machine: files in their places, a real ledger, a real backup."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from appliance.bundle import durable, inside, placing
from appliance.bundle.errors import BundleError
from appliance.bundle.layout import Layout, other
from appliance.bundle.machine import RealMachine
from appliance.bundle.placing import Placed
from appliance.bundle.record import Record
from appliance.ledger.database import connect

from .bundle_box import KEY


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A tree whose slot a runs the code under test."""
    made = Layout(tmp_path / "root")
    python = made.python("a")
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    made.config.parent.mkdir(parents=True)
    made.config.write_text('[server]\nstate_dir = "/srv/box"\n')
    made.state_dir().mkdir(mode=0o700, parents=True)
    made.switch("a")
    return made


def ledger_of(layout: Layout) -> Path:
    ledger = layout.state_dir() / "ledger.sqlite"
    connect(ledger).close()
    return ledger


def test_the_state_lies_where_the_configuration_says(layout: Layout) -> None:
    assert layout.state_dir() == layout.root / "srv/box"
    layout.config.write_text("")
    assert layout.state_dir() == layout.root / "var/lib/steelyard"
    for bad in ("[server", "server = 1", '[server]\nstate_dir = "here"\n'):
        layout.config.write_text(bad)
        with pytest.raises(BundleError, match=r"steelyard\.toml"):
            layout.state_dir()


def test_the_link_is_switched_and_never_missing(layout: Layout) -> None:
    layout.switch("b")
    assert layout.in_use() == "b"
    assert layout.current.readlink() == Path("slots/b")
    layout.current.unlink()
    layout.current.symlink_to("somewhere/else")
    assert layout.in_use() is None
    assert (other("a"), other("b")) == ("b", "a")


def test_keys_that_are_trusted_lie_beside_the_configuration(layout: Layout) -> None:
    with pytest.raises(BundleError, match=r"bundle\.pub is missing"):
        layout.trusted_keys()
    layout.trusted.write_text(KEY.public.text())
    assert layout.trusted_keys() == (KEY.public,)


def test_a_backup_before_an_update_can_be_brought_back(layout: Layout) -> None:
    machine = RealMachine(layout, None)
    assert machine.backup("a", "0.1.0") == ""
    ledger = ledger_of(layout)
    backup = machine.backup("a", "0.1.0")
    assert Path(backup).parent == layout.backups
    assert Path(backup).stat().st_mode & 0o077 == 0
    assert machine.refused("a") == ""

    make_newer(ledger)
    assert "newer" in machine.refused("a")
    machine.restore("a", backup)
    assert machine.refused("a") == ""


def make_newer(ledger: Path) -> None:
    """As a later version with one more step of the schema would leave it."""
    db = Database(ledger, execute_plugins=False)
    db.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
        " VALUES ('steelyard.ledger', 'm999_of_tomorrow', '2030-01-01')"
    )
    db.conn.commit()
    db.close()


def test_the_proof_is_of_a_copy_of_the_ledger(
    layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = ledger_of(layout)
    before = ledger.read_bytes()
    work = tmp_path / "work"
    work.mkdir()
    assert inside.main(["migrate", str(ledger), str(work)]) == 0
    assert (work / "ledger.sqlite").exists()
    assert ledger.read_bytes() == before
    make_newer(ledger)
    (work / "ledger.sqlite").unlink()
    assert inside.main(["migrate", str(ledger), str(work)]) == 1
    assert "newer" in capsys.readouterr().err


def test_the_end_of_an_update_is_an_entry_of_the_ledger(layout: Layout) -> None:
    machine = RealMachine(layout, None)
    record = Record("done", "b", "a", "0.1.0", "0.2.0", "ab" * 32)
    machine.note(record)  # no ledger, no entry, no harm
    ledger = ledger_of(layout)
    machine.note(record)
    db = Database(ledger, execute_plugins=False)
    bodies = [json.loads(row[0]) for row in db.execute("SELECT body FROM entries").fetchall()]
    db.close()
    (noted,) = [body for body in bodies if body.get("action") == "update.done"]
    assert noted["target"] == "0.2.0"
    assert noted["detail"]["from"] == "0.1.0"


def test_a_configuration_that_the_new_version_refuses_stops_the_update(layout: Layout) -> None:
    layout.config.write_text('[server]\nstate_dir = "/srv/box"\nporrt = 1\n')
    with pytest.raises(BundleError, match=r"fails `steelyard config check`(?s:.*)server\.port"):
        RealMachine(layout, None).prove("a")


def test_a_version_whose_selftest_fails_is_told_with_its_words(layout: Layout) -> None:
    seen = layout.root / "seen"
    (layout.state_dir() / "models").mkdir()
    layout.python("a").write_text(
        f"""#!/bin/sh
echo "$4" >> "{seen}"
[ "$4" = selftest ] || exit 0
[ -e "$STEELYARD_SERVER_STATE_DIR/models/." ] && echo "failed: no tensor fits"
exit 1
"""
    )
    with pytest.raises(BundleError, match="fails `steelyard selftest --config`: failed: no tensor"):
        RealMachine(layout, None).prove("a")
    assert seen.read_text().split() == ["config", "selftest"]
    assert not list(layout.base.glob(".work-*"))


def put_system(slot: Path, text: str) -> None:
    folder = slot / placing.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "box.service").write_text(text)
    (folder / "box.toml").write_text(text)
    (folder / "setup").write_text(text)
    unit = "/etc/systemd/system/box.service"
    files = [
        Placed("box.service", unit, 0o644, appliance=False, keep=False),
        Placed("box.toml", "/etc/box/box.toml", 0o644, appliance=False, keep=True),
        Placed("setup", "/usr/libexec/box/setup", 0o755, appliance=True, keep=False),
    ]
    rows = [{name: getattr(file, name) for name in Placed.__slots__} for file in files]
    (folder / placing.LAYOUT).write_text(json.dumps({"files": rows, "enabled": ["box.service"]}))


def test_files_of_a_slot_are_placed_and_the_operators_stay(tmp_path: Path) -> None:
    slot, root = tmp_path / "slot", tmp_path / "root"
    put_system(slot, "first")
    folder = slot / placing.FOLDER
    assert placing.place(folder, root, appliance=False, enable=True)
    assert not placing.place(folder, root, appliance=False, enable=True)
    assert not placing.is_appliance(folder, root)
    assert (root / "etc/systemd/system/box.service").read_text() == "first"
    wants = root / "etc/systemd/system/multi-user.target.wants/box.service"
    assert wants.readlink() == Path("/etc/systemd/system/box.service")
    assert not (root / "usr/libexec/box/setup").exists()

    wants.unlink()  # the operator has disabled it
    put_system(slot, "second")
    assert placing.place(folder, root, appliance=False, enable=False)
    assert (root / "etc/systemd/system/box.service").read_text() == "second"
    assert (root / "etc/box/box.toml").read_text() == "first"
    assert not os.path.lexists(wants)

    placing.place(folder, root, appliance=True, enable=False)
    assert (root / "usr/libexec/box/setup").stat().st_mode & 0o777 == 0o755
    assert placing.is_appliance(folder, root)


@pytest.mark.parametrize(
    "change",
    [
        {"source": "../../etc/shadow"},
        {"source": "/etc/shadow"},
        {"target": "/root/.ssh/authorized_keys"},
        {"target": "/etc/../root/x"},
        {"target": "etc/x"},
        {"mode": 0o4755},
    ],
    ids=str,
)
def test_a_file_that_goes_elsewhere_is_refused(change: dict[str, Any]) -> None:
    good = Placed("a", "/etc/a", 0o644, appliance=False, keep=False)
    with pytest.raises(BundleError, match="the bundle would put"):
        replace(good, **change)


@pytest.mark.parametrize("swaps", [True, False])
def test_switching_brings_the_slots_units_and_its_guard(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    """Also on a file system that cannot swap two names."""
    machine = RealMachine(layout, None)
    if not swaps:
        monkeypatch.setattr(durable, "exchange", lambda one, other: False)
    for name in ("a", "b"):
        put_system(layout.slot(name), name)
        guard = layout.slot(name) / "installer/__main__.py"
        guard.parent.mkdir()
        guard.write_text(f"# {name}\n")
        machine.place(name)
        assert (layout.root / "etc/systemd/system/box.service").read_text() == name
        assert (layout.boot / "__main__.py").read_text() == f"# {name}\n"
    assert {path.name for path in layout.base.iterdir()} == {"boot", "current", "slots"}


def test_there_is_a_guard_whenever_the_power_fails(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without one, nothing would count the starts of a version on trial. A file system that cannot
    swap two names leaves a moment without one, and then the new one all the same."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    swaps = durable.exchange(tmp_path / "one", tmp_path / "other")
    machine = RealMachine(layout, None)
    for name in ("a", "b"):
        (layout.slot(name) / "installer").mkdir(parents=True)
        (layout.slot(name) / "installer/__main__.py").write_text(name)
    machine.place("a")
    seen = list[tuple[str, bool]]()

    def watched(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **named: Any) -> Any:
            seen.append((f"before {name}", (layout.boot / "__main__.py").is_file()))
            done = does(*arguments, **named)
            seen.append((f"after {name}", (layout.boot / "__main__.py").is_file()))
            return done

        return do

    for name in ("rename", "replace", "unlink", "rmdir", "fsync"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    machine.place("b")
    assert len(seen) > 4
    assert not swaps or [event for event, there in seen if not there] == []
    assert (layout.boot / "__main__.py").read_text() == "b"
