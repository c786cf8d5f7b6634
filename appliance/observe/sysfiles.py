"""Small files of /sys, as numbers."""

import errno
from collections.abc import Callable
from pathlib import Path

Read = Callable[[Path], str]
"""The text of a file; raises OSError or ValueError (it is no text)."""


def read_file(path: Path) -> str:
    with open(path, encoding="ascii") as file:
        return file.read(256).strip()


def number(path: Path, read: Read) -> int | None:
    """The integer in a file; None where there is none."""
    try:
        return int(read(path))
    except (OSError, ValueError):
        return None


def word(path: Path, read: Read, default: str) -> str:
    """The file's text without what a terminal or a metric must not be told."""
    try:
        text = "".join(c if c.isprintable() else " " for c in read(path)[:48]).strip()
    except (OSError, ValueError):
        return default
    return text or default


def reason(error: Exception) -> str:
    """Why a file could not be read, for an operator."""
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError):
        return _REASONS.get(error.errno or 0, error.strerror or "it cannot be read")
    return "its file holds no number"


_REASONS = {
    errno.ENODATA: "the driver has no value",
    errno.EAGAIN: "the driver has no value now",
    errno.ENOENT: "it is gone",
    errno.ENODEV: "it is gone",
    errno.ENXIO: "it is gone",
    errno.EIO: "the chip does not answer",
}


def listed(folder: Path, pattern: str) -> list[Path]:
    """What is in a folder, in the order of the numbers in its names; empty where it is missing."""
    try:
        return sorted(folder.glob(pattern), key=_order)
    except OSError:
        return []


def _order(path: Path) -> tuple[int, str]:
    digits = "".join(c for c in path.name if c.isdigit())
    return int(digits or 0), path.name
