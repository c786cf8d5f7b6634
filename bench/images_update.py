"""What `bench.images` checks of updates: in a machine that is booted and serves, to a newer version
and to one that never becomes ready."""

import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from appliance.bundle import manifest
from appliance.bundle.create import sign
from appliance.bundle.signing import SecretKey, make_key
from bench.images_checks import Bench, Skip, ready
from bench.images_machine import Machine, NotThere, booted

COMMAND = "/usr/local/bin/steelyard"
UNIT = "system/systemd/steelyard.service"
INSIDE = "/mnt"
GOOD, BAD = "999.0.0", "999.1.0"


def update(bench: Bench) -> str:
    """A newer version serves afterwards; one whose daemon never starts is left by itself."""
    if bench.bundle is None:
        raise Skip("needs a bundle: --bundle FOLDER --key FILE")
    ready(bench)
    key, stick = make_key(), bench.work / "stick"
    shutil.rmtree(stick, ignore_errors=True)
    as_version(bench.bundle, stick / "good", GOOD, key)
    as_version(bench.bundle, stick / "bad", BAD, key, unit=_dead(bench.bundle))
    with booted(bench.tree, bench.console, f"{stick}:{INSIDE}") as machine:
        machine.wait_serving()
        before = in_use(machine)
        install(machine, "good", key)
        if (now := in_use(machine)) != GOOD:
            raise NotThere(f"after the update from {before} the machine has {now} in use")
        answer = machine.chat()
        try:
            install(machine, "bad", key)
        except NotThere as told:
            why = str(told).strip().splitlines()[-1]
        else:
            raise NotThere("an update to a version that never starts was called done")
        machine.wait_serving()
        if (now := in_use(machine)) != GOOD:
            raise NotThere(f"after an update that failed, {now} is in use")
        again = machine.chat()
    if answer != again:
        raise NotThere(f"{answer!r} before the failed update, {again!r} after it")
    return f"{before} to {GOOD}, {again!r}; then {BAD}, which never starts: {why[-160:]}"


def install(machine: Machine, folder: str, key: SecretKey) -> None:
    public = key.public.line()
    machine.run(COMMAND, "update", "--key", public, "--quiet", f"{INSIDE}/{folder}")


def in_use(machine: Machine) -> str:
    told = json.loads(machine.run(COMMAND, "update", "status", "--json"))
    return next(slot["version"] for slot in told["slots"] if slot["in_use"])


def as_version(
    source: Path, target: Path, version: str, key: SecretKey, *, unit: bytes | None = None
) -> None:
    """The same bundle under another version, signed with that key; `unit` in place of the
    daemon's. Files that stay are the same ones (hard links, else copies)."""
    shutil.copytree(source, target, copy_function=_link)
    for name in (manifest.NAME, manifest.SIGNATURE_NAME):
        (target / name).unlink()
    made = manifest.parse((source / manifest.NAME).read_bytes())
    files = made.files
    if unit is not None:
        (target / UNIT).unlink()
        (target / UNIT).write_bytes(unit)
        sha256 = hashlib.sha256(unit).hexdigest()
        files = tuple(
            replace(one, size=len(unit), sha256=sha256) if one.path == UNIT else one
            for one in files
        )
    sign(target, replace(made, version=version, files=files), key, f"for a check: {version}")


def _dead(bundle: Path) -> bytes:
    """A unit whose daemon ends at once, each time."""
    text = (bundle / UNIT).read_text("utf-8")
    dead, found = re.subn(r"(?m)^ExecStart=.*$", "ExecStart=/usr/bin/false", text)
    if found != 1:
        raise NotThere(f"{UNIT} has {found} lines ExecStart=")
    return dead.encode()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
