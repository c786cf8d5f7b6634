"""Files that the daemon and the command line both write.

What root writes for a daemon of another user (`sudo steelyard tls renew`) belongs to that user, as
the folder above does; else the daemon could not read its own key.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from appliance.ownership import hand_over


def make_folder(folder: Path) -> None:
    """Makes it, for its owner alone, if it is missing."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        hand_over(folder, folder.parent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other writers out. No link is followed: it could lead root to a file of its own."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        hand_over(path, path.parent)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
