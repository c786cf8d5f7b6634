"""One daemon a state directory."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from appliance.errors import ForOperator

_ANOTHER = "name another one in server.state_dir"


class CannotServe(ForOperator):
    """The daemon cannot start; the message is for the operator."""


class InUse(CannotServe):
    """A daemon uses the state directory."""


def refuse_strangers(state_dir: Path) -> None:
    """Raises CannotServe where this user may not open the directory, or nobody can: of each file in
    it he would else be told that it is damaged, and to move it away. One that is not there refuses
    nobody."""
    try:
        kind = state_dir.stat().st_mode
    except PermissionError:
        kind = 0  # a folder above it is shut
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotServe(f"{state_dir} cannot be opened ({error.strerror}): {_ANOTHER}") from None
    if kind and not stat.S_ISDIR(kind):
        raise CannotServe(f"{state_dir} is no directory: {_ANOTHER}")
    if kind and os.access(state_dir, os.R_OK | os.X_OK):
        return
    raise CannotServe(
        f"{state_dir} belongs to another user, and this one may not open it: run this as root, or "
        "as the user that the box runs as"
    )


@contextlib.contextmanager
def only_daemon(state_dir: Path) -> Iterator[None]:
    """Two daemons on one state directory would both write its files."""
    with _writable(state_dir / "daemon.lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(
                f"another steelyard serve uses {state_dir}: stop it, or give this one its own "
                "server.state_dir"
            ) from None
        yield


def _writable(path: Path) -> IO[str]:
    """The file, made if missing. Raises CannotServe, also for a link: where root restores a backup,
    it would lead root to a file that is none of the service's."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(os.open(path, flags, 0o644), "w", encoding="utf-8")
    except OSError as error:
        raise CannotServe(
            f"{path} cannot be written ({error.strerror}), and so nothing can in server.state_dir: "
            "check the directory's owner and permissions, and whether its file system is mounted "
            "read-only (after a disk error Linux does that by itself; see `dmesg`)"
        ) from None
