"""How a log line looks, in every process of the box."""

import contextlib
import logging
import os
import re
import socket
import sys
import time

import msgspec

_JSON = "STEELYARD_LOGGING_JSON"
"""The setting's own name in the environment, so both ways of making it agree."""

_encode = msgspec.json.Encoder().encode
_WILD = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_CHARS = 4000
"""Of a line that a child tells the daemon."""
_listening: int | None = None
"""The socket over which children of this process tell it their lines; None: nobody listens."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        return _encode(line).decode()


class TextFormatter(logging.Formatter):
    """Time, level and text; line breaks inside a message are shown, never made, and so is whatever
    else a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        message = tame(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {message}"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if not record.exc_text:
            return line
        return "\n".join((line, *map(tame, record.exc_text.split("\n"))))


def tame(text: str) -> str:
    """With control characters, and those that turn the direction of text, spelt out."""
    return _WILD.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def formatter(*, json: bool) -> logging.Formatter:
    return JsonFormatter() if json else TextFormatter()


def hand_down(*, json: bool, listening: int | None = None) -> None:
    """Children of this process write their lines in the same form, and tell them over that socket
    too. It belongs to who gave it."""
    global _listening
    os.environ[_JSON] = "true" if json else "false"
    _listening = listening


def for_child() -> tuple[list[str], list[int]]:
    """Options of a child's command line, and what it must inherit, so that its lines are heard."""
    if _listening is None:
        return [], []
    return ["--log-fd", str(_listening)], [_listening]


class Upward(logging.Handler):
    """Tells the daemon each line, which keeps it for consoles. A daemon that does not listen fast
    enough misses lines: the child never waits for it."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._socket = socket.socket(fileno=fd)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_text:
            text = f"{text}\n{record.exc_text}"
        line = _encode((record.created, record.levelno, record.name, text[:_CHARS]))
        with contextlib.suppress(OSError):
            self._socket.send(line, socket.MSG_DONTWAIT)


def to_stderr(level: str, upward: int | None = None) -> None:
    """Log lines of a child process go straight to the standard error it shares with the daemon,
    and over the socket `upward` to the daemon itself."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(json=os.environ.get(_JSON) == "true"))
    root = logging.getLogger()
    root.handlers[:] = [handler, *([Upward(upward)] if upward is not None else [])]
    root.setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
