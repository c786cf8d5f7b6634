"""Updates of a machine in files, cut off after every step: prints what became of each as JSON.

A program of its own, for it forks: `python -m tests.unit.update_runs FOLDER`.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.bundle import record as records
from appliance.bundle.errors import BundleError
from appliance.bundle.record import KILL
from appliance.bundle.update import Updater

from .bundle_box import FileMachine, make_bundle, opened

STEPS = {
    "good": (
        "begun",
        "cleared",
        "filled",
        "proven",
        "backed-up",
        "switching",
        "switched",
        "trial",
        "started",
        "done",
    ),
    "back": ("switched", "fitted", "trial", "started", "done"),
    "bad": ("started", "returning", "returned-link", "restored", "returned"),
}
"""After which an update is cut off: one that would go well, the way back from such a one with the
state from before, and one whose version never starts."""
MANY = 8
"""Boots, of which the last must find nothing left to do."""


def main(home: Path) -> list[dict[str, Any]]:
    old = make_bundle(home / "old", version="0.1.0")
    new = make_bundle(home / "new", version="0.2.0")
    return [
        one(home / f"{kind}-{step}-{after}", old, new, kind, step, after)
        for kind, steps in STEPS.items()
        for step in steps
        for after in (("settle", "boot") if kind == "back" else ("update", "settle", "boot"))
    ]


def one(home: Path, old: Path, new: Path, kind: str, step: str, after: str) -> dict[str, Any]:
    home.mkdir()
    machine = FileMachine(home, bad="0.2.0" if kind == "bad" else "")
    machine.install_first(old)
    updater = Updater(machine.layout, machine)
    if kind == "back":
        updater.update(opened(new))
        status = in_child(step, lambda: updater.rollback(with_backup=True))
    else:
        status = in_child(step, lambda: updater.update(opened(new)))
    (home / "running").write_text("")  # the power went
    told = ""
    try:
        {"update": again, "settle": settle, "boot": boot}[after](machine, new)
    except BundleError as error:
        told = str(error)
    record = records.read(machine.layout.record)
    assert record is not None
    in_use = machine.layout.in_use()
    assert in_use is not None
    version = machine.layout.installed(in_use)
    return {
        "kind": kind,
        "step": step,
        "after": after,
        "killed": os.WIFSIGNALED(status),
        "in_use": version.version if version is not None else "",
        "running": machine.get("running"),
        "ledger": machine.get("ledger"),
        "units": machine.get("units"),
        "phase": record.phase,
        "told": told,
    }


def in_child(step: str, work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        os.environ[KILL] = step
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def again(machine: FileMachine, new: Path) -> None:
    Updater(machine.layout, machine).update(opened(new))


def settle(machine: FileMachine, _: Path) -> None:
    Updater(machine.layout, machine).settle()


def boot(machine: FileMachine, _: Path) -> None:
    """As systemd does it: look after the update, start, confirm; again while it fails."""
    for _attempt in range(MANY):
        updater = Updater(machine.layout, machine)
        updater.before_start()
        in_use = machine.layout.in_use()
        assert in_use is not None
        if not machine.boot(in_use):
            updater.after_start()
            return


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
