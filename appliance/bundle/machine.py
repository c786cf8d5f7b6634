"""What an update asks of the machine, and of the code in its slots. Standard library only.

Whatever needs more than the standard library is asked of a slot's own code in a child process, so
that each version judges with its own eyes: the new one whether it can take the ledger over, the old
one whether it still can.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from appliance.bundle import bringing, durable, filling, placing
from appliance.bundle.errors import BundleError
from appliance.bundle.folder import Opened, Say, Tell
from appliance.bundle.layout import Layout
from appliance.bundle.record import Record
from appliance.bundle.unit import Unit

LEDGER = "ledger.sqlite"
_KEPT = 5
_ASK_S = 3600


class Machine(Protocol):
    """All that an update does to a machine but for the link and the record."""

    def room(self) -> int:
        """Bytes free where the slots are."""

    def fill(self, name: str, opened: Opened, tell: Tell) -> None: ...

    def bring(self, name: str, opened: Opened, say: Say) -> None:
        """Models and firmware of the bundle, into the state."""

    def prove(self, name: str) -> None:
        """Raises BundleError where the slot cannot run this box."""

    def backup(self, name: str, version: str) -> str:
        """By the code of slot `name`, of which `version` is in use; its path, or nothing where
        there is nothing to back up."""

    def refused(self, name: str) -> str:
        """Why the slot's code cannot use the ledger as it is; empty if it can."""

    def restore(self, name: str, backup: str) -> None: ...

    def place(self, name: str) -> None:
        """Puts the slot's units and rules in place."""

    def note(self, record: Record) -> None:
        """Puts the update's end into the ledger, if it can be done."""

    def stop(self) -> None: ...

    def start(self) -> str | None:
        """Starts what `current` names, anew if it runs; why it did not become ready, or empty. None
        where nothing can be started here."""


class RealMachine:
    """`unit`: what runs the box; None in a tree that is no running machine."""

    def __init__(self, layout: Layout, unit: Unit | None) -> None:
        self._layout = layout
        self._unit = unit

    def room(self) -> int:
        return shutil.disk_usage(self._layout.base).free

    def fill(self, name: str, opened: Opened, tell: Tell) -> None:
        filling.fill(self._layout.slot(name), opened, tell)

    def bring(self, name: str, opened: Opened, say: Say) -> None:
        bringing.bring(opened, self._layout.python(name), self._layout.state_dir(), say)

    def prove(self, name: str) -> None:
        config, state = self._layout.config, self._layout.state_dir()
        if config.exists():
            self._steelyard(name, state, "config", "check", str(config))
        with self._workshop() as work:
            if (state / LEDGER).exists():
                self._inside(name, "migrate", str(state / LEDGER), str(work))
                (work / LEDGER).unlink(missing_ok=True)
            # The self-test writes; the state belongs to the box that runs on.
            if (state / "models").is_dir():
                (work / "models").symlink_to(state / "models")
            self._steelyard(name, work, "selftest", *self._configured())

    def backup(self, name: str, version: str) -> str:
        if not (self._layout.state_dir() / LEDGER).exists():
            return ""
        folder = self._layout.backups
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        target = folder / f"before-update-from-{version}-{stamp}.tar"
        arguments = [str(self._layout.state_dir()), str(target), str(self._layout.config)]
        _insist(self._asked(name, "take", *arguments), "the backup before the update failed")
        for old in sorted(folder.glob("before-update-from-*.tar"), key=_age)[:-_KEPT]:
            old.unlink()
        return str(target)

    def refused(self, name: str) -> str:
        ledger = self._layout.state_dir() / LEDGER
        if not ledger.exists():
            return ""
        done = self._asked(name, "opens", str(ledger))
        return "" if done.returncode == 0 else _words(done)

    def restore(self, name: str, backup: str) -> None:
        state, config = self._layout.state_dir(), self._layout.config
        self._inside(name, "restore", backup, str(state), str(config))

    def place(self, name: str) -> None:
        folder = self._layout.slot(name) / placing.FOLDER
        appliance = placing.is_appliance(folder, self._layout.root)
        with durable.readable_by_all():
            changed = placing.place(folder, self._layout.root, appliance=appliance, enable=False)
            self._renew_boot(name)
        if changed and self._unit is not None:
            self._unit.reload()

    def note(self, record: Record) -> None:
        ledger = self._layout.state_dir() / LEDGER
        name = record.new if record.phase == "done" else record.old
        if ledger.exists():
            told = (record.phase, record.old_version, record.new_version, record.bundle, record.why)
            self._asked(name, "note", str(ledger), *told)

    def stop(self) -> None:
        if self._unit is not None:
            self._unit.stop()

    def start(self) -> str | None:
        return self._unit.restart() if self._unit is not None else None

    def _renew_boot(self, name: str) -> None:
        """What looks after updates at boot is that of the slot in use."""
        source, target = self._layout.slot(name) / "installer", self._layout.boot
        if not source.is_dir():
            return
        draft = target.with_name(".boot.new")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft)
        durable.replace_tree(draft, target)

    @contextmanager
    def _workshop(self) -> Iterator[Path]:
        """A folder for root alone on the disk of the slots."""
        with tempfile.TemporaryDirectory(prefix=".work-", dir=self._layout.base) as folder:
            yield Path(folder)

    def _configured(self) -> Sequence[str]:
        config = self._layout.config
        return ("--config", str(config)) if config.exists() else ()

    def _steelyard(self, name: str, state: Path, *arguments: str) -> None:
        command = [str(self._layout.python(name)), "-P", "-m", "appliance", *arguments]
        fault = f"the new version fails `steelyard {' '.join(arguments[:2])}`"
        _insist(_run(command, state), fault)

    def _asked(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._layout.python(name)), "-P", "-m", "appliance.bundle.inside"]
        return _run([*command, *arguments], self._layout.state_dir())

    def _inside(self, name: str, *arguments: str) -> None:
        faults = {"migrate": "the new version cannot take the ledger over"}
        fault = faults.get(arguments[0], f"`{arguments[0]}` failed")
        _insist(self._asked(name, *arguments), fault)


def _run(command: Sequence[str], state: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STEELYARD_SERVER_STATE_DIR": str(state)}
    env.pop("PYTHONPATH", None)
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_S, check=False, env=env
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"not done within {_ASK_S} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", f"{error}")


def _insist(done: subprocess.CompletedProcess[str], fault: str) -> None:
    if done.returncode:
        raise BundleError(f"{fault}: {_words(done)}")


def _words(done: subprocess.CompletedProcess[str]) -> str:
    """The end of what it said, on both ways."""
    lines = [*done.stderr.strip().splitlines()[-6:], *done.stdout.strip().splitlines()[-3:]]
    return "\n".join(lines) or f"exit status {done.returncode}"


def _age(path: Path) -> float:
    return path.stat().st_mtime
