"""A machine without hardware: the built tree, booted by systemd-nspawn with systemd as its PID 1.

It has no network but its own loopback, and a console of which all output is kept.
"""

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Inside another container the control groups may be of both versions; systemd in there wants one.
_BOOT = """
mount --make-rprivate / &&
{ umount -R /sys/fs/cgroup 2>/dev/null; mount -t cgroup2 none /sys/fs/cgroup; } &&
exec systemd-nspawn "$@"
"""
BOOT_S = 300.0
CHAT = """
import json, sys, urllib.request
body = {"model": "default", "max_tokens": 24, "temperature": 0, "messages": [
    {"role": "user", "content": "What is the capital of France?"}]}
asked = urllib.request.Request("http://127.0.0.1:8421/v1/chat/completions",
    json.dumps(body).encode(), {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(asked, timeout=120))["choices"][0]["message"]["content"])
"""
_BOARD = """
import json, urllib.request
with urllib.request.urlopen("http://127.0.0.1:8421/readyz", timeout=30) as answer:
    print(json.load(answer)["board"]["state"])
"""
_PIDS = """
for p in /proc/[0-9]*; do
  if [ "$(tr '\\0' ' ' <$p/cmdline 2>/dev/null | sed 's/ *$//')" = "$1" ]; then echo ${p#/proc/}; fi
done
"""


class NotThere(Exception):
    """A check failed. Says what did not happen."""


class Machine:
    """Off when it is made. `power_off` is the plug, not the button."""

    def __init__(self, tree: Path, console: Path, binds: tuple[str, ...] = ()) -> None:
        """`binds`: HOST:INSIDE, devices that it gets."""
        self._tree = tree
        self._console = console
        self._binds = binds
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self.boots = 0

    # -- power -----------------------------------------------------------------------------------

    def power_on(self) -> None:
        ours, theirs = pty.openpty()
        options = ["--quiet", "--register=no", "--keep-unit", "--private-network", "--boot",
                   "--link-journal=no", "--console=interactive",
                   f"--directory={self._tree}"]  # fmt: skip
        options += [f"--bind={bind}" for bind in self._binds]
        self._process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _BOOT, "boot", *options],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.boots += 1
        self._reader = threading.Thread(target=self._keep, args=(ours,), daemon=True)
        self._reader.start()

    def power_off(self) -> None:
        """Everything in it ends at once, wherever it is."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, NotThere):
            os.kill(_child_of(process.pid), 9)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _keep(self, end: int) -> None:
        """What the console shows; also what keeps it from being full."""
        with open(self._console, "ab") as kept, contextlib.suppress(OSError):
            while data := os.read(end, 4096):
                kept.write(data)
                kept.flush()
        os.close(end)

    # -- looking in ------------------------------------------------------------------------------

    @property
    def console(self) -> str:
        return self._console.read_text("utf-8", errors="replace")

    @property
    def init(self) -> int:
        """Its PID 1, as seen from here. Raises NotThere."""
        if self._process is None:
            raise NotThere("the machine is off")
        return _child_of(self._process.pid)

    def run(self, *command: str) -> str:
        """Standard output of a command in it. Raises NotThere."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.init), "--all", "--", *command],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise NotThere(f"{' '.join(command)[:80]}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def shows(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", "-p", name, unit)

    def chat(self) -> str:
        """An answer of the model, over HTTP on its loopback. Raises NotThere."""
        done = self._asked(CHAT)
        if done.returncode:
            raise NotThere(f"no answer: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout.strip()

    def board(self) -> str:
        """In which state the daemon has its board. Raises NotThere."""
        return self._asked(_BOARD).stdout.strip()

    def _asked(self, script: str) -> "subprocess.CompletedProcess[str]":
        """A script of ours on its network. Raises NotThere."""
        inside = ["nsenter", "--target", str(self.init), "--net", "--"]
        command = [*inside, sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def pids(self, title: str) -> list[int]:
        """Processes in it with that command line, by their numbers in there."""
        return [int(pid) for pid in self.run("sh", "-c", _PIDS, "pids", title).split()]

    def freeze(self, pid: int) -> None:
        """SIGSTOP, by its number in there."""
        self.run("sh", "-c", f"kill -STOP {pid}")

    def main_pid(self) -> int:
        return int(self.shows("steelyard.service", "MainPID"))

    def wait_serving(self, seconds: float = BOOT_S) -> None:
        """Until the daemon has said that it is ready. Raises NotThere."""
        self.wait(lambda: self.shows("steelyard.service", "ActiveState") == "active",
                  "steelyard.service is active", seconds)  # fmt: skip

    def wait(self, happened: Callable[[], bool], what: str, seconds: float) -> float:
        """Until it has happened; for how long that took. Raises NotThere."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            with contextlib.suppress(NotThere):
                if happened():
                    return time.monotonic() - begun
            time.sleep(0.25)
        raise NotThere(f"not within {seconds:.0f} s: {what}")


@contextlib.contextmanager
def booted(tree: Path, console: Path, *binds: str) -> Iterator[Machine]:
    machine = Machine(tree, console, binds)
    try:
        machine.power_on()
        yield machine
    finally:
        machine.power_off()


def _child_of(pid: int) -> int:
    """Raises NotThere."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    if not children:
        raise NotThere("systemd-nspawn has not started it, or has ended: see the console")
    return int(children[-1])


def can_boot() -> str:
    """Why no machine can be booted here; empty when one can."""
    missing = [tool for tool in ("systemd-nspawn", "unshare", "nsenter") if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} not installed: apt install systemd-container util-linux"
    return "booting takes root" if os.geteuid() else ""


def facts(machine: Machine) -> str:
    """What systemd really enforces on the daemon, in one line."""
    names = ("User", "DynamicUser", "ProtectSystem", "NRestarts", "WatchdogUSec")
    return json.dumps({name: machine.shows("steelyard.service", name) for name in names})
