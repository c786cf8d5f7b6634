"""Folders that are not there until all of them is: written under a hidden name, synced, renamed.

Who writes into a hidden folder holds its lock (`flock`), which ends with the process however it
ends. So a folder that can be locked is a leftover.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from appliance import durable
from appliance.durable import sync
from appliance.gguf import BadModel
from appliance.ownership import hand_over

LOCK = ".lock"
_FILE_MODE = 0o644
_FOLDER_MODE = 0o755
"""The state directory above lets nobody in but its owner. A command that root runs must leave what
the box's own user can read."""


def failed(path: Path, error: OSError) -> BadModel:
    """What a failure of the disk means to who asked."""
    what = f"{path}: cannot be read or written: {error.strerror or error}"
    if isinstance(error, PermissionError):
        return BadModel(f"{what}. Run this as the user of the box, or as root")
    return BadModel(f"{what}. Check that its disk is there and sound")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time changes what lies in the folder, which is made. Raises OSError."""
    if not folder.parent.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True)
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    give(folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(folder / LOCK, flags, _FILE_MODE)
    try:
        give(folder / LOCK)
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder of ours; what is left of it at the end is deleted. Raises OSError."""
    hidden = folder / f".adding-{secrets.token_hex(8)}"
    with locked(folder):
        clean(folder)
        hidden.mkdir(mode=_FOLDER_MODE)
        give(hidden)
        handle = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        os.close(handle)


def clean(folder: Path) -> None:
    """Delete what others left. Called with the lock."""
    for entry in folder.iterdir():
        if entry.name.startswith(".") and entry.is_dir() and not entry.is_symlink():
            handle = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry, ignore_errors=True)
            except BlockingIOError:
                pass  # Somebody is writing into it.
            finally:
                os.close(handle)


def discard(folder: Path) -> None:
    """Delete a folder so that it is there whole or not at all. Called with the lock."""
    hidden = folder.with_name(f".removing-{secrets.token_hex(8)}")
    folder.rename(hidden)
    sync(folder.parent)
    shutil.rmtree(hidden, ignore_errors=True)


def publish(hidden: Path, target: Path) -> None:
    """Give a staged folder its name, durably. Called with the lock. Raises OSError."""
    sync(hidden)
    hidden.rename(target)
    sync(target.parent)


def write(path: Path, content: bytes) -> None:
    """Replace the file whole and durably. Raises OSError."""
    durable.replace(path, content, _FILE_MODE, give=True)


def give(path: Path) -> None:
    """What root makes belongs to who owns the folder it is in: the user of the box."""
    hand_over(path, path.parent)
