"""What goes into a bundle, each part by itself: one that cannot be had is named with the reason,
and keeps none of the others away."""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from appliance import __version__, buildinfo
from appliance.accounts.keys import FILE_NAME
from appliance.config import effective
from appliance.doctor.ground import Ground
from appliance.doctor.report import AREAS, Area, examine
from appliance.doctor.unit import UNIT
from appliance.spawn import environment, python
from appliance.support.hardware import hardware, packages
from appliance.support.leaflet import readme
from appliance.support.ledgerstates import states
from appliance.support.pack import Bundle
from appliance.support.redact import secrets_in

LOG_LINES = 5000
_RUN_S = 60.0
_MOST = 4 << 20
_INSTALLED = ("opt/steelyard/current/bundle.json", "opt/steelyard/update.json")
_MOST_FILES = 2000
_ROUTES = {
    "ready.json": "/readyz",
    "props.json": "/props",
    "metrics.txt": "/metrics",
    "admin-status.json": "/admin/status",
    "model.json": "/admin/model",
    "alarms.json": "/admin/alarms",
    "board.json": "/admin/board",
    "control.json": "/admin/control",
}
"""What the running box is asked for."""

Tell = Callable[[str, int, int], None]
"""Phase, done, total."""


class Missing(Exception):
    """This part cannot be had. Says why."""


def known_secrets(ground: Ground) -> list[str]:
    """What must not leave the box, as far as it can be read here: keys in files, and the key that
    was given to ask with."""
    found = [ground.box.key]
    if ground.usable:
        home = ground.state_dir
        paths = [*home.glob("tls/*-key.pem"), *home.glob("*-key.pem")]
        if ground.config.tls.key:
            paths.append(Path(ground.config.tls.key))
        for path in paths:
            try:
                found += secrets_in(path.read_text("ascii"))
            except (OSError, UnicodeDecodeError):
                continue  # what we cannot read cannot get into the bundle
    return found


def gather(
    bundle: Bundle, ground: Ground, wall: float, tell: Tell, areas: Sequence[Area] = AREAS
) -> None:
    """Fills the bundle. `wall`: when it is made."""
    makers = list(_parts(ground, wall, areas, tell))
    for done, (name, make) in enumerate(makers):
        tell(name, done, len(makers))
        try:
            bundle.add(name, make(), newest=name.endswith("log.txt"))
        except Missing as why:
            bundle.lack(name, str(why))
        except Exception as error:  # one part that breaks must not keep the others away
            bundle.lack(name, f"{type(error).__name__}: {error}")
    bundle.add("README.txt", readme(bundle, wall))
    bundle.add("manifest.json", bundle.manifest())


def _parts(
    ground: Ground, wall: float, areas: Sequence[Area], tell: Tell
) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "about.json", lambda: _json(_about(ground, wall))
    yield "config.toml", lambda: _config(ground)
    yield "packages.txt", packages
    yield "hardware.json", lambda: _json(hardware(ground.root))
    yield "log.txt", lambda: _log(ground)
    yield "kernel-log.txt", lambda: _journal("-k", "-p", "warning")
    yield "unit.txt", _unit
    for name, path in _ROUTES.items():
        yield name, partial(_asked, ground, path)
    yield "status.json", lambda: _status(ground)
    yield "ledger.json", lambda: _json(states(_state(ground) / FILE_NAME))
    yield "models.json", lambda: _json(_models(_state(ground)))
    yield "installed.json", lambda: _json(_installed(ground.root))
    yield "files.txt", lambda: _files(_state(ground))
    if areas:
        yield "doctor.json", lambda: _json(examine(ground, areas, tell).as_dict())


def _about(ground: Ground, wall: float) -> dict[str, Any]:
    build = buildinfo.installed()
    holder = ground.box.holder
    return {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall)),
        "version": __version__,
        "python": sys.version,
        "host": platform.node(),
        "user": os.geteuid(),
        "config": str(ground.file) if ground.file is not None else None,
        "state_dir": str(ground.state_dir) if ground.usable else None,
        "box": {"pid": holder.pid if holder is not None else None, "url": ground.box.url},
        "build": {name: getattr(build, name) for name in build.__slots__},
    }


def _config(ground: Ground) -> str:
    """What is in effect. Patterns that strike out texts can be texts that nobody should see."""
    if not ground.usable:
        return "# it cannot be used:\n" + "".join(f"# {line}\n" for line in ground.problems)
    config, count = ground.config, len(ground.config.ledger.redact)
    hidden = tuple(f"[pattern {n}]" for n in range(count))
    return effective(replace(config, ledger=replace(config.ledger, redact=hidden)))


