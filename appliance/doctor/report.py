"""One examination: all areas in turn, or some."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from appliance import __version__
from appliance.doctor import (
    board,
    box,
    clock,
    cpu,
    disk,
    engine,
    gpu,
    keys,
    ledger,
    memory,
    model,
    onnx,
    permissions,
    port,
    settings,
    tls,
    unit,
)
from appliance.doctor.finding import LEVELS, Finding, Level, fail, note, warn
from appliance.doctor.ground import Ground

Look = Callable[[Ground], Iterable[Finding]]
Progress = Callable[[str, int, int], None]
"""Called before each area: its name, how many are done, how many there are."""


@dataclass(frozen=True, slots=True)
class Area:
    """What is looked at together."""

    name: str
    about: str
    look: Look
    configured: bool = True
    """It needs a configuration that can be used."""


AREAS: tuple[Area, ...] = (
    Area("config", "the configuration file", settings.look, configured=False),
    Area("box", "the running box: ready, degraded, its engine", box.look),
    Area("cpu", "CPU features against the built library, AMX, quota", cpu.look),
    Area("model", "the model's file, checksum and chat template", model.look),
    Area("engine", "the engine: one decode in a child", engine.look),
    Area("gpu", "GPU, driver, and layers really on the device", gpu.look),
    Area("onnx", "ONNX providers, each with a timed inference", onnx.look),
    Area("memory", "memory that the model needs and the machine has", memory.look),
    Area("disk", "space, time of an fsync, health, read-only mounts", disk.look),
    Area("clock", "time source, sanity, steady clock", clock.look),
    Area("board", "the line to the board", board.look),
    Area("tls", "certificates: names, dates", tls.look),
    Area("keys", "API keys: valid, ending", keys.look),
    Area("ledger", "the hash chain and its seals", ledger.look),
    Area("port", "the port: who has it, who answers", port.look),
    Area("permissions", "owners and modes of state, keys and configuration", permissions.look),
    Area("unit", "the systemd unit: installed, enabled, hardened", unit.look, configured=False),
)


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in the order of the areas."""

    findings: tuple[Finding, ...]
    seconds: float
    at: str
    """UTC, ISO 8601."""
    version: str = __version__

    @property
    def well(self) -> bool:
        """Nothing failed."""
        return not any(one.level == "fail" for one in self.findings)

    def count(self) -> dict[Level, int]:
        found = Counter(one.level for one in self.findings)
        return {level: found[level] for level in LEVELS}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": self.version,
            "at": self.at,
            "seconds": round(self.seconds, 1),
            "well": self.well,
            "counts": self.count(),
            "findings": [asdict(one) for one in self.findings],
        }


def examine(
    ground: Ground,
    areas: Sequence[Area] = AREAS,
    progress: Progress = lambda area, done, total: None,
) -> Report:
    """Looks at the areas in their order. A check that breaks is a finding as well."""
    began, at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    findings: list[Finding] = []
    for done, area in enumerate(areas):
        progress(area.name, done, len(areas))
        findings += survey(area, ground)
    return Report(tuple(findings), time.monotonic() - began, at)


def survey(area: Area, ground: Ground) -> list[Finding]:
    """One area's findings."""
    if area.configured and not ground.usable:
        return [note(f"{area.name}.skipped", "not looked at: the configuration cannot be used")]
    findings: list[Finding] = []
    try:
        findings.extend(area.look(ground))
    except PermissionError as error:
        findings.append(
            warn(
                f"{area.name}.unseen",
                f"this user may not look at {error.filename or 'what it needs'}",
                "run this as root, or as the box's own user",
            )
        )
    except OSError as error:
        findings.append(
            fail(
                f"{area.name}.unreadable",
                f"{error.filename or area.name}: {error.strerror or error}",
                "see `dmesg` for errors of the disk, and whether it is mounted",
            )
        )
    except Exception as error:  # one broken check must not hide what the others find
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        findings.append(
            fail(
                f"{area.name}.broken",
                f"this check itself failed: {why}",
                "report it with the bundle that `steelyard support` makes",
            )
        )
    return findings
