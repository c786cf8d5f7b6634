"""Area `cpu`: what the CPU has, what the library was built for, what this process may use."""

import re
from collections.abc import Iterator, Mapping

from appliance import buildinfo
from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground
from appliance.engine.toolchain import Cpu
from appliance.threads import usable_cores

FLAGS: Mapping[str, str] = {
    "SSE3": "pni", "SSSE3": "ssse3", "AVX": "avx", "AVX2": "avx2", "F16C": "f16c", "FMA": "fma",
    "BMI2": "bmi2", "AVX_VNNI": "avx_vnni", "AVX512": "avx512f", "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni", "AVX512_BF16": "avx512_bf16", "AMX_INT8": "amx_int8",
}  # fmt: skip
"""llama.cpp's features of x86, and what the kernel calls them."""
_WORTH = frozenset(FLAGS) - {"AMX_INT8", "SSE3", "SSSE3", "BMI2", "AVX_VNNI"}
"""Those whose absence from the build makes it slower. AMX has a finding of its own."""
_QUOTA = "sys/fs/cgroup/cpu.max"


def look(ground: Ground) -> Iterator[Finding]:
    cpu = Cpu.read(ground.root / "proc/cpuinfo")
    yield from _flags(cpu, _system_info(ground))
    yield from _amx(cpu, buildinfo.installed())
    yield from _library(buildinfo.installed())
    yield from _quota(ground)


def built_with(system_info: str) -> set[str]:
    """llama.cpp's line of features: those that it was compiled with."""
    return {name for name, value in re.findall(r"(\w+) = (\d+)", system_info) if value != "0"}


def _system_info(ground: Ground) -> str:
    told = ground.box.props.get("engine")
    found = told.get("system_info") if isinstance(told, dict) else ""
    return str(found or "") or ground.engine.system_info


def _flags(cpu: Cpu, system_info: str) -> Iterator[Finding]:
    if not system_info:
        yield note(
            "cpu.flags",
            "the library did not tell what it was built for: the engine did not start",
            "see the findings of `engine`",
        )
        return
    if cpu.machine != "x86_64":
        yield ok("cpu.flags", f"{cpu.machine}: the library says {system_info}")
        return
    built = built_with(system_info) & set(FLAGS)
    missing = sorted(name for name in built if FLAGS[name] not in cpu.features)
    unused = sorted(name for name in _WORTH if FLAGS[name] in cpu.features and name not in built)
    if missing:
        yield fail(
            "cpu.flags",
            f"the library uses {', '.join(missing)}, which this CPU does not have",
            "build it on this machine (`make library`), or install the bundle for this CPU",
        )
    elif unused:
        yield warn(
            "cpu.flags",
            f"this CPU has {', '.join(unused)}, which the library was built without",
            "build it on this machine (`make library`): prompts and answers become faster",
        )
    else:
        yield ok("cpu.flags", f"the library uses what this CPU has: {', '.join(sorted(built))}")


def _amx(cpu: Cpu, build: buildinfo.BuildInfo) -> Iterator[Finding]:
    if not cpu.amx:
        yield ok("cpu.amx", "this CPU has no AMX")
    elif build.amx == "on":
        yield ok("cpu.amx", "the library uses AMX, with tiles that were proven to be set up right")
    else:
        yield warn(
            "cpu.amx",
            f"this CPU has AMX, and the library does not use it ({build.compiler})",
            "`apt install clang libomp-dev`, then `make library`: several times as fast",
        )


def _library(build: buildinfo.BuildInfo) -> Iterator[Finding]:
    if build.fingerprint == buildinfo.UNKNOWN:
        yield warn(
            "cpu.library",
            "the engine's library has no record of its build: it is not one of ours",
            "install ours (`make library`): a stock build can crash on CPUs with AMX",
        )
    elif build.kernels != "on" and "x86" in Cpu.read().machine:
        yield note("cpu.library", f"{build.summary()}: our kernels are not in it")
    else:
        yield ok("cpu.library", build.summary())


def _quota(ground: Ground) -> Iterator[Finding]:
    """A quota of CPU time does not show in the CPU set, so threads are to be set by hand."""
    if not ground.usable:
        return
    threads = ground.config.engine.threads or usable_cores()
    quota, _, period = ground.text(_QUOTA).partition(" ")
    allowed = int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None
    if allowed is not None and allowed < threads:
        yield warn(
            "cpu.quota",
            f"the engine computes with {threads} threads, and a quota allows {allowed:.1f} CPUs",
            f"set engine.threads to {max(1, int(allowed))}: threads that wait for each other spin",
        )
    else:
        told = "no quota" if allowed is None else f"a quota of {allowed:.1f} CPUs"
        yield ok("cpu.quota", f"{threads} threads for {usable_cores()} cores, {told}")
