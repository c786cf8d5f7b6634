"""What root's commands write into the state becomes the service's.

On a box that systemd runs, the daemon is a user of its own and the operator's commands are root's.
A file that root left in the state directory could not be read by the daemon.
"""

import atexit
import os
import stat
from pathlib import Path


def hand_over(path: Path, like: Path) -> None:
    """What root made at `path` belongs to whom `like` belongs. Does nothing for others than root,
    and follows no link, which the other owner may have put there. Raises OSError."""
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def keep_owner(state_dir: Path) -> None:
    """At the end of this process all that is in `state_dir` belongs to who owns the directory now.
    Does nothing for others than root, and where the owner is root."""
    if os.geteuid() != 0:
        return
    try:
        found = state_dir.stat()
    except OSError:
        return  # not there yet: the service makes it its own when it starts
    if found.st_uid != 0:
        atexit.register(give_to, state_dir, found.st_uid, found.st_gid)


def give_to(folder: Path, uid: int, gid: int, whose: int = 0) -> None:
    """The files of `whose` (root) below `folder`, and itself, get another owner. Follows no link,
    and leaves files alone that have a name elsewhere: who owns the directory may have planted
    either. What vanishes meanwhile is forgotten."""
    real = os.path.realpath(folder)
    if os.stat(real).st_uid == whose:
        os.chown(real, uid, gid)
    for _, folders, files, here in os.fwalk(real, follow_symlinks=False):
        for name in (*folders, *files):
            _give(name, here, uid, gid, whose)


def _give(name: str, here: int, uid: int, gid: int, whose: int) -> None:
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        shared = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
        if found.st_uid == whose and not shared:
            os.chown(name, uid, gid, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return
