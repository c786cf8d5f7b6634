"""Kills a backup, a restore or a migration at each of its steps, and says what was found after it.

    python backup_kills.py take|restore|carry|migrate FOLDER

A step is a call that changes a directory. The process forks for each,
so it starts no threads. Prints JSON: one object for each step that was reached.
"""

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.backup import backups, finish, restore, take, verify
from appliance.ledger.database import connect
from tests.unit.backup_parts import contents
from tests.unit.proof_ledger import verdict_of

STEPS = ("rename", "replace", "unlink", "mkdir", "link")
MOST = 400


def kill_at(step: int) -> Callable[[], int]:
    """From now on, the process dies in place of the step of that number. How many there were."""
    seen = 0

    def counted(true: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return true(*given, **named)

        return call

    os.fsync = lambda handle: None  # who is killed leaves the kernel's memory as it is
    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    return lambda: seen


def killed(step: int, job: Callable[[], object]) -> bool:
    """Whether it got so far; else it ended by itself."""
    child = os.fork()
    if child == 0:
        kill_at(step)
        try:
            job()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def each(folder: Path, job: Callable[[Path], object], look: Callable[[Path], Any]) -> list[Any]:
    """`folder/given` is what each attempt starts from."""
    found: list[Any] = []
    for step in range(1, MOST):
        place = folder / f"{step:03d}"
        shutil.copytree(folder / "given", place)
        if not killed(step, lambda place=place: job(place)):  # type: ignore[misc]
            return found
        found.append(look(place))
        shutil.rmtree(place)
    raise AssertionError("it never ended")


def after_take(place: Path) -> dict[str, Any]:
    """What lies in the target, and whether another one cleans up and is whole."""
    whole = [verify(one.path).problems for one in backups(place / "usb")]
    taken = take(place / "state", place / "usb/again")
    return {
        "whole": [list(problems) for problems in whole],
        "again": list(verify(taken.path).problems),
        "hidden": [
            path.name for path in place.rglob(".*") if "work" in path.name or "partial" in path.name
        ],
        "state": contents(place / "state") == contents(place.parent / "given/state"),
    }


def after_restore(place: Path) -> dict[str, Any]:
    """Which state the next start of the box finds, and whether all of it is there."""
    went_on = finish(place / "state")
    state, given = place / "state", place.parent / "given"
    heads = {name: (place.parent / name).read_text() for name in ("old", "new")}
    verdict = verdict_of(state / "ledger.sqlite")
    mark = (state / "tuned.json").read_text()
    aside = sorted((state / "replaced").glob("*/ledger.sqlite"))
    kept = [verdict_of(path).head for path in aside]
    return {
        "went_on": went_on,
        "sound": verdict.ok,
        "old": verdict.head == heads["old"] and mark == "old",
        "new": verdict.head != heads["old"] and mark == "new",
        "same": contents(state) == contents(given / "state"),
        "kept": kept == [heads["old"]],
        "left": (state / ".restoring").exists(),
        "weights": (state / "models/tiny/tiny.gguf").exists(),
    }


def after_migrate(place: Path) -> dict[str, Any]:
    """The ledger opens and is sound; what is kept of the old one is whole."""
    connect(place / "ledger.sqlite").close()
    copies = sorted((place / "replaced").glob("*.sqlite"))
    return {
        "sound": verdict_of(place / "ledger.sqlite").ok,
        "kept": [verdict_of(path).ok for path in copies],
    }


def on_disks_of_their_own() -> None:
    """From now on, nothing can be renamed into the folder of the models or out of it."""
    true = os.rename

    def rename(source: str | Path, target: str | Path) -> None:
        if is_model(Path(source)) != is_model(Path(target)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
        true(source, target)

    os.rename = rename  # type: ignore[assignment]


def is_model(path: Path) -> bool:
    return path.parent.parts[-2:] == ("state", "models") and ".restoring" not in path.parts


def main(what: str, folder: Path) -> list[Any]:
    if what == "take":
        return each(folder, lambda place: take(place / "state", place / "usb"), after_take)
    if what == "carry":
        on_disks_of_their_own()
    if what in ("restore", "carry"):
        return each(
            folder,
            lambda place: restore(folder / "backup", place / "state", force=True),
            after_restore,
        )
    return each(folder, lambda place: connect(place / "ledger.sqlite").close(), after_migrate)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
