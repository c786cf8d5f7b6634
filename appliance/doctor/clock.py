"""Area `clock`: is the time right, who keeps it so, and does the steady clock run?"""

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from appliance.accounts.keys import FILE_NAME
from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground
from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError

_STA_UNSYNC = 0x0040
_SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
_FAST = frozenset({"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"})
_BEHIND_S = 300.0
_LATEST = 4_102_444_800.0
"""2100: later is no date, but a dead battery or a typing error."""
_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the kernel knows of its clock."""

    synchronised: bool
    error_s: float
    """It is off by at most so much, where it is synchronised."""


def look(ground: Ground) -> Iterator[Finding]:
    yield source(kernel(), keeper())
    yield sane(time.time(), *_marks(ground))
    yield _steady(ground)


def source(found: Kernel | None, by: str) -> Finding:
    """Who keeps the time."""
    told = f", kept by {by}" if by else ""
    if found is None:
        return note("clock.source", f"the kernel does not tell how well it knows the time{told}")
    if found.synchronised:
        return ok(
            "clock.source", f"synchronised, off by at most {found.error_s * 1e3:.0f} ms{told}"
        )
    if by:
        return note(
            "clock.source",
            f"not synchronised{told}",
            "without a time server the ledger's times are this machine's own: name one of your "
            "network in its configuration, or set the clock by hand once a month",
        )
    return warn(
        "clock.source",
        "not synchronised, and nothing keeps the clock",
        "`apt install systemd-timesyncd` or chrony, with a time server of your network; a virtual "
        "machine may have its host's time, then this is no fault",
    )


def sane(wall: float, earliest: float, newest_row: float) -> Finding:
    """The time against what must have been before: our own files, and the ledger's newest row."""
    told = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall))
    advice = "set the clock (`timedatectl set-time`), or give it a time source, then restart"
    if wall > _LATEST or wall < earliest:
        return fail("clock.sane", f"it says {told}, which cannot be", advice)
    if newest_row - wall > _BEHIND_S:
        ahead = (newest_row - wall) / 60
        return fail(
            "clock.sane",
            f"it says {told}, and the ledger's newest row is {ahead:.0f} minutes later",
            advice,
        )
    return ok("clock.sane", told)


def kernel() -> Kernel | None:
    """By adjtimex, which changes nothing when asked so; None where it is not allowed."""
    buffer = (ctypes.c_long * 64)()  # struct timex is 208 bytes; modes = 0: read
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(buffer)) < 0:
        return None
    # struct timex: modes, offset, freq, maxerror, esterror, status, ... each in a long's place.
    status = buffer[5] & 0xFFFFFFFF
    return Kernel(not status & _STA_UNSYNC, buffer[3] / 1e6)


def keeper(run: Callable[[list[str]], str] | None = None) -> str:
    """The service that keeps the time, with its server where it tells; empty: none is known."""
    run = run or _run
    if shutil.which("chronyc") and (said := run(["chronyc", "-c", "tracking"])):
        parts = said.split(",")
        return f"chrony ({parts[1]})" if len(parts) > 2 else "chrony"
    if shutil.which("timedatectl"):
        lines = dict(line.partition("=")[::2] for line in run(["timedatectl", "show"]).splitlines())
        if lines.get("NTP") == "yes":
            servers = run(["timedatectl", "show-timesync", "--property=ServerName", "--value"])
            return f"systemd-timesyncd ({servers.strip()})" if servers.strip() else "NTP"
    return ""


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _marks(ground: Ground) -> tuple[float, float]:
    """What the time cannot be before (when this program was made), and the newest row's."""
    earliest = Path(__file__).stat().st_mtime
    path = ground.state_dir / FILE_NAME
    if not path.exists():
        return earliest, 0.0
    try:
        with closing(connect(path, read_only=True)) as db:
            row = db.execute(
                "SELECT json_extract(body, '$.wall_ns') FROM entries ORDER BY seq DESC LIMIT 1"
            ).fetchone()
    except LedgerError:
        return earliest, 0.0  # area `ledger` says why
    return earliest, (row[0] or 0) / 1e9 if row is not None else 0.0


def _steady(ground: Ground) -> Finding:
    name = ground.text(_SOURCE)
    first, second = time.monotonic_ns(), time.monotonic_ns()
    if second < first:
        return fail("clock.steady", "the steady clock runs backwards", "replace this machine")
    if name and name not in _FAST:
        return note(
            "clock.steady",
            f"the kernel reads the time from {name}, which is slow",
            "see `dmesg` for why the TSC was given up; a BIOS update often mends it",
        )
    return ok("clock.steady", f"the steady clock runs, read from {name or 'a source not named'}")
