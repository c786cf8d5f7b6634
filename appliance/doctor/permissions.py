"""Area `permissions`: who may read secrets, and whether the box may write what it must."""

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground

_SECRET = ("ledger.sqlite*", "ledger-key.pem", "keys.json*", "tls/*-key.pem")
"""In the state directory; of each only the owner may know what is in it."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def look(ground: Ground) -> Iterator[Finding]:
    state_dir = ground.state_dir
    try:
        home = state_dir.stat()
    except FileNotFoundError:
        yield note("permissions.state", f"{state_dir} is not there yet: the first start makes it")
    except OSError as error:
        yield _unseen(state_dir, error)
        return
    else:
        yield _folder(state_dir, home)
        yield from _files(state_dir, home)
    yield from _given(ground)
    yield from _settings(ground)


def _unseen(path: Path, error: OSError) -> Finding:
    return fail(
        "permissions.state",
        f"{path}: {error.strerror}",
        "run this as root, or as the box's own user",
    )


def _folder(path: Path, found: os.stat_result) -> Finding:
    if not stat.S_ISDIR(found.st_mode):
        return fail(
            "permissions.state",
            f"{path} is no directory",
            "name another one in server.state_dir, or move it away",
        )
    told = f"{path} belongs to {_user(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}"
    if found.st_mode & _OTHERS:
        return warn("permissions.state", told, f"chmod 700 {path}")
    if found.st_uid == os.geteuid() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return fail("permissions.state", f"{told}, and cannot be written", f"chmod 700 {path}")
    return ok("permissions.state", told)


def _files(state_dir: Path, home: os.stat_result) -> Iterator[Finding]:
    looked, bad = 0, 0
    for path in sorted({p for pattern in _SECRET for p in state_dir.glob(pattern)}):
        found = path.stat()
        looked += 1
        if found.st_mode & _OTHERS:
            bad += 1
            told = f"{path} can be read or written by others: mode {found.st_mode & 0o777:04o}"
            yield fail("permissions.secrets", told, f"chmod 600 {path}")
        if found.st_uid != home.st_uid:
            bad += 1
            owner, should = _user(found.st_uid), _user(home.st_uid)
            yield fail(
                "permissions.owner",
                f"{path} belongs to {owner}, and the box runs as {should}",
                f"chown {should} {path}",
            )
    if looked and not bad:
        yield ok("permissions.secrets", f"{looked} files with secrets are their owner's alone")


def _given(ground: Ground) -> Iterator[Finding]:
    """The key of the operator's own certificate."""
    name = ground.config.tls.key
    if not name:
        return
    try:
        mode = Path(name).stat().st_mode
    except OSError:
        return  # area `tls` says so
    if mode & stat.S_IRWXO:
        yield fail("permissions.tls_key", f"everybody may read {name}", f"chmod o-rwx {name}")


def _settings(ground: Ground) -> Iterator[Finding]:
    """Who writes the configuration decides what the box runs."""
    if ground.file is None:
        return
    for path in (ground.file, ground.file.absolute().parent):
        found = path.stat()
        sticky = path.is_dir() and found.st_mode & stat.S_ISVTX
        if found.st_mode & stat.S_IWOTH and not sticky:
            yield fail(
                "permissions.config",
                f"everybody may write {path}: mode {found.st_mode & 0o777:04o}",
                f"chmod o-w {path}",
            )
            return
    yield ok("permissions.config", f"{ground.file} is written by its owner alone")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
