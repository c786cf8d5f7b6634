"""What the figures of one machine depend on: another machine's settings are not this one's."""

import hashlib
import os
from pathlib import Path

import msgspec

from appliance.buildinfo import BuildInfo
from appliance.observe.nvml import Library, NvmlError
from appliance.threads import usable_cores

_FEATURES = ("amx", "avx", "fma", "f16c", "sse4", "asimd", "sve", "i8mm")
_GIB = 1 << 30


class Hardware(msgspec.Struct, frozen=True):
    """The machine as tuning knows it."""

    cpu: str
    features: tuple[str, ...]
    """Vector and matrix instructions."""
    cores: int
    """Physical ones that the process may use."""
    cpus: int
    memory_gib: int
    gpus: tuple[str, ...]
    build: str
    """Fingerprint of the llama.cpp library."""

    def fingerprint(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    def words(self) -> str:
        gpus = f", {', '.join(self.gpus)}" if self.gpus else ""
        return f"{self.cpu}, {self.cores} cores ({self.cpus} threads), {self.memory_gib} GiB{gpus}"


def read(build: BuildInfo, proc: Path = Path("/proc"), nvml: str | None = None) -> Hardware:
    """Of this machine, for this process's CPU set."""
    cpuinfo = _fields(proc / "cpuinfo")
    memory = _fields(proc / "meminfo").get("MemTotal", "0 kB")
    flags = (cpuinfo.get("flags") or cpuinfo.get("Features") or "").split()
    return Hardware(
        cpu=cpuinfo.get("model name") or os.uname().machine,
        features=tuple(sorted(flag for flag in flags if flag.startswith(_FEATURES))),
        cores=usable_cores(),
        cpus=len(os.sched_getaffinity(0)),
        memory_gib=round(int(memory.split()[0]) * 1024 / _GIB),
        gpus=_gpus(nvml),
        build=build.fingerprint,
    )


def _fields(path: Path) -> dict[str, str]:
    """The first value of each name."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _gpus(path: str | None) -> tuple[str, ...]:
    library = Library(path) if path else Library()
    try:
        return tuple(library.name(gpu) for gpu in range(library.start()))
    except NvmlError:
        return ()
