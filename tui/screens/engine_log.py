"""Lines of the box's log: what comes is text of others. Pure."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from tui.lines import Line, Role, Span, line
from tui.view import View

LEVELS = ("debug", "info", "warning", "error")
_SHORT = {"debug": "DBG", "info": "INFO", "warning": "WARN", "error": "ERR", "critical": "CRIT"}
_ROLES: dict[str, Role] = {"debug": "dim", "warning": "bold", "error": "bold", "critical": "bold"}
_OURS = "appliance."


class LogLine(msgspec.Struct, frozen=True):
    """As GET /admin/log gives it."""

    seq: int
    at_ms: int
    level: str
    logger: str
    text: str


class _Log(msgspec.Struct, frozen=True):
    lines: tuple[LogLine, ...]


def lines_in(data: Any) -> tuple[LogLine, ...]:
    """The lines of an answer, oldest first; none where it is shaped otherwise."""
    try:
        return msgspec.convert(data, _Log).lines
    except msgspec.ValidationError:
        return ()


def line_of(row: LogLine, view: View) -> Line:
    """Time (UTC), level, who and what, in one row."""
    level = _SHORT.get(row.level, view.foreign(row.level)[:5])
    text = f"{_time(row.at_ms)} {level:<4} {view.foreign(_said(row))}"
    return line(Span(text, _ROLES.get(row.level, "plain")))


def whole(row: LogLine, view: View) -> tuple[str, ...]:
    """All of one line; a line break that the box wrote escaped begins a new row."""
    text = _said(row).replace("\\n", "\n")
    head = f"{_day(row.at_ms)} {_time(row.at_ms)} UTC {view.foreign(row.level)}"
    return (head, "", *(view.foreign(part) for part in text.split("\n")))


def _said(row: LogLine) -> str:
    return f"{row.logger.removeprefix(_OURS)}: {row.text}"


def _moment(at_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at_ms / 1e3, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _time(at_ms: int) -> str:
    moment = _moment(at_ms)
    return f"{moment:%H:%M:%S}" if moment is not None else "?       "


def _day(at_ms: int) -> str:
    moment = _moment(at_ms)
    return f"{moment:%Y-%m-%d}" if moment is not None else "?"
