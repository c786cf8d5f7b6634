"""One daemon a state directory."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import IO


class CannotServe(Exception):
    """The daemon cannot start; the message is for the operator."""


class InUse(CannotServe):
    """A daemon uses the state directory."""


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
    """The file, made if missing. Raises CannotServe."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise CannotServe(
            f"{path} cannot be written ({error.strerror}), and so nothing can in server.state_dir: "
            "check the directory's owner and permissions, and whether its file system is mounted "
            "read-only (after a disk error Linux does that by itself; see `dmesg`)"
        ) from None
