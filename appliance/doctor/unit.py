"""Area `unit`: the service, as systemd knows it."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

from appliance.doctor.finding import Finding, note, ok, warn
from appliance.doctor.ground import Ground

UNIT = "steelyard.service"
EXPOSED = 2.0
"""Of `systemd-analyze security`, 0 to 10: our unit stays at or below."""
_S = 20.0
_PROPERTIES = "LoadState,UnitFileState,ActiveState,SubState,NRestarts,Result,WatchdogUSec"
_OVERALL = re.compile(r"Overall exposure level for \S+: ([\d.]+)")
Run = Callable[[Sequence[str]], str]


def look(ground: Ground, run: Run | None = None) -> Iterator[Finding]:
    if run is None:
        if not (ground.root / "run/systemd/system").is_dir() or not shutil.which("systemctl"):
            yield note(
                "unit.installed",
                "this machine was not started by systemd, so nothing restarts the box",
                "where systemd runs, `steelyard.service` does (docs/operating.md)",
            )
            return
        run = _run
    text = run(("systemctl", "show", UNIT, f"--property={_PROPERTIES}"))
    found = dict(line.partition("=")[::2] for line in text.splitlines())
    if found.get("LoadState") != "loaded":
        state = found.get("LoadState") or "unknown to systemctl"
        yield note(
            "unit.installed",
            f"{UNIT} is {state}",
            "install it (docs/operating.md), so that the box starts with the machine",
        )
        return
    yield from _state(found)
    yield _exposure(run(("systemd-analyze", "security", "--no-pager", UNIT)))


def _state(found: Mapping[str, str]) -> Iterator[Finding]:
    enabled = found.get("UnitFileState", "")
    if enabled in ("enabled", "enabled-runtime", "static", "generated"):
        yield ok("unit.installed", f"{UNIT} is installed and {enabled}")
    else:
        yield warn(
            "unit.installed",
            f"{UNIT} is {enabled or 'not enabled'}: it does not start with the machine",
            f"systemctl enable {UNIT}",
        )
    active, restarts = found.get("ActiveState", ""), found.get("NRestarts", "0")
    told = f"{active} ({found.get('SubState', '')}), restarted {restarts} times by systemd"
    if active == "failed":
        yield warn(
            "unit.active",
            f"{told}; result {found.get('Result', '')}",
            f"journalctl -u {UNIT} -e, then systemctl reset-failed {UNIT}",
        )
    elif restarts not in ("", "0"):
        yield warn("unit.active", told, f"journalctl -u {UNIT} -p warning")
    else:
        yield ok("unit.active", told)
    watchdog = found.get("WatchdogUSec", "")
    if watchdog in ("", "0", "infinity"):
        yield note(
            "unit.watchdog",
            "systemd does not watch whether the daemon goes on",
            f"WatchdogSec=90 in {UNIT}: ours has it",
        )
    else:
        yield ok("unit.watchdog", f"systemd restarts a daemon that is silent for {watchdog}")


def exposure(text: str) -> float | None:
    """The unit's exposure, 0 to 10; None where systemd-analyze does not tell."""
    found = _OVERALL.search(text)
    return float(found[1]) if found else None


def _exposure(text: str) -> Finding:
    found = exposure(text)
    if found is None:
        return note("unit.hardening", "systemd-analyze does not tell how the unit is hardened")
    told = f"exposure {found:.1f} of 10"
    if found > EXPOSED:
        return note(
            "unit.hardening",
            f"{told}; the unit that we ship is at {EXPOSED} or below",
            f"compare with ours, and see `systemd-analyze security {UNIT}`",
        )
    return ok("unit.hardening", told)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            [*command],
            capture_output=True,
            text=True,
            timeout=_S,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
