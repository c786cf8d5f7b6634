"""Files by their SHA-256, which is kept, so that a large file is read once, not at each start."""

import hashlib
import logging
import os
from pathlib import Path

import msgspec

from appliance import durable
from appliance.gguf import BadModel

log = logging.getLogger(__name__)

CACHE_NAME = "fingerprints.json"
CACHE_ENTRIES = 2048
"""A model may lie in a thousand files."""


def fingerprint(path: Path, state_dir: Path | None = None) -> str:
    """SHA-256 of the file in hex. It is kept in `state_dir`, so that a large file which did not
    change is not read at every start. Raises BadModel.
    """
    try:
        with path.open("rb") as file:
            key = _identity(path, os.fstat(file.fileno()))
            known = _cached(state_dir)
            if key not in known:
                known[key] = hashlib.file_digest(file, "sha256").hexdigest()
                if _identity(path, os.fstat(file.fileno())) != key:
                    raise BadModel(f"{path}: it changed while it was read. Try again")
                _remember(state_dir, known)
            return known[key]
    except OSError as error:
        raise BadModel(f"{path}: cannot be read: {error.strerror or error}") from error


def remember(path: Path, sha256: str, state_dir: Path) -> None:
    """Keep what is known of a file already."""
    try:
        known = _cached(state_dir)
        known[_identity(path, path.stat())] = sha256
    except OSError:
        return
    _remember(state_dir, known)


def _identity(path: Path, found: os.stat_result) -> str:
    """Changes whenever the file may have changed. The change time cannot be set back by tools."""
    times = f"{found.st_mtime_ns}:{found.st_ctime_ns}"
    return f"{found.st_size}:{times}:{found.st_ino}:{path.absolute()}"


def _cached(state_dir: Path | None) -> dict[str, str]:
    """What earlier runs computed. A damaged file is as good as none: it is computed again."""
    if state_dir is None:
        return {}
    try:
        return msgspec.json.decode((state_dir / CACHE_NAME).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _remember(state_dir: Path | None, known: dict[str, str]) -> None:
    """Best effort: a box that cannot write here says so elsewhere, and only starts more slowly."""
    if state_dir is None:
        return
    newest = dict(list(known.items())[-CACHE_ENTRIES:])
    kept = state_dir / CACHE_NAME
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(kept, msgspec.json.encode(newest), lasting=False)
    except OSError as error:
        log.warning("%s: the model's SHA-256 was not kept: %s", kept, error.strerror or error)
