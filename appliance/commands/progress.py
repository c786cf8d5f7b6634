"""A calibration's status on a terminal: one line that is drawn again and again."""

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from appliance.calibrate.status import Status

_WIDTH = 24
_PLAIN_S = 10.0
"""Between two lines where the output is no terminal."""
_WAITS = {
    "operator": "held: `steelyard calibrate resume` lets it go on",
    "others": "waits, the box is busy",
    "box": "waits, the box does not answer",
}


def line_of(status: "Status") -> str:
    """All of it that a person wants to know, on one line or a few."""
    match status.state:
        case "none":
            return status.problem or "No calibration has run here: `steelyard calibrate` starts one"
        case "running":
            return _running(status)
        case "done":
            result = status.result
            return "done" if result is None else f"done: {result.done}; {result.why}"
        case "stopped":
            return "stopped; its answers are kept"
    return f"failed: {status.problem}"


def _running(status: "Status") -> str:
    if not status.total:
        return f"{status.phase} ..."
    share = min(1.0, status.done / status.total)
    full = round(share * _WIDTH)
    parts = [
        f"{status.phase:8} [{'#' * full}{'.' * (_WIDTH - full)}] {100 * share:3.0f} %",
        f"{status.done}/{status.total}" if status.phase == "generate" else "",
        f"ETA {_duration(status.eta_ms)}",
        _WAITS.get(status.waits, ""),
    ]
    return "  ".join(part for part in parts if part)


def _duration(ms: int | None) -> str:
    if ms is None:
        return "?"
    seconds = ms // 1000
    if seconds < 100:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


class Bar:
    """Draws on standard error: over the same line of a terminal, else a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._over = sys.stderr.isatty()
        self._phase = ""
        self._said_at = 0.0
        self._drawn = False

    def show(self, status: "Status") -> None:
        if self._quiet or status.state != "running":
            return
        if self._over:
            click.echo(f"\r\x1b[K{_running(status)}", nl=False, err=True)
            self._drawn = True
            return
        now = time.monotonic()
        if status.phase != self._phase or now - self._said_at >= _PLAIN_S:
            self._phase, self._said_at = status.phase, now
            click.echo(_running(status), err=True)

    def close(self) -> None:
        """Leaves the line."""
        if self._drawn:
            click.echo("\r\x1b[K", nl=False, err=True)
