"""Units, rules and settings of a slot, put where the system looks for them. Standard library only.

A slot keeps its own copy in system/, so that going back to it brings them back, too.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from appliance.bundle import durable
from appliance.bundle.errors import BundleError

FOLDER = "system"
LAYOUT = "layout.json"
ENABLED = "etc/systemd/system/multi-user.target.wants"
PLACES = ("etc", "usr")
_MODES = (0o644, 0o755)


@dataclass(frozen=True, slots=True)
class Placed:
    """One file. `source` is relative to the folder, `target` absolute."""

    source: str
    target: str
    mode: int
    appliance: bool
    """Only for a machine that is nothing but a box."""
    keep: bool
    """One that is there already is the operator's, and stays."""

    def __post_init__(self) -> None:
        """Raises BundleError: what is placed is root's."""
        source, target = PurePosixPath(self.source), PurePosixPath(self.target)
        sound = not source.is_absolute() and target.is_absolute() and len(target.parts) > 2
        if (
            not sound
            or ".." in source.parts + target.parts
            or target.parts[1] not in PLACES
            or self.mode not in _MODES
        ):
            raise BundleError(f"the bundle would put {self.source!r} to {self.target!r}: it is bad")


def layout_of(folder: Path) -> tuple[tuple[Placed, ...], tuple[str, ...]]:
    """The files, and the units to enable. Raises BundleError."""
    path = folder / LAYOUT
    try:
        found = json.loads(path.read_text("utf-8"))
        return tuple(Placed(**file) for file in found["files"]), tuple(found["enabled"])
    except FileNotFoundError:
        return (), ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BundleError(f"{path} cannot be used: {error}") from None


def place(folder: Path, root: Path, *, appliance: bool, enable: bool) -> bool:
    """Puts the files of the folder into the tree at `root`; whether anything changed. What is right
    already is not written. `enable` is for the first time: later an operator may have decided
    otherwise. Raises BundleError, OSError."""
    files, enabled = layout_of(folder)
    changed = False
    placed = set()
    for file in files:
        target = root / file.target.lstrip("/")
        if file.appliance and not appliance:
            continue
        placed.add(target.name)
        if not (file.keep and target.exists()):
            changed |= _put(folder / file.source, target, file.mode)
    for unit in sorted(placed & set(enabled)) if enable else ():
        changed |= _enable(root / ENABLED / unit, f"/etc/systemd/system/{unit}")
    return changed


def is_appliance(folder: Path, root: Path) -> bool:
    """Whether the machine was installed as nothing but a box."""
    own = [file for file in layout_of(folder)[0] if file.appliance]
    return any((root / file.target.lstrip("/")).exists() for file in own)


def _put(source: Path, target: Path, mode: int) -> bool:
    text = source.read_text("utf-8")
    if target.is_file() and target.read_bytes() == text.encode():
        return False
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    durable.replace_text(target, text, mode)
    return True


def _enable(link: Path, unit: str) -> bool:
    if os.path.lexists(link):
        return False
    link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    durable.replace_link(link, unit)
    return True
