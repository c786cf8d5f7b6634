"""How a calibration stands, in words."""

from typing import TYPE_CHECKING

from appliance.commands.progress import bar_of

if TYPE_CHECKING:
    from appliance.calibrate.status import Status

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
    parts = [
        f"{status.phase:8} {bar_of(min(1.0, status.done / status.total))}",
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
