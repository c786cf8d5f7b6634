"""Making a bundle, on a machine with a network and a checkout of the sources.

It is gathered in a folder beside the target and gets its name when it is whole and signed.
"""

import json
import os
import re
import runpy
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from appliance import __version__
from appliance.bundle import manifest, placing, sbom, wheels
from appliance.bundle.errors import BundleError
from appliance.bundle.filling import python_version
from appliance.bundle.fitting import this_glibc, this_platform
from appliance.bundle.folder import Say, Tell, check_files, open_bundle, silent
from appliance.bundle.manifest import Entry, Manifest
from appliance.bundle.signing import SecretKey, verify
from appliance.bundle.versions import parse_version
from appliance.engine.wheel import ROOT, sha256_of
from appliance.gguf.parts import MOST_PARTS, PART, paths_of, stem_of
from appliance.ledger.migrations import migration_names

INSTALLER = (
    "__init__",
    "bringing",
    "durable",
    "ed25519",
    "entry",
    "errors",
    "filling",
    "fitting",
    "folder",
    "install",
    "layout",
    "machine",
    "manifest",
    "minisign",
    "placing",
    "record",
    "running",
    "unit",
    "update",
    "versions",
)
"""Modules of this package that need the standard library alone."""
LICENCE = "Apache-2.0"
FIRST = "0.1.0"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a bundle is to hold."""

    pythons: tuple[str, ...] = field(default_factory=lambda: (python_version(),))
    backend: str = "cpu"
    engine: Path | None = None
    """A llama-cpp-python wheel, in place of one for every CPU that is built here."""
    models: tuple[Path, ...] = ()
    """GGUF files beside the default model, which always comes along; the first one of each split
    model."""
    firmware: tuple[Path, ...] = ()
    """Signed images for the board."""
    min_version: str = FIRST
    comment: str = ""
    """Signed, and shown by `verify`."""


def create(
    target: Path,
    plan: Plan,
    key: SecretKey,
    say: Say,
    *,
    tell: Tell = silent,
    root: Path = ROOT,
) -> Manifest:
    """Makes the folder `target`, which must not exist yet. `tell` hears of wheels that are fetched.
    Raises BundleError."""
    parse_version(plan.min_version)
    if target.exists():
        raise BundleError(f"{target} is there already: remove it, or give another name")
    if not (root / "requirements").is_dir() or not (root / "images").is_dir():
        raise BundleError(f"{root} is no checkout of the sources, which a bundle is made from")
    try:
        with tempfile.TemporaryDirectory(prefix=".bundle-", dir=target.absolute().parent) as name:
            folder = Path(name, "bundle")
            folder.mkdir()
            made = _gather(folder, Path(name), plan, key, say, tell, root)
            folder.rename(target)
    except OSError as error:
        raise BundleError(f"{error.filename or target}: {error.strerror or error}") from error
    return made


def _gather(
    folder: Path, work: Path, plan: Plan, key: SecretKey, say: Say, tell: Tell, root: Path
) -> Manifest:
    listed = _Listed(folder)
    say("builds the project's wheel")
    (folder / "wheels").mkdir()
    listed.wheel(wheels.build_own(root, work, folder / "wheels"), "wheel", ())
    say("takes the engine")
    listed.wheel(_engine(plan, folder / "wheels", say), "engine", ())
    _fetch(folder, work, plan, listed, say, tell, root)
    _copy_files(folder, plan, listed, root)
    created = _created()
    known = {e: f for e, f in listed.entries.items() if e.role in _BILLED}
    (folder / sbom.NAME).write_bytes(
        sbom.document(__version__, created, dict(sorted(known.items(), key=_path)), licence=LICENCE)
    )
    listed.add(folder / sbom.NAME, "sbom")
    made = Manifest(
        version=__version__,
        min_version=plan.min_version,
        created=created,
        platform=this_platform(),
        glibc=this_glibc(),
        pythons=plan.pythons,
        migrations=tuple(sorted(migration_names())),
        files=tuple(sorted(listed.entries, key=lambda entry: entry.path)),
    )
    say("signs it")
    sign(folder, made, key, plan.comment or f"steelyard {__version__} {created}")
    check_files(open_bundle(folder, [key.public], verify))
    return made


_BILLED = ("wheel", "engine", "model", "firmware")


def sign(folder: Path, made: Manifest, key: SecretKey, comment: str) -> None:
    """Writes the manifest and its signature."""
    data = made.dump()
    manifest.parse(data)
    (folder / manifest.NAME).write_bytes(data)
    (folder / manifest.SIGNATURE_NAME).write_text(key.sign(data, comment).text(), encoding="ascii")


class _Listed:
    """The entries so far, and what is known of those that are wheels."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.entries: dict[Entry, wheels.Facts | None] = {}

    def add(self, file: Path, role: str) -> None:
        path = file.relative_to(self._folder).as_posix()
        self.entries[Entry(path, file.stat().st_size, sha256_of(file), role)] = None

    def wheel(self, file: Path, role: str, pythons: Sequence[str]) -> None:
        facts = wheels.facts_of(file)
        path = file.relative_to(self._folder).as_posix()
        size, sha256 = file.stat().st_size, sha256_of(file)
        self.entries[Entry(path, size, sha256, role, tuple(pythons), facts.unpacked)] = facts


