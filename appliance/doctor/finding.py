"""What the doctor found."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warn", "fail"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warn", "fail")
"""From harmless to bad. note: worth knowing, nothing to do now. fail: the box cannot serve, or what
it promises does not hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    id: str
    """`area.thing`, the same in every version."""
    level: Level
    found: str
    """With the figure."""
    do: str = ""
    """What to do; empty where there is nothing to do."""

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


def ok(id: str, found: str) -> Finding:
    return Finding(id, "ok", found)


def note(id: str, found: str, do: str = "") -> Finding:
    return Finding(id, "note", found, do)


def warn(id: str, found: str, do: str) -> Finding:
    return Finding(id, "warn", found, do)


def fail(id: str, found: str, do: str) -> Finding:
    return Finding(id, "fail", found, do)


def size(count: float) -> str:
    """Bytes for people, in units of 1024."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
