"""The backups in a directory, as far as they tell without being read whole."""

from dataclasses import dataclass
from pathlib import Path

from appliance.backup.archive import open_archive
from appliance.backup.errors import BackupError
from appliance.backup.manifest import Manifest
from appliance.backup.places import ENDING
from appliance.backup.sealing import MAGIC

_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Listed:
    """One of them."""

    path: Path
    bytes: int
    manifest: Manifest | None
    """None: it is encrypted, or no backup."""
    problem: str = ""


def backups(folder: Path) -> tuple[Listed, ...]:
    """By name. Raises BackupError if the directory cannot be read."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ENDING)
        return tuple(map(_listed, found[:_MOST]))
    except OSError as error:
        raise BackupError(f"{folder} cannot be read: {error.strerror}") from error


def is_sealed(path: Path) -> bool:
    """Whether it needs a passphrase. Raises BackupError."""
    try:
        with path.open("rb") as opened:
            return opened.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}") from error


def _listed(path: Path) -> Listed:
    size = path.stat().st_size
    try:
        if is_sealed(path):
            return Listed(path, size, None)
        with open_archive(path, None) as archive:
            return Listed(path, size, archive.manifest)
    except BackupError as error:
        return Listed(path, size, None, str(error))
