"""What the kernel says about a child, read from /proc: is it stopped, how much memory has it."""

from dataclasses import dataclass
from pathlib import Path

_STOPPED = frozenset("Tt")


@dataclass(frozen=True, slots=True)
class Vitals:
    stopped: bool
    """Stopped by a signal or a tracer: it will not go on by itself."""
    rss_bytes: int
    anonymous_bytes: int
    """Memory of its own: a leak shows here, pages of the mapped model file do not."""


def read_vitals(pid: int, proc: Path = Path("/proc")) -> Vitals | None:
    """None when the process is gone, or where there is no /proc."""
    try:
        text = (proc / str(pid) / "status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return Vitals(
        stopped=fields.get("State", "").strip()[:1] in _STOPPED,
        rss_bytes=_bytes(fields.get("VmRSS")),
        anonymous_bytes=_bytes(fields.get("RssAnon")),
    )


def _bytes(field: str | None) -> int:
    return int(field.split()[0]) * 1024 if field else 0
