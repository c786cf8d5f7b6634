"""Strikes out of texts what `ledger.redact` names, in a process of its own, within bounds of time.

A text is whatever a client sends, and on some texts an ordinary pattern takes minutes (one for mail
addresses, on a long word without an `@`). In the daemon that would hold up everything, its watchdog
too. A text that is not done in time is struck out whole: what was not searched is not stored.
"""

import contextlib
import json
import logging
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from appliance.ledger.payload import REDACTED, redact, redactions
from appliance.spawn import environment, python

log = logging.getLogger(__name__)

LIMIT_S = 2.0
START_S = 60.0
"""For the process to begin, on a machine that is busy with other things."""
_LENGTH = struct.Struct(">Q")
_READ_BYTES = 1 << 20


class Striker:
    """May be called by any thread; one text at a time."""

    def __init__(self, patterns: Sequence[str], limit_s: float = LIMIT_S) -> None:
        """Raises ValueError for a pattern that is none."""
        self._child: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._patterns = tuple(patterns)
        self._limit_s = limit_s
        self._lock = threading.Lock()
        redactions(patterns)
        if patterns:
            with contextlib.suppress(OSError):  # it is tried again for the first text
                self._start()

    def __call__(self, text: str) -> str:
        """The text as it may be stored."""
        if not self._patterns:
            return text
        with self._lock:
            try:
                return self._ask(text)
            except (OSError, EOFError) as error:
                log.warning(
                    "a text could not be searched for ledger.redact, so it is not stored: %s", error
                )
                self.close()
                return REDACTED

    def close(self) -> None:
        """Ends the process; the next text begins another."""
        child, self._child, self._ready = self._child, None, False
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    def __del__(self) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        """Raises OSError."""
        self._child = subprocess.Popen(
            python("appliance.ledger.striking"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment(),
            start_new_session=True,  # Ctrl-C is for the daemon, which still has texts to store
        )
        return self._child

    def _ask(self, text: str) -> str:
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        if not self._ready:
            _send(child.stdin, json.dumps(self._patterns).encode())
            _receive(child.stdout, START_S)
            self._ready = True
        _send(child.stdin, text.encode("utf-8", "surrogatepass"))
        return _receive(child.stdout, self._limit_s).decode("utf-8", "surrogatepass")


def _send(pipe: IO[bytes], data: bytes) -> None:
    rest = memoryview(_LENGTH.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(pipe.fileno(), rest) :]


def _receive(pipe: IO[bytes], limit_s: float) -> bytes:
    """One message. Raises TimeoutError (an OSError), and EOFError where the process has ended."""
    until, held, wanted = time.monotonic() + limit_s, bytearray(), _LENGTH.size
    while len(held) < wanted:
        left = until - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            raise TimeoutError(f"it takes longer than {limit_s:g} s")
        block = os.read(pipe.fileno(), _READ_BYTES)
        if not block:
            raise EOFError("the process that searches it has ended")
        held += block
        if len(held) >= _LENGTH.size:
            wanted = _LENGTH.size + int(_LENGTH.unpack_from(held)[0])
    return bytes(held[_LENGTH.size :])


def _next(pipe: IO[bytes]) -> bytes | None:
    """In the process: the next message; None at the end."""
    head = pipe.read(_LENGTH.size)
    return pipe.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


def main() -> None:
    """The process: patterns, then texts, until nobody asks any more."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the daemon's last texts come after its own
    asked, told = sys.stdin.buffer, sys.stdout.buffer
    rules = redactions(json.loads(_next(asked) or b"[]"))
    _send(told, b"")
    while (text := _next(asked)) is not None:
        struck = redact(text.decode("utf-8", "surrogatepass"), rules)
        _send(told, struck.encode("utf-8", "surrogatepass"))


if __name__ == "__main__":
    main()
