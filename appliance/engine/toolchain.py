"""Which compiler builds the engine, and with which guards. Standard library only.

The trap: in affected versions of GCC, `_tile_loadconfig` tells the optimiser that it reads 8 bytes.
It reads 64, so the stores of the other 56 are dropped, and on a CPU with AMX the first decode
crashes. Versions are not compared here: each compiler is asked to compile that very thing, and its
assembly is read. `choose` is pure.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NO_AMX_FLAGS = ("-mno-amx-tile", "-mno-amx-int8")
NO_AMX_OPTIONS = ("-DGGML_AMX_TILE=OFF", "-DGGML_AMX_INT8=OFF", "-DGGML_AMX_BF16=OFF")
"""Explicit -mno- flags win over -march=native, wherever they stand on the command line."""

CLANGS = tuple(f"clang-{version}" for version in range(22, 13, -1))
CANDIDATES = (*CLANGS, "clang", "gcc", "cc")
NO_COMPILER = (
    "no C++ compiler was found, and the engine is compiled for this CPU. As root: "
    "`apt install g++` (for a CPU with AMX better: `apt install clang libomp-dev`), or name one in "
    "CC and CXX. What is named there must be able to link a C++ program."
)

MARK = 0x5AFEC0DE
TILE_PROBE = f"""
#include <immintrin.h>
void probe(void) {{
    unsigned long long config[8] = {{1, 0, 0, 0, 0, 0, {MARK}, 0}};
    _tile_loadconfig(config);
}}
"""
CXX_PROBE = "#include <thread>\nint main() { std::thread([] {}).join(); }\n"
OPENMP_PROBE = "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n"

TileConfig = Literal["kept", "dropped", "unsupported"]
Amx = Literal["on", "off", "absent"]


@dataclass(frozen=True, slots=True)
class Cpu:
    """What the kernel says of the CPU that the engine will run on."""

    machine: str
    features: frozenset[str]

    @property
    def amx(self) -> bool:
        return {"amx_tile", "amx_int8"} <= self.features

    @classmethod
    def read(cls, path: Path = Path("/proc/cpuinfo")) -> "Cpu":
        """The features of the first core; x86 calls them flags, Arm calls them Features."""
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", path.read_text(), re.MULTILINE)
        return cls(os.uname().machine, frozenset(found[1].split() if found else ()))


@dataclass(frozen=True, slots=True)
class Compiler:
    """One compiler that can link C++ programs, and what the probes found."""

    cc: str
    cxx: str
    name: str
    """For people and for the fingerprint, e.g. `clang 19.1.7`."""
    tile_config: TileConfig
    openmp: bool


@dataclass(frozen=True, slots=True)
class Choice:
    compiler: Compiler
    amx: Amx
    reason: str
    flags: tuple[str, ...] = ()
    """For the C and the C++ compiler."""
    options: tuple[str, ...] = ()
    """For CMake."""

    def line(self) -> str:
        return f"{self.compiler.name}, AMX {self.amx}: {self.reason}"


class NoCompiler(Exception):
    """There is nothing to build with. The message says what to install."""


def choose(cpu: Cpu, compilers: Sequence[Compiler]) -> Choice:
    """The compiler and the guards for this CPU; raises NoCompiler when there is none.

    With AMX in the CPU, a compiler that keeps the tile configuration goes before all others.
    """
    if not compilers:
        raise NoCompiler(NO_COMPILER)
    sound = [c for c in compilers if c.tile_config == "kept"]
    if cpu.amx and sound:
        return Choice(
            _best(sound), "on", "the CPU has AMX and this compiler sets its tiles up right"
        )
    compiler = _best(compilers)
    if cpu.amx:
        return without_amx(compiler, _why_off(compiler))
    if compiler.tile_config == "dropped":
        reason = "the CPU has no AMX; the guard stays on, for the wheel may travel"
        return _guarded(compiler, "absent", reason)
    return Choice(compiler, "absent", "the CPU has no AMX, no guard is needed")


def without_amx(compiler: Compiler, reason: str) -> Choice:
    """The safe build on a CPU with AMX."""
    return _guarded(compiler, "off", reason)


def _guarded(compiler: Compiler, amx: Amx, reason: str) -> Choice:
    if compiler.tile_config == "unsupported":
        return Choice(compiler, amx, reason)
    return Choice(compiler, amx, reason, NO_AMX_FLAGS, NO_AMX_OPTIONS)


def _best(compilers: Sequence[Compiler]) -> Compiler:
    """OpenMP first, then the order in which they were found."""
    return min(compilers, key=lambda c: not c.openmp)


def _why_off(compiler: Compiler) -> str:
    if compiler.tile_config == "unsupported":
        fault = "this compiler does not know AMX"
    else:
        fault = "this compiler drops the set-up of AMX tiles, which crashes"
    return f"the CPU has AMX, but {fault}; `apt install clang libomp-dev` makes the engine faster"


def find_compilers(env: Mapping[str, str]) -> list[Compiler]:
    """Those that work, best known first. CC in the environment is the only candidate if set."""
    probed = (probe(cc, cxx) for cc, cxx in _candidates(env))
    return [compiler for compiler in probed if compiler is not None]


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if env.get("CC") or env.get("CXX"):
        cc = env.get("CC") or "cc"
        yield cc, env.get("CXX") or cxx_of(cc)
        return
    seen: set[str] = set()
    for cc in CANDIDATES:
        path = shutil.which(cc, path=env.get("PATH"))
        if path and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield cc, cxx_of(cc)


def cxx_of(cc: str) -> str:
    """`clang-19` → `clang++-19`, `/usr/bin/gcc-13` → `/usr/bin/g++-13`, `cc` → `c++`."""
    folder, _, name = cc.rpartition("/")
    name = re.sub(r"(clang|gcc|cc)(?=$|[-.\d])", lambda m: _CXX_NAMES[m[1]], name, count=1)
    return f"{folder}/{name}" if folder else name


_CXX_NAMES = {"clang": "clang++", "gcc": "g++", "cc": "c++"}


def probe(cc: str, cxx: str) -> Compiler | None:
    """None when it cannot link a C++ program."""
    if not _links(cxx, CXX_PROBE, "-pthread"):
        return None
    openmp = _links(cxx, OPENMP_PROBE, "-fopenmp")
    return Compiler(cc, cxx, _name(cc), tile_config(cc), openmp)


def tile_config(cc: str) -> TileConfig:
    """Whether the stores of a tile configuration survive this compiler's optimiser."""
    flags = ("-x", "c", "-O3", "-mamx-tile", "-S", "-o", "-")
    assembly = run_compiler(cc, TILE_PROBE, *flags)
    if assembly is None or "ldtilecfg" not in assembly:
        return "unsupported"
    return "kept" if str(MARK) in assembly else "dropped"


def _links(cxx: str, source: str, flag: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return run_compiler(cxx, source, "-x", "c++", flag, "-o", f"{folder}/probe") is not None


def _name(cc: str) -> str:
    macros = dict(
        re.findall(r"#define (\w+) (.*)", run_compiler(cc, "", "-x", "c", "-dM", "-E") or "")
    )
    if "__clang__" in macros:
        kind, parts = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        kind, parts = "gcc", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return f"{kind} {'.'.join(macros.get(part, '?') for part in parts)}"


def run_compiler(compiler: str, source: str, *flags: str) -> str | None:
    """Its standard output; None when it fails or is not there."""
    command = [*shlex.split(compiler), *flags, "-"]
    try:
        done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
