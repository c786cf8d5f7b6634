"""The wheels of a bundle: fetched by hash as the locks say, and the two that are built here."""

import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from appliance.bundle.errors import BundleError
from appliance.bundle.fitting import this_glibc
from appliance.bundle.folder import Tell, silent
from appliance.bundle.running import run_watched
from appliance.engine import toolchain, wheel
from appliance.engine.toolchain import Cpu
from appliance.engine.wheel import Plan, Target

LOCKS = {"cpu": ("pip", "runtime", "cpu", "model"), "cuda": ("pip", "runtime", "gpu", "model")}
PARTS = ("appliance", "firmware_bridge", "tui", "pyproject.toml", "README.md", "LICENSE")
"""Of the checkout: what the project's own wheel is built of."""
_MACHINE = "x86_64"
_OLD_PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", "linux")
_BY_PYTHON = re.compile(r"python_(?:full_)?version")
_DIST_INFO = re.compile(r"[^/]+\.dist-info/METADATA")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a wheel says of itself."""

    name: str
    version: str
    licence: str
    summary: str
    unpacked: int


def facts_of(file: Path) -> Facts:
    """Raises BundleError for a file that is no wheel."""
    try:
        with zipfile.ZipFile(file) as archive:
            name = next(n for n in archive.namelist() if _DIST_INFO.fullmatch(n))
            head = HeaderParser().parsestr(archive.read(name).decode("utf-8", "replace"))
            unpacked = sum(info.file_size for info in archive.infolist())
    except (OSError, zipfile.BadZipFile, StopIteration):
        raise BundleError(f"{file} is no wheel") from None
    licence = head["License-Expression"] or head["License"] or _classified(head.get_all) or ""
    summary = head["Summary"] or ""
    return Facts(head["Name"], head["Version"], licence.strip()[:200], summary[:200], unpacked)


def _classified(get_all: Callable[[str], Sequence[str] | None]) -> str:
    found = [c for c in get_all("Classifier") or () if c.startswith("License ::")]
    return found[0].rpartition(" :: ")[2] if found else ""


def fetch(root: Path, backend: str, python: str, target: Path, tell: Tell = silent) -> None:
    """Downloads every wheel of the locks for this Python, checked by hash. `tell` hears of wheels.
    Raises BundleError."""
    target.mkdir(parents=True, exist_ok=True)
    locks = [root / f"requirements/{name}.txt" for name in LOCKS[backend]]
    wanted = sum(map(check_lock, locks))
    for lock in locks:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--dest", str(target)]
        command += ["--implementation", "cp", "--python-version", python, *_platforms()]
        run_watched(
            [*command, "-r", str(lock)],
            f"the wheels of {lock.name} cannot be fetched",
            look=lambda: tell(len(list(target.glob("*.whl"))), wanted),
        )


def check_lock(lock: Path) -> int:
    """How many packages it names. pip judges markers by the Python that runs it, not by the one
    that is asked for, so there may be none of those. Raises BundleError."""
    if not lock.is_file():
        raise BundleError(f"{lock} is missing: a bundle is made from a checkout of the sources")
    if _BY_PYTHON.search(lock.read_text("utf-8")):
        raise BundleError(f"{lock} differs between Python versions, which bundles cannot follow")
    return len(re.findall(r"^\S+==", lock.read_text("utf-8"), re.MULTILINE))


def _platforms() -> Sequence[str]:
    """All that this system's C library can load; a bundle's machines have none that is older."""
    minor = int(this_glibc().partition(".")[2] or 17)
    names = [f"manylinux_2_{n}" for n in range(minor, 4, -1)]
    return [word for n in (*names, *_OLD_PLATFORMS) for word in ("--platform", f"{n}_{_MACHINE}")]


def build_own(root: Path, work: Path, target: Path) -> Path:
    """The project's own wheel, built in a copy, so that nothing is left in the checkout."""
    source = work / "source"
    for name in PARTS:
        path = root / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            source.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir", str(work / "own"), str(source)]
    run_watched(command, "the project's own wheel cannot be built")
    return Path(shutil.copy(next((work / "own").glob("steelyard-*.whl")), target))


def build_engine(target: Path, say: Callable[[str], None]) -> Path:
    """llama-cpp-python for every CPU (appliance/engine/portable.py), out of the cache of builds or
    compiled into it. Raises BundleError."""
    try:
        compilers = toolchain.find_compilers(os.environ)
        choice = toolchain.choose(Cpu.read(), compilers)
        plan = Plan(Target.portable(os.environ), choice, portable=True)
        cache = wheel.cache_root(os.environ)
        folder = cache / "wheels" / plan.fingerprint()
        found = wheel.cached(folder)
        if found is None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            say(f"compiles llama.cpp for every CPU, which takes long; log: {folder}/build.log")
            found = wheel.compile_into(folder, plan, wheel.tools(cache), os.environ)
    except (wheel.BuildError, toolchain.NoCompiler, OSError) as error:
        raise BundleError(f"the engine cannot be built: {error}") from None
    return Path(shutil.copy(found, target))
