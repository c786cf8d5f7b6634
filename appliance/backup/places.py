"""Names, room and locks: where a backup is written, and where it is put together."""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from appliance.backup.errors import BackupError

ENDING = ".steelyard-backup"
_DRAFT = ".steelyard-partial"
_WORKSHOP = ".steelyard-work-"
_STAMP = "%Y%m%dT%H%M%S"
LEFT_BYTES = 128 << 20
"""Stays free on the box's own disks whatever we write there: below 64 MiB the box says that it is
not ready, and a ledger that gets no room serves nobody."""
_SPARE_BYTES = 4 << 20
"""Stays free on other disks: what the file system itself needs."""


def named(host: str, wall_s: float) -> str:
    """The name of a backup in a directory of many, to the millisecond; by name they are in order of
    time."""
    seconds, thousandths = divmod(int(wall_s * 1000), 1000)
    stamp = time.strftime(_STAMP, time.gmtime(seconds))
    return f"{_prefix(host)}{stamp}.{thousandths:03}Z{ENDING}"


def siblings(folder: Path, host: str) -> list[Path]:
    """Backups of this host in the directory that have such names, newest first."""
    pattern = re.compile(rf"{re.escape(_prefix(host))}\d{{8}}T\d{{6}}\.\d{{3}}Z{re.escape(ENDING)}")
    return sorted(
        (path for path in folder.iterdir() if pattern.fullmatch(path.name)),
        key=lambda path: path.name,
        reverse=True,
    )


def _prefix(host: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9.-]+', '-', host).strip('.-') or 'box'}-"


@contextlib.contextmanager
def locked_state(state_dir: Path) -> Iterator[None]:
    """One backup or restore of a state directory at a time. It needs no room on its disk."""
    try:
        handle = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BackupError(
            f"{state_dir} cannot be read ({error.strerror}): check server.state_dir, and run this"
            " as root or as the user that the box runs as"
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackupError(
                f"another backup or restore of {state_dir} runs: wait until it has ended"
            ) from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def workshop(candidates: Sequence[Path], need: int) -> Iterator[Path]:
    """A folder of our own with room for `need` bytes in the first of the directories that has it;
    gone with all in it at the end. Raises BackupError."""
    for folder in candidates:
        if (free := free_bytes(folder)) is not None and free >= need + LEFT_BYTES:
            break
    else:
        told = ", ".join(f"{folder} has {_mib(free_bytes(folder))}" for folder in candidates)
        raise BackupError(
            f"{_mib(need + LEFT_BYTES)} are needed to put the backup together, and {told}: free"
            " some space, or set TMPDIR to a directory that has more"
        )
    clear_leftovers(folder)
    made = Path(tempfile.mkdtemp(prefix=_WORKSHOP, dir=folder))
    try:
        with _held(made, os.O_RDONLY | os.O_DIRECTORY):
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def drafted(final: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A file beside `final` that nobody else reads, open for writing; gone at the end unless it was
    renamed. Those of backups that were killed go first. Raises OSError."""
    for left in final.parent.glob(f".*{_DRAFT}"):
        with contextlib.suppress(OSError), _held(left, os.O_RDWR):
            left.unlink()
    draft = final.with_name(f".{final.name}{_DRAFT}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield draft, out
    finally:
        draft.unlink(missing_ok=True)


def clear_leftovers(folder: Path) -> None:
    """What was being put together when the power went or the process was killed."""
    for left in folder.glob(f"{_WORKSHOP}*"):
        with contextlib.suppress(OSError), _held(left, os.O_RDONLY | os.O_DIRECTORY):
            shutil.rmtree(left)


@contextlib.contextmanager
def _held(path: Path, flags: int) -> Iterator[None]:
    """A lock that ends with the process. Raises OSError if another process has it."""
    handle = os.open(path, flags | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def require_room(folder: Path, need: int, what: str, *, left: int = _SPARE_BYTES) -> None:
    """Raises BackupError if `need` bytes do not fit into the directory with `left` to spare."""
    free = free_bytes(folder)
    if free is None or free < need + left:
        raise BackupError(
            f"{folder} has {_mib(free)} free, and {what} may need {_mib(need + left)}: free some"
            " space on it, or take another disk"
        )


def free_bytes(folder: Path) -> int | None:
    """What may still be written there; None if it cannot be told."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def make_private(folder: Path) -> None:
    """The directory, and those above it that are missing, for their owner alone."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _mib(count: int | None) -> str:
    return "unknown room" if count is None else f"{-(-count >> 20)} MiB"
