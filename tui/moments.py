"""Moments that the box tells of, in UTC. What is no time shows as unknown, and never fails."""

from datetime import UTC, date, datetime

from tui.figures import UNKNOWN

FULL, TIME, MINUTE, DAY = "%m-%d %H:%M:%S", "%H:%M:%S", "%m-%d %H:%M", "%m-%d"


def at(ms: float) -> datetime | None:
    """Milliseconds since 1970; None for none."""
    try:
        return datetime.fromtimestamp(ms / 1e3, UTC) if ms > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def shown(ms: float, pattern: str = FULL) -> str:
    moment = at(ms)
    return UNKNOWN if moment is None else moment.strftime(pattern)


def brief(ms: float, now_ms: float, other_day: str = MINUTE) -> str:
    """The time of a moment of today, else its day in the given pattern."""
    moment, now = at(ms), at(now_ms)
    if moment is not None and now is not None and moment.date() == now.date():
        return moment.strftime(TIME)
    return shown(ms, other_day)


def day(ms: float) -> date | None:
    moment = at(ms)
    return None if moment is None else moment.date()
