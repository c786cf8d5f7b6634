"""The end of an update is noted in the ledger once, whoever sees it first: the guard, which systemd
runs when the box has started, or the command that waits for it."""

from pathlib import Path

import pytest

from appliance.bundle.errors import BundleError
from appliance.bundle.record import Record
from appliance.bundle.update import TRIES, Updater

from .bundle_box import FileMachine, make_bundle, opened


class Guarded(FileMachine):
    """What `systemctl restart` does: the guard runs before the box and after it."""

    def __init__(self, home: Path, bad: str = "") -> None:
        super().__init__(home, bad=bad)
        self.noted: list[str] = []
        self.install_first(make_bundle(home / "old", version="0.1.0"))

    def start(self) -> str:
        fault = ""
        for _ in range(TRIES + 1):
            guard = Updater(self.layout, self)
            guard.before_start()
            in_use = self.layout.in_use()
            assert in_use is not None
            fault = self.boot(in_use)
            if not fault:
                guard.after_start()
                break
        return fault

    def note(self, record: Record) -> None:
        self.noted.append(record.phase)


def update(machine: Guarded, home: Path) -> Record:
    new = make_bundle(home / "new", version="0.2.0")
    return Updater(machine.layout, machine).update(opened(new))


def test_a_good_update_is_noted_once(tmp_path: Path) -> None:
    machine = Guarded(tmp_path)
    assert update(machine, tmp_path).phase == "done"
    assert machine.noted == ["done"]


def test_a_return_is_noted_once(tmp_path: Path) -> None:
    machine = Guarded(tmp_path, bad="0.2.0")
    with pytest.raises(BundleError, match="is in use again"):
        update(machine, tmp_path)
    assert machine.get("running") == "0.1.0"
    assert machine.noted == ["returned"]


def test_the_next_update_is_noted_again(tmp_path: Path) -> None:
    machine = Guarded(tmp_path)
    update(machine, tmp_path)
    updater = Updater(machine.layout, machine)
    assert updater.rollback(with_backup=True).phase == "done"
    assert machine.noted == ["done", "done"]
