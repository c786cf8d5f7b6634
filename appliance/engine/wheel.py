"""The llama-cpp-python wheel of one target and toolchain: from the cache, or compiled into it.

Standard library only. The cache lies outside the tree, so that another checkout on the machine
reuses the wheel; a wheel is used only when it still has the SHA-256 that was recorded for it.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance import durable
from appliance.buildinfo import RECORD_NAME
from appliance.engine import portable
from appliance.engine.toolchain import Choice, Cpu

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements/engine.txt"
TOOLS_LOCK = ROOT / "requirements/build.txt"
KERNELS = Path(__file__).resolve().parent / "kernels"

LLAMA_COMMIT = "0c1e57098"
"""What the locked sdist carries, by its changelog: it has no git history to ask."""

EXTRA_OPTIONS: tuple[str, ...] = ()
"""For CMake: what was measured to make the engine faster. The one place for such options."""

NATIVE = "-DGGML_NATIVE=ON"
BASE_OPTIONS = (
    "-DLLAVA_BUILD=OFF",
    NATIVE,
    "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",  # else a wheel holds every library three times
    f"-DLLAMA_BUILD_COMMIT={LLAMA_COMMIT}",
)
BACKENDS = {"cpu": (), "cuda": ("-DGGML_CUDA=ON",)}

NATIVE_EXCLUDED = ("lib/**", "include/**")
"""Of the wheel: a second copy, for C++ projects."""

# llama.cpp's `common` is half of the compile time, and nothing of ours links it. Our kernels go
# into its sources. The record goes into the wheel, so that it can never describe another library
# than the one beside it.
CMAKE_HOOK = """
set(LLAMA_BUILD_COMMON OFF)
cmake_language(DEFER CALL configure_file "{folder}/build.json.in" "{folder}/build.json" @ONLY)
install(FILES "{folder}/build.json" DESTINATION "${{SKBUILD_PLATLIB_DIR}}/llama_cpp")
"""
KERNELS_HOOK = """
execute_process(
  COMMAND "{python}" "{patch}" "${{CMAKE_CURRENT_SOURCE_DIR}}" COMMAND_ERROR_IS_FATAL ANY)
"""

# Of all that the kernel lists, what a compiler can use: the rest may change with a kernel update.
INSTRUCTIONS = re.compile(
    r"sse|ssse|avx|fma|f16c|bmi|amx|abm|popcnt|movbe|adx|gfni|v?aes|v?pclmul|sha_ni|cx16|xop|tbm"
)
PIP_WHEEL = (
    *("-m", "pip", "wheel", "-v", "--disable-pip-version-check"),
    *("--no-deps", "--no-build-isolation", "--no-binary=:all:", "--require-hashes"),
    "--no-cache-dir",  # pip's cache would hand out a wheel that it once built with other flags
)
PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")


class BuildError(Exception):
    """The engine could not be built, or does not work. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is wanted, before a compiler is chosen."""

    version: str
    sdist_sha256: str
    backend: str
    instructions: tuple[str, ...]
    compiler_wanted: str

    @classmethod
    def read(cls, env: Mapping[str, str], cpu: Cpu) -> "Target":
        """From the environment, this CPU and the lock."""
        backend = env.get("STEELYARD_BACKEND") or "cpu"
        if backend not in BACKENDS:
            raise BuildError(f"STEELYARD_BACKEND is {backend!r}; it can be {' or '.join(BACKENDS)}")
        wanted = f"{env.get('CC', '')} {env.get('CXX', '')}".strip()
        return cls(*locked_sdist(LOCK.read_text()), backend, instructions(cpu), wanted)

    @classmethod
    def portable(cls, env: Mapping[str, str]) -> "Target":
        """For CPUs that are not known yet. The lock says the rest."""
        wanted = f"{env.get('CC', '')} {env.get('CXX', '')}".strip()
        return cls(*locked_sdist(LOCK.read_text()), "cpu", portable.INSTRUCTIONS, wanted)

    def digest(self) -> str:
        """Equal while an installed build is still the right one."""
        return digest(self, BASE_OPTIONS, EXTRA_OPTIONS, kernels())


@dataclass(frozen=True, slots=True)
class Plan:
    """One build: a target and the toolchain for it."""

    target: Target
    choice: Choice
    nvcc: str = ""
    kernels: bool = True
    """With ours in ggml's sources."""
    portable: bool = False
    """For any CPU, chosen at run time; else for the one that the target names."""

    def options(self) -> tuple[str, ...]:
        """For CMake."""
        openmp = f"-DGGML_OPENMP={'ON' if self.choice.compiler.openmp else 'OFF'}"
        backend = BACKENDS[self.target.backend]
        if self.portable:  # AMX is the variants' own affair
            base = (option for option in BASE_OPTIONS if option != NATIVE)
            return (*base, *backend, openmp, *portable.OPTIONS, *EXTRA_OPTIONS)
        return (*BASE_OPTIONS, *backend, openmp, *self.choice.options, *EXTRA_OPTIONS)

    def flags(self) -> tuple[str, ...]:
        """For the C and the C++ compiler."""
        return () if self.portable else self.choice.flags

    def fingerprint(self) -> str:
        """Names the wheel: everything that can change it."""
        compiler = self.choice.compiler.name
        ours = kernels() if self.kernels else ()
        options = (self.flags(), self.options())
        return digest(self.target, compiler, self.nvcc, *options, ours)

    def record(self) -> dict[str, str]:
        """What `appliance.buildinfo` reads; CMake fills in whether it found OpenMP."""
        return {
            "package_version": self.target.version,
            "llama_commit": LLAMA_COMMIT,
            "backend": self.target.backend,
            "compiler": " + ".join(filter(None, (self.choice.compiler.name, self.nvcc))),
            "flags": " ".join((*self.flags(), *self.options())),
            "amx": "variants" if self.portable else self.choice.amx,
            "openmp": "@GGML_OPENMP_ENABLED@",
            "kernels": "on" if self.kernels else "off",
            "fingerprint": self.fingerprint(),
            "target": self.target.digest(),
        }