def _asked(ground: Ground, path: str) -> str:
    answer = ground.box.get(path)
    if answer.refused:
        raise Missing("the box wants an admin key for it: STEELYARD_ADMIN_KEY, or --key-file")
    if answer.status not in (200, 503):
        raise Missing(answer.why or f"the box answered {answer.status}")
    return answer.body.decode("utf-8", "replace")


def _status(ground: Ground) -> str:
    """`steelyard status --json`."""
    box = ground.box
    if not box.url:
        raise Missing("no box runs here")
    command = python("appliance", "status", "--json", "--url", box.url)
    ca = _state(ground) / "tls" / "ca.pem"
    if box.url.startswith("https:") and ca.exists():
        command += ["--cacert", str(ca)]
    key = {"STEELYARD_ADMIN_KEY": box.key} if box.key else {}
    return _run(command, env=environment(**key))


def _log(ground: Ground) -> str:
    """The service's, or the newest lines that the running box remembers."""
    try:
        return _journal("-u", UNIT)
    except Missing as why:
        first = str(why)
    try:
        lines = json.loads(_asked(ground, "/admin/log?level=debug&limit=2000"))["lines"]
    except Missing as why:
        raise Missing(f"{first}; from the box: {why}") from None
    return "".join(
        f"{_moment(line['at_ms'])} {line['level']:7} {line['logger']}: {line['text']}\n"
        for line in lines
    )


def _moment(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms / 1000)) + f".{at_ms % 1000:03d}Z"


def _journal(*which: str) -> str:
    if shutil.which("journalctl") is None:
        raise Missing("there is no journal on this machine")
    lines = ("--lines", str(LOG_LINES), "--no-pager", "--quiet", "--output", "short-iso-precise")
    text = _run(["journalctl", *which, *lines])
    if not text.strip():
        raise Missing(f"the journal has nothing for {' '.join(which)}")
    return text


def _unit() -> str:
    if shutil.which("systemctl") is None:
        raise Missing("there is no systemd on this machine")
    return _run(["systemctl", "cat", "--no-pager", UNIT]) + _run(
        ["systemctl", "show", "--no-pager", UNIT]
    )


def _models(state_dir: Path) -> dict[str, Any]:
    """What the store says of itself, and what was tuned; never the models."""
    home = state_dir / "models"
    paths = [*sorted(home.glob("*/manifest.json")), home / "selected.json"]
    paths.append(state_dir / "tuned.json")
    found = {}
    for path in paths:
        if path.is_file():
            found[str(path.relative_to(state_dir))] = json.loads(_file(path))
    forecasters = sorted((state_dir / "forecasters").glob("*/*"))
    return {
        "store": found,
        "forecasters": [str(path.relative_to(state_dir)) for path in forecasters],
    }


def _installed(root: Path) -> dict[str, Any]:
    """What the slot in use was made of, and how far an update has come."""
    paths = [root / name for name in _INSTALLED]
    found = {path.name: json.loads(_file(path)) for path in paths if path.is_file()}
    if not found:
        raise Missing("this box was not installed from a bundle")
    return found


def _files(state_dir: Path) -> str:
    """Names, sizes, owners and times, not contents."""
    lines = []
    for path in sorted(state_dir.rglob("*"))[:_MOST_FILES]:
        found = path.lstat()
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime))
        owner = f"{found.st_uid}:{found.st_gid}"
        name = path.relative_to(state_dir)
        lines.append(f"{found.st_mode:06o} {owner:>11} {found.st_size:>13} {when} {name}")
    if not lines:
        raise Missing(f"{state_dir} is empty or not there")
    return "\n".join(lines) + "\n"


def _state(ground: Ground) -> Path:
    if not ground.usable:
        raise Missing("the configuration cannot be used, so it is not known where the state is")
    return ground.state_dir


def _file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except OSError as error:
        raise Missing(f"{path}: {error.strerror}") from None


def _run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """What it printed. Raises Missing where it printed nothing and failed."""
    try:
        done = subprocess.run(
            [*command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_RUN_S,
            check=False,
            env=env,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode and not text.strip():
        raise Missing(done.stderr.decode("utf-8", "replace").strip()[-500:] or "it failed")
    return text


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"
