"""The log in a file of its own, of bounded size, for boxes where nothing else keeps standard error.

A file that cannot be written never stops the box or a request: lines go to standard error in any
case, and the file goes on when it can.
"""

import logging
import os
import sys
from pathlib import Path

KEPT = 4
"""Full files kept: `log.1` is the newest of them."""


class BoundedFile(logging.Handler):
    """Appends to the file `path`; at `most` bytes it is renamed and begun anew."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__()
        self._path, self._most = path, most
        self._handle = -1
        self._size = 0
        self._failing = False
        self.lost = 0
        """Lines that are not in the file."""

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode(errors="replace")
        try:
            self._append(line)
        except OSError as error:
            self._shut()
            self.lost += 1
            if not self._failing:
                self._failing = True
                sys.stderr.write(
                    f"the log file {self._path} cannot be written ({error.strerror}): lines go to"
                    " standard error alone until it can. Check its folder, its owner and the free"
                    " space, or set logging.file\n"
                )
            return
        self._failing = False

    def close(self) -> None:
        self._shut()
        super().close()

    def _append(self, line: bytes) -> None:
        if self._handle < 0:
            self._open()
        if self._size and self._size + len(line) > self._most:
            self._turn()
        self._size += os.write(self._handle, line)

    def _open(self) -> None:
        self._handle = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        self._size = os.fstat(self._handle).st_size

    def _turn(self) -> None:
        """Oldest first, so that a name is free before it is taken."""
        self._shut()
        for number in range(KEPT, 0, -1):
            source = self._numbered(number - 1)
            if source.exists():
                source.replace(self._numbered(number))
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _shut(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
