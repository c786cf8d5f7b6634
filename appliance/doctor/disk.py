"""Area `disk`: room, how long a durable write takes, what the disk says of itself, what the kernel
made read-only."""

import errno
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from appliance.doctor.finding import Finding, fail, note, ok, size, warn
from appliance.doctor.ground import Ground

LOW_BYTES = 64 << 20
"""With less the box is not ready (docs/operating.md)."""
ROOM_BYTES = 1 << 30
ROOM_SHARE = 0.05
WRITES = 25
SLOW_MS = 20.0
VERY_SLOW_MS = 100.0
"""An admission waits for one durable write; so long each time, requests queue up for the disk."""
_SMART_S = 20.0
_ADVICE = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or have the quota raised",
    errno.EACCES: "run this as root, or as the box's own user; see `permissions`",
    errno.EPERM: "run this as root, or as the box's own user; see `permissions`",
    errno.EROFS: "see `disk.read_only`",
}


def look(ground: Ground) -> Iterator[Finding]:
    state_dir = ground.state_dir
    there = next(path for path in (state_dir, *state_dir.parents) if path.is_dir())
    yield from _space(there, state_dir)
    yield from _read_only(ground, there)
    if there == state_dir:
        yield from _durable(state_dir)
    else:
        yield note("disk.fsync", f"{state_dir} is not there yet: the first start makes it")
    yield from _health(ground, there)


def _space(there: Path, state_dir: Path) -> Iterator[Finding]:
    found = os.statvfs(there)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    told = f"{size(free)} of {size(total)} are free for {state_dir}"
    if free < LOW_BYTES:
        advice = "free some space: under 64 MiB the box answers no request"
        yield fail("disk.space", told, advice)
    elif free < ROOM_BYTES and free < total * ROOM_SHARE:
        yield warn(
            "disk.space",
            told,
            "free some space, or let the ledger forget sooner (ledger.keep_days, "
            "ledger.token_days)",
        )
    else:
        yield ok("disk.space", told)
    if found.f_files and found.f_favail < 1000:
        yield fail("disk.inodes", f"{found.f_favail} more files fit there", "remove files there")


def _read_only(ground: Ground, there: Path) -> Iterator[Finding]:
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        yield fail(
            "disk.read_only",
            f"{there} is mounted read-only, and the box must write there",
            "after a disk error Linux does that by itself: see `dmesg`, then check the disk; else "
            "mount it writable, or set server.state_dir",
        )
        return
    root = _mounted(ground, "/")
    if "ro" in root.split(","):
        yield note(
            "disk.read_only",
            "the root file system is read-only; the state is on a writable one",
            "nothing, if that is meant so; after a disk error `dmesg` has the reason",
        )
    else:
        yield ok("disk.read_only", "state and root file system are writable")


def _mounted(ground: Ground, place: str) -> str:
    """The options that a place is mounted with; of the last mount there, which is the one seen."""
    rows = (line.split() for line in ground.text("proc/self/mounts").splitlines())
    return next((row[3] for row in reversed([*rows]) if len(row) > 3 and row[1] == place), "")


def _durable(state_dir: Path) -> Iterator[Finding]:
    try:
        took = durable_ms(state_dir)
    except OSError as error:
        told = f"{state_dir} cannot be written: {error.strerror or error}"
        yield fail("disk.fsync", told, _ADVICE.get(error.errno or 0, "see `dmesg`: it failed"))
        return
    middle, slowest = statistics.median(took), max(took)
    told = (
        f"a durable write of 4 KiB takes {middle:.2f} ms (slowest of {len(took)}: {slowest:.1f} ms)"
    )
    if middle > VERY_SLOW_MS:
        yield warn(
            "disk.fsync",
            told,
            "put server.state_dir on an SSD: each admission waits for one such write",
        )
    elif middle > SLOW_MS:
        yield note("disk.fsync", told, "an SSD for server.state_dir lets requests start sooner")
    else:
        yield ok("disk.fsync", told)


def durable_ms(folder: Path, writes: int = WRITES) -> list[float]:
    """What each of some writes took until it was on the disk. The file has no name, so nothing is
    left behind. Raises OSError."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        block = os.urandom(4096)
        for _ in range(writes):
            began = time.perf_counter()
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - began) * 1e3)
    return took


# -- what the disk says of itself ------------------------------------------------------------------


def _health(ground: Ground, there: Path) -> Iterator[Finding]:
    disk = disk_of(there.stat().st_dev, ground.root)
    if disk is None:
        yield note("disk.smart", f"{there} is on no disk of this machine that can be asked")
        return
    program = shutil.which("smartctl") or shutil.which("smartctl", path="/usr/sbin:/sbin")
    if program is None:
        yield note(
            "disk.smart",
            f"{disk}: not asked for its health, smartctl is not installed",
            "`apt install smartmontools`",
        )
        return
    yield smart(disk, _asked(program, disk))


def disk_of(device: int, root: Path = Path("/")) -> str | None:
    """The whole disk that a file system is on, such as `/dev/nvme0n1`."""
    place = root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    try:
        real = place.resolve(strict=True)
    except OSError:
        return None
    if (real / "partition").exists():
        real = real.parent
    return f"/dev/{real.name}"


def _asked(program: str, disk: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [program, "--json", "--health", "--attributes", disk],
            capture_output=True,
            timeout=_SMART_S,
            check=False,
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return found if isinstance(found, dict) else {}


def smart(disk: str, told: dict[str, Any]) -> Finding:
    """What smartctl's JSON means."""
    passed = told.get("smart_status", {}).get("passed")
    if passed is None:
        said = [one.get("string", "") for one in told.get("smartctl", {}).get("messages", ())]
        why = f" ({said[0]})" if said else ""
        advice = "virtual disks have none; on a real machine run this as root"
        return note("disk.smart", f"{disk} tells no health{why}", advice)
    wear = told.get("nvme_smart_health_information_log", {}).get("percentage_used")
    errors = told.get("nvme_smart_health_information_log", {}).get("media_errors")
    facts = [f"{wear} % of its life used"] if wear is not None else []
    facts += [f"{errors} media errors"] if errors is not None else []
    told_facts = f" ({', '.join(facts)})" if facts else ""
    advice = "`steelyard backup` now, and replace the disk"
    if not passed:
        return fail("disk.smart", f"{disk} says that it is failing{told_facts}", advice)
    if (wear or 0) >= 90 or errors:
        return warn("disk.smart", f"{disk} passes{told_facts}", advice)
    return ok("disk.smart", f"{disk} passes{told_facts}")