def locked_sdist(lock: str) -> tuple[str, str]:
    """Version and SHA-256 of the one package in the lock."""
    found = re.search(r"^llama-cpp-python==(\S+).*?--hash=sha256:(\w{64})", lock, re.M | re.S)
    if found is None:
        raise BuildError(f"{LOCK.name} pins no llama-cpp-python with a hash; run `make lock`")
    return found[1], found[2]


def instructions(cpu: Cpu) -> tuple[str, ...]:
    """The part of the CPU's features that can change the code; all of them where none is known."""
    known = sorted(f for f in cpu.features if INSTRUCTIONS.match(f))
    return (cpu.machine, *(known or sorted(cpu.features)))


def kernels() -> tuple[str, ...]:
    """SHA-256 of all that is put into llama.cpp's sources."""
    return tuple(sha256_of(file) for file in sorted(KERNELS.glob("*.[hp]*")))


def cache_root(env: Mapping[str, str]) -> Path:
    """`$STEELYARD_CACHE`, or the user's cache folder."""
    if env.get("STEELYARD_CACHE"):
        return Path(env["STEELYARD_CACHE"])
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "steelyard"


def cached(folder: Path) -> Path | None:
    """The wheel in this folder of the cache, if it is complete and what was put there."""
    try:
        record = json.loads((folder / RECORD_NAME).read_text())
        wheel = folder / str(record["wheel"])
        return wheel if sha256_of(wheel) == record["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compile_into(folder: Path, plan: Plan, tools: Path, env: Mapping[str, str]) -> Path:
    """Builds the wheel. Its record is written last, so that a cut build leaves no wheel."""
    with tempfile.TemporaryDirectory(prefix="steelyard-build-") as name:
        work = Path(name)
        (work / "hook.cmake").write_text(hook_of(plan, work))
        (work / "build.json.in").write_text(json.dumps(plan.record(), indent=1))
        command = [str(tools / "python"), *PIP_WHEEL, "-r", str(LOCK), "-w", str(work)]
        logged(command, folder / "build.log", build_env(plan, work, tools, env))
        wheel = Path(shutil.copy(next(work.glob("*.whl")), folder))
    record = {**plan.record(), "wheel": wheel.name, "sha256": sha256_of(wheel)}
    durable.replace(folder / RECORD_NAME, json.dumps(record, indent=1).encode())
    return wheel


def hook_of(plan: Plan, work: Path) -> str:
    """What CMake includes when llama.cpp's project begins."""
    parts = (
        CMAKE_HOOK,
        KERNELS_HOOK if plan.kernels else "",
        portable.HOOK if plan.portable else "",
    )
    patch = KERNELS / "patch.py"
    amx = "on" if plan.choice.amx == "on" or plan.choice.compiler.tile_config == "kept" else "off"
    return "".join(parts).format(
        folder=work, python=sys.executable, patch=patch, root=ROOT, amx=amx
    )


def build_env(plan: Plan, work: Path, tools: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The environment that tells scikit-build-core and CMake what to build."""
    hook = f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={work / 'hook.cmake'}"
    flags = " ".join(plan.flags())
    excluded = portable.EXCLUDED if plan.portable else NATIVE_EXCLUDED
    return {
        **env,
        "PATH": f"{tools}{os.pathsep}{env.get('PATH', os.defpath)}",
        "CC": plan.choice.compiler.cc,
        "CXX": plan.choice.compiler.cxx,
        "CFLAGS": f"{env.get('CFLAGS', '')} {flags}".strip(),
        "CXXFLAGS": f"{env.get('CXXFLAGS', '')} {flags}".strip(),
        "CMAKE_ARGS": " ".join((*plan.options(), hook)),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(cores()),
        "SKBUILD_BUILD_TARGETS": "llama",
        "SKBUILD_WHEEL_EXCLUDE": ";".join(excluded),
    }


def tools(cache: Path) -> Path:
    """CMake, Ninja and the build back-end in an environment of their own; its bin folder."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = cache / "tools" / digest(version, TOOLS_LOCK.read_text())
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(place / "bin/python"), *PIP_INSTALL, "--only-binary=:all:", "--require-hashes"]
        logged([*pip, "-r", str(TOOLS_LOCK)], place / "install.log", os.environ)
        (place / "complete").touch()
    return place / "bin"


def logged(command: list[str], log: Path, env: Mapping[str, str]) -> None:
    """Runs it with its output in a file; the file's end is the message when it fails."""
    with log.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=env, check=False)
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise BuildError(f"the build failed; the end of {log}:\n{tail}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def cores() -> int:
    return len(os.sched_getaffinity(0))
