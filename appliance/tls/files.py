"""Files that the daemon and the command line both write.

What root writes for a daemon of another user (`sudo steelyard tls renew`) belongs to that user, as
the folder above does; else the daemon could not read its own key.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Makes it, for its owner alone, if it is missing."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        _hand_over(folder)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other writers out."""
    with open(path, "w") as lock:
        _hand_over(path)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Replaces the file whole; it is on the disk when this returns."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        _hand_over(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
