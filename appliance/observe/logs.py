"""Log lines, written by a thread of their own: a slow terminal or disk never holds up a request."""

import logging
import queue
import sys
import time
from collections.abc import Callable
from logging.handlers import QueueHandler, QueueListener

import msgspec

from appliance.config import LoggingConfig

QUEUE = 10_000
"""Lines; beyond it they are dropped and counted."""

_encode = msgspec.json.Encoder().encode


class DroppingHandler(QueueHandler):
    """Drops lines, and counts them, while the writer is too slow."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_text:
            line["exception"] = record.exc_text
        return _encode(line).decode()


class TextFormatter(logging.Formatter):
    """Time, level and text; line breaks inside a message are shown, never made."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {message}"
        return f"{line}\n{record.exc_text}" if record.exc_text else line


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def configure(config: LoggingConfig) -> Callable[[], None]:
    """Sends all log lines to standard error from now on. Returns what ends it, flushed."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE)
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(JsonFormatter() if config.json else TextFormatter())
    handler = DroppingHandler(lines)
    listener = QueueListener(lines, writer)
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
