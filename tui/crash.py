"""What broke goes to a file; the screen shows only its name."""

import os
import platform
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

KEPT = 20
"""Reports that stay; older ones are taken away."""


def folder() -> Path:
    """Where reports go."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "steelyard"


def write(error: BaseException, version: str, where: Path | None = None) -> str:
    """Write a report of `error`; returns the file's name, or why there is none. Never raises.

    It holds the trace without the values of variables: no key and no text of a request."""
    place = where or folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = datetime.now(UTC)
        file = place / f"console-crash-{now:%Y%m%dT%H%M%S.%f}.txt"
        trace = "".join(traceback.format_exception(error))
        head = f"{now.isoformat()}\nsteelyard {version}, {platform.python_version()}\n"
        with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
            out.write(f"{head}{os.environ.get('TERM', '')} {sys.platform}\n\n{trace}")
        _prune(place)
    except OSError as problem:
        return f"(no report: {problem.strerror} in {place})"
    return str(file)


def _prune(place: Path) -> None:
    for old in sorted(place.glob("console-crash-*.txt"))[:-KEPT]:
        old.unlink(missing_ok=True)
