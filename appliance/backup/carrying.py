"""Moving what may lie on another disk: the models may be on one of their own.

Whatever cuts it off, the old name or the new one leads to all of it. A copy gets its name when it
is whole and on the disk, and only then the original loses its own, in one step.
"""

import errno
import os
import shutil
from pathlib import Path

from appliance import durable
from appliance.ownership import hand_over

_HIDDEN = ".carried-"
"""Begins the names of what is not whole yet, or not any more. The next one clears it away."""


def move(source: Path, target: Path) -> None:
    """A file or folder gets the name `target`, which nothing has yet. Raises OSError, and then the
    original is where it was."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _carry(source, target)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 where there is nothing. Follows no link."""
    if path.is_dir() and not path.is_symlink():
        return sum(size_of(found) for found in path.iterdir())
    return path.lstat().st_size if os.path.lexists(path) else 0


def _carry(source: Path, target: Path) -> None:
    draft = target.with_name(f"{_HIDDEN}{target.name}")
    _clear(draft)
    _copy(source, draft)
    draft.rename(target)
    durable.sync(target.parent)
    rest = source.with_name(f"{_HIDDEN}{source.name}")
    _clear(rest)
    source.rename(rest)
    _clear(rest)


def _copy(source: Path, target: Path) -> None:
    """Durable, with modes, times and owners."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir(mode=0o700)
        for path in source.iterdir():
            _copy(path, target / path.name)
    else:
        shutil.copyfile(source, target)
    shutil.copystat(source, target)
    hand_over(target, source)
    durable.sync(target)


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
