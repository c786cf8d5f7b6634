"""Takes a file into the store: shared with the original where the file system can, else copied;
its SHA-256 in the same pass.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from appliance.durable import sync
from appliance.gguf import BadModel
from appliance.models.staging import give
from appliance.models.stored import StoredFile

SPARE = 64 * 1024 * 1024
"""Bytes that stay free on the disk."""
CHUNK = 4 * 1024 * 1024
_FICLONE = 0x40049409
"""`ioctl` that makes a file share the blocks of another (Btrfs, XFS, bcachefs)."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

Tell = Callable[[str, int, int], None]
"""Told the file, how many bytes of it are done, and of how many."""


def take(source: Path, target: Path, tell: Tell | None = None, more: int = 0) -> StoredFile:
    """Have the file at `target`, durable. `more` bytes will follow: if there is no room for them
    either, nothing is copied. Raises BadModel; OSError only for what lies in `target`'s folder.
    """
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(source, error) from error
    with os.fdopen(handle, "rb", buffering=0) as file:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise BadModel(f"{source}: it is not a regular file")
        if _cloned(file, target) or _linked(source, before, target):
            sha256 = read_sha256(target, tell)
        else:
            _check_room(source, before.st_size + more, target.parent)
            sha256 = _copied(source, file, before.st_size, target, tell)
        after = os.fstat(handle)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise BadModel(f"{source}: it changed while it was read. Try again")
    return StoredFile(target.name, before.st_size, sha256)


def read_sha256(path: Path, tell: Tell | None = None) -> str:
    """Of all that is in the file now. Raises BadModel."""
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            size, done = os.fstat(file.fileno()).st_size, 0
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if tell is not None:
                    tell(path.name, done, size)
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


def _linked(source: Path, found: os.stat_result, target: Path) -> bool:
    """Whether the original got a second name. Only where nobody else than the store's owner could
    write into it, and its owner can read it.
    """
    owner = target.parent.stat()
    if found.st_uid != owner.st_uid or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    try:
        os.link(source, target, follow_symlinks=True)
    except OSError:
        return False
    if target.stat(follow_symlinks=False).st_ino == found.st_ino:
        sync(target)  # It may have been written just now.
        return True
    target.unlink()
    return False


def _cloned(file: BinaryIO, target: Path) -> bool:
    with target.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, file.fileno())
        except OSError:
            new.close()
            target.unlink()
            return False
        os.fsync(new.fileno())
    target.chmod(0o644)
    give(target)
    return True


def _check_room(source: Path, size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + SPARE:
        raise _full(source, size, free)


def _copied(source: Path, file: BinaryIO, size: int, target: Path, tell: Tell | None) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        with target.open("xb", buffering=0) as new:
            while chunk := _read(source, file):
                digest.update(chunk)
                _write(new, chunk)
                done += len(chunk)
                if tell is not None:
                    tell(source.name, done, size)
                if done > size:
                    raise BadModel(f"{source}: it grew while it was read. Try again")
            os.fsync(new.fileno())
    except OSError as error:
        if error.errno in _FULL:
            raise _full(source, size, shutil.disk_usage(target.parent).free + done) from error
        raise
    target.chmod(0o644)
    give(target)
    return digest.hexdigest()


def _read(source: Path, file: BinaryIO) -> bytes:
    try:
        return file.read(CHUNK)
    except OSError as error:
        raise _unreadable(source, error) from error


def _write(file: BinaryIO, chunk: bytes) -> None:
    """All of it: an unbuffered file may take less at once."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]


def _unreadable(path: Path, error: OSError) -> BadModel:
    if isinstance(error, FileNotFoundError):
        return BadModel(
            f"{path}: it is gone, or its disk is not there. Mount the disk and try again"
        )
    return BadModel(f"{path}: cannot be read: {error.strerror or error}")


def _full(source: Path, size: int, free: int) -> BadModel:
    wanted = (size + SPARE) / 1e9
    return BadModel(
        f"{source}: a copy needs {wanted:.2f} GB and {free / 1e9:.2f} GB are free. Free "
        f"{max(0.01, wanted - free / 1e9):.2f} GB, or put the state directory on a larger disk"
    )
