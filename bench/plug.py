"""The cable between a board and its host: it can be pulled and plugged in again under load."""

import contextlib
import os
import select
import threading
import tty
from pathlib import Path
from types import TracebackType

CHUNK = 4096
LOOK_S = 0.05


class Plug:
    """`path` leads to the board's line while it is plugged in. The board goes on meanwhile; what it
    says while the cable is out is lost."""

    def __init__(self, board: str, path: Path) -> None:
        self.path = path
        self._board = os.open(board, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(self._board)
        self._cable: tuple[int, int] | None = None
        self._joiner: threading.Thread | None = None
        self._out = threading.Event()

    def plug(self) -> None:
        here, there = os.openpty()
        tty.setraw(there)
        os.set_blocking(here, False)
        self._cable = here, there
        self._out.clear()
        self._joiner = threading.Thread(target=self._join, args=(here,), daemon=True)
        self._joiner.start()
        self.path.symlink_to(os.ttyname(there))

    def pull(self) -> None:
        """Both ends of the cable are gone at once, as the host sees it."""
        self.path.unlink(missing_ok=True)
        self._out.set()
        if self._joiner is not None:
            self._joiner.join()
        for end in self._cable or ():
            os.close(end)
        self._cable = self._joiner = None

    def _join(self, here: int) -> None:
        while not self._out.is_set():
            readable = select.select([here, self._board], [], [], LOOK_S)[0]
            with contextlib.suppress(OSError):  # one side is full, or about to go
                if here in readable:
                    os.write(self._board, os.read(here, CHUNK))
                if self._board in readable:
                    os.write(here, os.read(self._board, CHUNK))

    def __enter__(self) -> "Plug":
        self.plug()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.pull()
        os.close(self._board)
