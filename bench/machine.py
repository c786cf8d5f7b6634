"""Facts about the machine and the CPU time its processes used. Linux only (/proc)."""

import os
import platform
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6)
"""Fields of /proc/stat: user, nice, system, irq, softirq."""


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def facts() -> dict[str, object]:
    """What a reader must know to compare figures."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "flags": sorted(f for f in _field("/proc/cpuinfo", "flags").split() if f[:3] in _SIMD),
        "cores": usable_cores(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


_SIMD = ("amx", "avx", "fma", "f16", "sse")


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""


def _stat(pid: int) -> tuple[int, float]:
    """Parent and CPU seconds (user and system, ended children included)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS


def _every_stat() -> dict[int, tuple[int, float]]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found[int(entry)] = _stat(int(entry))
            except OSError:
                continue  # ended meanwhile
    return found


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
    stats = _every_stat()
    pids = [root]
    for pid in pids:
        pids.extend(child for child, (parent, _) in stats.items() if parent == pid)
    return pids


def cpu_of(root: int) -> float:
    """CPU seconds that the process and its descendants have used so far."""
    return sum(_stat(pid)[1] for pid in tree(root))


def cpu_alone(pid: int) -> float:
    """CPU seconds of one process and those of its children that have ended."""
    return _stat(pid)[1]


def cpu_of_all() -> float:
    """CPU seconds that everything on this machine has used so far."""
    with open("/proc/stat", encoding="utf-8") as lines:
        fields = [int(f) for f in lines.readline().split()[1:]]
    return sum(fields[i] for i in _BUSY) / _TICKS
