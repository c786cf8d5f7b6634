"""Log lines, written by a thread of their own: a slow terminal or disk never holds up a request."""

import logging
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import QueueHandler, QueueListener

from appliance.config import LoggingConfig
from appliance.logformat import formatter, hand_down

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
        text = text[:_CHARS].replace("\r", "\\r").replace("\n", "\\n")
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
"""The daemon's own lines; those of its children go to standard error alone."""


def configure(config: LoggingConfig) -> Callable[[], None]:
    """Sends all log lines to standard error from now on. Returns what ends it, flushed."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE)
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(formatter(json=config.json))
    hand_down(json=config.json)
    handler = DroppingHandler(lines)
    listener = QueueListener(lines, RECENT, writer)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())
    listener.start()

    def stop() -> None:
        root.removeHandler(handler)
        listener.stop()
        if handler.dropped:
            sys.stderr.write(f"{handler.dropped} log lines were dropped: writing was too slow\n")

    return stop