def _engine(plan: Plan, target: Path, say: Say) -> Path:
    if plan.engine is None:
        if plan.backend != "cpu":
            raise BundleError("an engine for GPUs is built where the GPU is: give its wheel")
        return wheels.build_engine(target, say)
    if wheels.facts_of(plan.engine).name != "llama_cpp_python":
        raise BundleError(f"{plan.engine} is no wheel of llama-cpp-python")
    return Path(shutil.copy(plan.engine, target))


def _fetch(
    folder: Path, work: Path, plan: Plan, listed: _Listed, say: Say, tell: Tell, root: Path
) -> None:
    """A wheel that serves several Python versions comes along once."""
    serves: dict[str, list[str]] = {}
    for python in plan.pythons:
        say(f"fetches the wheels for Python {python}")
        wheels.fetch(root, plan.backend, python, work / python, tell)
        for file in sorted((work / python).glob("*.whl")):
            if file.name not in serves:
                shutil.move(file, folder / "wheels" / file.name)
            serves.setdefault(file.name, []).append(python)
    for name, pythons in serves.items():
        every = len(pythons) == len(plan.pythons)
        listed.wheel(folder / "wheels" / name, "wheel", () if every else pythons)


def _copy_files(folder: Path, plan: Plan, listed: _Listed, root: Path) -> None:
    for source, target, role in (*_files(plan, root), *_system(folder, root)):
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.absolute() != path.absolute():
            shutil.copyfile(source, path)
        listed.add(path, role)


def _files(plan: Plan, root: Path) -> list[tuple[Path, str, str]]:
    """Source, place in the bundle, role."""
    found = [
        (root / "images/bundle/install.sh", "install.sh", "installer"),
        (root / "images/bundle/main.py", "installer/__main__.py", "installer"),
        (root / "appliance/__init__.py", "installer/appliance/__init__.py", "installer"),
        (root / "LICENSE", "LICENSE", "document"),
        (root / "README.md", "README.md", "document"),
        (root / "CHANGELOG.md", "CHANGELOG.md", "document"),
    ]
    package = "appliance/bundle"
    for name in INSTALLER:
        file = f"{package}/{name}.py"
        found.append((root / file, f"installer/{file}", "installer"))
    found += [(p, f"docs/{p.name}", "document") for p in sorted((root / "docs").glob("*.md"))]
    for model in plan.models:
        name = _safe(stem_of(model))
        found += [(p, f"models/{name}/{_safe(p.name)}", "model") for p in _parts(model)]
    found += [(p, f"firmware/{_safe(p.name)}", "firmware") for p in plan.firmware]
    return found


def _parts(model: Path) -> tuple[Path, ...]:
    """Its files, the first of which is given. Raises BundleError."""
    match = PART.fullmatch(model.name)
    if match is None:
        return (model,)
    if int(match["number"]) != 1 or not 1 <= int(match["count"]) <= MOST_PARTS:
        raise BundleError(f"{model.name} is a later part of a split model: name its first one")
    parts = paths_of(model, int(match["count"]))
    for part in parts:
        if not part.is_file():
            raise BundleError(f"{part} is missing: all parts of a split model must lie together")
    return parts


def _safe(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BundleError(f"{name!r} cannot be a name in a bundle: letters, digits, . _ - only")
    return name


def _system(folder: Path, root: Path) -> list[tuple[Path, str, str]]:
    """What images/layout.py places, and its list in JSON: the installer runs no code of others."""
    layout = runpy.run_path(str(root / "images/layout.py"), run_name="layout")
    files = [
        {"source": f.source, "target": f.target, "mode": f.mode,
         "appliance": f.appliance, "keep": f.keep}
        for f in layout["FILES"]
    ]  # fmt: skip
    system = folder / placing.FOLDER
    system.mkdir()
    written = system / placing.LAYOUT
    written.write_text(json.dumps({"files": files, "enabled": layout["WANTED"]}, indent=1) + "\n")
    found = [(written, f"{placing.FOLDER}/{placing.LAYOUT}", "system")]
    for file in files:
        source = str(file["source"])
        found.append((root / "images" / source, f"{placing.FOLDER}/{source}", "system"))
    return found


def _created() -> str:
    """UTC; $SOURCE_DATE_EPOCH where a build is to be repeated."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _path(item: tuple[Entry, object]) -> str:
    return item[0].path
