"""Log lines, written by a thread of their own: a slow terminal or disk never holds up a request."""

import logging
import queue
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path

import msgspec

from appliance.config import LoggingConfig
from appliance.logformat import formatter, hand_down, tame
from appliance.observe.logfile import BoundedFile

QUEUE = 10_000
"""Lines; beyond it they are dropped and counted."""
KEPT = 2000
"""Lines that can be looked at over HTTP: an hour of a quiet box."""
_CHARS = 4000
"""Of one line that is kept."""


class DroppingHandler(QueueHandler):
    """Drops lines, and counts them, while the writer is too slow."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


@dataclass(frozen=True, slots=True)
class Line:
    """One log line. `seq` rises by one with every line."""

    seq: int
    wall_s: float
    level: int
    logger: str
    text: str


class Ring(logging.Handler):
    """Keeps the newest lines. Written by the log's own thread, read by any."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__()
        self._lines: deque[Line] = deque(maxlen=kept)
        self._guard = threading.Lock()
        self._seq = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_text:
            text = f"{text}\n{record.exc_text}"
        text = tame(text[:_CHARS])
        with self._guard:
            self._seq += 1
            self._lines.append(Line(self._seq, record.created, record.levelno, record.name, text))

    def lines(
        self, *, level: int, part: str = "", after: int | None = None, limit: int = KEPT
    ) -> tuple[list[Line], int]:
        """Lines of at least `level` that hold `part`, oldest first: the first `limit` after line
        `after`, or the newest. And the seq to go on after."""
        with self._guard:
            kept, newest = list(self._lines), self._seq
        part = part.casefold()
        found = [
            line
            for line in kept
            if line.level >= level
            and (after is None or line.seq > after)
            and (not part or part in line.text.casefold() or part in line.logger.casefold())
        ]
        if after is None or len(found) <= limit:
            return found[-limit:], newest
        return found[:limit], found[limit - 1].seq


RECENT = Ring()
"""Lines of the daemon and of its children, for `GET /admin/log`. What llama.cpp itself prints goes
to standard error alone."""

_Told = tuple[float, int, str, str]
"""A child's line: when, level, logger, text."""


class Children:
    """Hears what the children log, on a thread of its own, and keeps it. They write it to standard
    error themselves."""

    def __init__(self, keep: Callable[[logging.LogRecord], object]) -> None:
        self._keep = keep
        self._closing = False
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._hear, name="child-lines", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """For a child to inherit."""
        return self._theirs.fileno()

    def close(self) -> None:
        self._closing = True
        self._theirs.send(b"")
        self._thread.join()
        self._ours.close()
        self._theirs.close()

    def _hear(self) -> None:
        while (data := self._ours.recv(65536)) or not self._closing:
            try:
                created, level, name, text = _decode(data)
            except msgspec.DecodeError:
                continue  # a child that went mad
            fields = {"created": created, "levelno": level, "name": name, "msg": text}
            fields["levelname"] = logging.getLevelName(level)
            self._keep(logging.makeLogRecord(fields))


_decode = msgspec.json.Decoder(_Told).decode


def configure(config: LoggingConfig) -> Callable[[], None]:
    """Sends all log lines to standard error from now on, and to a file if one is configured.
    Returns what ends it, flushed."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE)
    writer = logging.StreamHandler(sys.stderr)
    keepers: list[logging.Handler] = [RECENT]
    if config.file:
        keepers.append(BoundedFile(Path(config.file), config.file_mb << 20))
    for handler_of in (writer, *keepers[1:]):
        handler_of.setFormatter(formatter(json=config.json))
    children = Children(lambda record: [keeper.handle(record) for keeper in keepers])
    hand_down(json=config.json, listening=children.fileno())
    handler = DroppingHandler(lines)
    listener = QueueListener(lines, *keepers, writer)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())
    listener.start()

    def stop() -> None:
        root.removeHandler(handler)
        listener.stop()
        hand_down(json=config.json)
        children.close()
        for keeper in keepers[1:]:
            keeper.close()
        if handler.dropped:
            sys.stderr.write(f"{handler.dropped} log lines were dropped: writing was too slow\n")

    return stop
