"""What the machine is, without serial numbers and addresses."""

import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from appliance.observe.nvml import Library, NvmlError

_DMI = ("sys_vendor", "product_name", "product_version", "bios_version", "bios_date")
_LIMITS = ("cpu.max", "memory.max", "memory.high", "pids.max")
_SKIPPED = re.compile(r"^(loop|ram|zram)\d+$")


def hardware(root: Path = Path("/")) -> dict[str, Any]:
    """Facts of the machine, the kernel and the limits of this process."""
    cpuinfo = _text(root / "proc/cpuinfo")
    return {
        "kernel": " ".join(platform.uname()[i] for i in (0, 2, 3, 4)),
        "system": _fields(root / "etc/os-release", "=").get("PRETTY_NAME", "").strip('"'),
        "machine": {name: _text(root / "sys/class/dmi/id" / name) for name in _DMI},
        "cpu": {
            "model": _first(cpuinfo, "model name"),
            "flags": _first(cpuinfo, "flags") or _first(cpuinfo, "Features"),
            "logical": os.cpu_count(),
            "usable": len(os.sched_getaffinity(0)),
        },
        "memory": _fields(root / "proc/meminfo", ":"),
        "load": _text(root / "proc/loadavg"),
        "disks": list(_disks(root)),
        "mounts": list(_mounts(root)),
        "gpus": gpus(),
        "pci_display": list(_display(root)),
        "limits": {name: _text(root / "sys/fs/cgroup" / name) for name in _LIMITS},
        "uptime_s": _text(root / "proc/uptime").partition(" ")[0],
    }


def packages() -> str:
    """What is installed beside us, a line each."""
    found = {f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions()}
    return f"python {platform.python_version()}\n" + "".join(f"{one}\n" for one in sorted(found))


def gpus(library: Library | None = None) -> list[dict[str, Any]]:
    """What NVML tells; empty where there is no driver."""
    nvml = library or Library()
    try:
        count, driver = nvml.start(), nvml.driver()
        return [
            {"name": nvml.name(gpu), "memory": nvml.memory(gpu)[0], "driver": driver}
            for gpu in range(count)
        ]
    except NvmlError:
        return []


def _disks(root: Path) -> Iterator[dict[str, str]]:
    for place in sorted((root / "sys/block").glob("*")):
        if not _SKIPPED.match(place.name):
            yield {
                "name": place.name,
                "model": _text(place / "device/model"),
                "sectors": _text(place / "size"),
                "rotational": _text(place / "queue/rotational"),
            }


def _mounts(root: Path) -> Iterator[str]:
    """Place, type and options of real file systems; a network share's address stays at home."""
    for line in _text(root / "proc/self/mounts").splitlines():
        parts = line.split()
        if len(parts) > 3 and (parts[0].startswith("/dev/") or parts[2] in ("overlay", "tmpfs")):
            yield f"{parts[1]} {parts[2]} {parts[3].partition(',')[0]}"


def _display(root: Path) -> Iterator[str]:
    for place in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _text(place / "class").startswith("0x03"):
            yield f"{_text(place / 'vendor')}:{_text(place / 'device')}"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(1 << 20).decode(errors="replace").strip()
    except OSError:
        return ""


def _fields(path: Path, sign: str) -> dict[str, str]:
    rows = (line.partition(sign) for line in _text(path).splitlines())
    return {name.strip(): value.strip() for name, found, value in rows if found}


def _first(text: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}\s*:(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
