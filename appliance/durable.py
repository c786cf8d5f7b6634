"""Files that are replaced whole, and are on the disk when the call returns.

What is new is written beside the old file under a hidden name, synced, and given its name: after a
crash or a power cut there is the old file or the new one, never half of either. All here raises
OSError; until the new file has its name, the old one stays as it was. Standard library only.

What installs a box (`appliance.bundle`) has its own: it runs without this package.
"""

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from appliance.ownership import hand_over

_NO_SYNC = frozenset({errno.EACCES, errno.EINVAL, errno.ENOTSUP})
"""Of a folder: it may be written and not read, or its file system cannot sync one."""
_DRAFT = re.compile(r"\..+\.[0-9a-f]{8}\.new", re.DOTALL)
LEFT_S = 3600.0
"""A draft is a file of some KB to MB that is written at once: so old, nobody writes it any more."""


def replace(
    path: Path, content: bytes, mode: int = 0o666, *, give: bool = False, lasting: bool = True
) -> None:
    """Puts a file of this content in the place of `path`, or where none is yet.

    `mode` is less the umask. `give`: what root writes belongs to who owns the folder.
    `lasting=False` spares the disk the wait, for what is written often or can be told anew: it is
    still whole for whoever reads it, but a power cut may lose it.
    """
    with _draft(path, content, mode, give=give, lasting=lasting) as draft:
        draft.replace(path)
    if lasting:
        _sync_names(path.parent)


def create(path: Path, content: bytes, mode: int = 0o666) -> None:
    """As `replace`, where there is no such file yet. Raises FileExistsError where there is one,
    even if another process made it just now."""
    with _draft(path, content, mode) as draft:
        os.link(draft, path)
    _sync_names(path.parent)


def sweep(folder: Path) -> int:
    """Removes what processes that were killed while they wrote have left in `folder` and below;
    returns how many files. What is younger than `LEFT_S` may still be written; a folder that cannot
    be read is passed over, and so is what others removed meanwhile."""
    removed = 0
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names if _DRAFT.fullmatch(name)):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime >= LEFT_S:
                    path.unlink()
                    removed += 1
    return removed


def sync(path: Path) -> None:
    """A file's content, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_names(folder: Path) -> None:
    """The file has its name already: where only this cannot be, nothing failed."""
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


@contextlib.contextmanager
def _draft(
    path: Path, content: bytes, mode: int, *, give: bool = False, lasting: bool = True
) -> Iterator[Path]:
    """A file beside `path` with all of the content; that name of it is gone at the end."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            if give:
                hand_over(draft, path.parent)
            if lasting:
                os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
