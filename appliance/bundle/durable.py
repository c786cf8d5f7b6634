"""Files and links that are replaced whole and are on the disk when the call returns. Standard
library only."""

import contextlib
import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_HERE = -100
"""AT_FDCWD."""
_EXCHANGE = 2
"""RENAME_EXCHANGE."""


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    draft = path.with_name(f".{path.name}.new")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.chmod(mode)
    draft.replace(path)
    sync(path.parent)


def replace_link(path: Path, target: str) -> None:
    """Points the link elsewhere in one step: it is never missing."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(path)
    sync(path.parent)


def remove_tree(path: Path) -> None:
    """Removes it under another name: a tree of this name is whole or not there."""
    if not path.exists():
        return
    leftover = path.with_name(f".{path.name}.old")
    shutil.rmtree(leftover, ignore_errors=True)
    path.rename(leftover)
    shutil.rmtree(leftover)


def replace_tree(draft: Path, target: Path) -> None:
    """Puts one tree in the place of another, in one step where the file system can: were the name
    missing when the power comes back, nobody would find either."""
    sync_tree(draft)
    if target.exists() and not exchange(draft, target):
        remove_tree(target)
    if draft.exists() and not target.exists():
        draft.rename(target)
    sync(target.parent)
    shutil.rmtree(draft, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Two names are swapped in one step (renameat2); whether that can be done here."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    names = os.fsencode(one), os.fsencode(other)
    return swap is not None and swap(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0


@contextlib.contextmanager
def readable_by_all() -> Iterator[None]:
    """What is made meanwhile can be read by every user, whatever root's own umask is: the box runs
    as another one."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Writes out the file system that holds it, all of it: a tree has thousands of files."""
    sync(folder)
    os.sync()
