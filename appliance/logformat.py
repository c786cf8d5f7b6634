"""How a log line looks, in every process of the box."""

import logging
import os
import sys
import time

import msgspec

_JSON = "STEELYARD_LOGGING_JSON"
"""The setting's own name in the environment, so both ways of making it agree."""

_encode = msgspec.json.Encoder().encode


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
    """Time, level and text; line breaks inside a message are shown, never made."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {message}"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        return f"{line}\n{record.exc_text}" if record.exc_text else line


def formatter(*, json: bool) -> logging.Formatter:
    return JsonFormatter() if json else TextFormatter()


def hand_down(*, json: bool) -> None:
    """Children of this process write their lines in the same form."""
    os.environ[_JSON] = "true" if json else "false"


def to_stderr(level: str) -> None:
    """Log lines of a child process go straight to the standard error it shares with the daemon."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(json=os.environ.get(_JSON) == "true"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
