"""The box's systemd unit, as an update needs it. Standard library only."""

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

NAME = "steelyard.service"
_START_S = 3600
"""systemd's own limit, TimeoutStartSec, ends it long before."""
_STEADY_S = 5.0
"""It must stay up for so long, as the same process."""
_LOOK_S = 0.25


class Unit:
    """Starting waits till the box has said that it is ready (Type=notify)."""

    def __init__(self, name: str = NAME) -> None:
        self._name = name

    @classmethod
    def of_machine(cls) -> "Unit | None":
        """None where systemd does not run, as in a container or a chroot."""
        running = Path("/run/systemd/system").is_dir() and shutil.which("systemctl")
        return cls() if running else None

    def reload(self) -> None:
        self._ask("daemon-reload")

    def stop(self) -> None:
        self._ask("stop", self._name)

    def restart(self) -> str:
        """Why it did not become ready, or empty. A unit that failed often may start again now."""
        self._ask("reset-failed", self._name)
        done = self._ask("restart", self._name)
        if done.returncode:
            return f"{self._name} did not become ready: {done.stderr.strip()[-400:]}"
        first, until = self._state(), time.monotonic() + _STEADY_S
        while time.monotonic() < until:
            if not first.startswith("active ") or self._state() != first:
                return f"{self._name} did not stay up: see `journalctl -u {self._name}`"
            time.sleep(_LOOK_S)
        return ""

    def start_soon(self) -> None:
        """Once the start that is failing has come to its end: one more of the same unit would be
        taken for that one, so it is left to another unit."""
        after = f"--property=After={self._name}"
        _run(["systemd-run", "--quiet", "--collect", "--no-block", after, "systemctl", "--no-block",
              "start", self._name])  # fmt: skip

    def start_first(self, names: Sequence[str]) -> str:
        """Starts units one after the other; the first fault, or empty."""
        for name in names:
            done = self._ask("start", name)
            if done.returncode:
                return done.stderr.strip()[-400:]
        return ""

    def _state(self) -> str:
        done = self._ask("show", "--value", "-p", "ActiveState", "-p", "MainPID", self._name)
        return " ".join(sorted(done.stdout.split(), key=str.isdecimal))

    @staticmethod
    def _ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(["systemctl", *arguments])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_START_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"{command[0]} did not answer")
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]}: {error.strerror}")
