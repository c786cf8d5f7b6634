"""Makes a slot of a bundle's wheels, with Python's own venv and the pip that the bundle brings.
Standard library only.

A slot can be moved, as one in a tree that becomes an image is: its command finds its own folder.
Its list is written last, so a slot that was cut off is an empty one.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from appliance.bundle import durable, placing
from appliance.bundle.errors import BundleError
from appliance.bundle.folder import Opened, Tell, copy, silent
from appliance.bundle.layout import LISTED
from appliance.bundle.manifest import NAME, Entry
from appliance.bundle.record import reached
from appliance.bundle.running import run_watched

PIP = "pip-"
MARGIN = 64 << 20
COMPILED = 1.4
"""Bytes on the disk for one of a wheel's: Python's compiled files come along."""
COMMAND = """\
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/python" -P -m appliance "$@"
"""


def python_version() -> str:
    """Of the Python that runs this, and that slots are made for: `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def room_needed(wheels: Sequence[Entry]) -> int:
    """Bytes that a slot of these wheels takes on the disk."""
    return int(sum(wheel.unpacked for wheel in wheels) * COMPILED) + MARGIN


def fill(slot: Path, opened: Opened, tell: Tell = silent) -> None:
    """Makes the slot anew. `tell` hears of wheels. Raises BundleError, and the slot is empty."""
    wheels = opened.manifest.wheels_for(python_version())
    try:
        with durable.readable_by_all():
            _fill(slot, opened, wheels, tell)
    except OSError as error:
        shutil.rmtree(slot, ignore_errors=True)
        raise BundleError(
            f"{error.filename or slot}: {error.strerror or error}. The slot was emptied; what is "
            "in use was not touched"
        ) from error


def _fill(slot: Path, opened: Opened, wheels: Sequence[Entry], tell: Tell) -> None:
    durable.remove_tree(slot)
    reached("cleared")
    slot.mkdir(mode=0o755, parents=True)
    _make_venv(slot / "venv")
    reached("venv")
    _install(slot / "venv", opened, wheels, tell)
    reached("wheels")
    _copy_system(opened, slot)
    listed = (opened.folder / NAME).read_text("utf-8")
    durable.sync_tree(slot)
    durable.replace_text(slot / LISTED, listed)
    reached("filled")


def _make_venv(venv: Path) -> None:
    """Without pip, which Debian keeps in a package of its own."""
    python = os.path.realpath(sys.executable)
    command = [python, "-I", "-m", "venv", "--without-pip", "--symlinks", str(venv)]
    run_watched(command, f"{python} cannot make a virtual environment", env=_clean_environment())


def _install(venv: Path, opened: Opened, wheels: Sequence[Entry], tell: Tell) -> None:
    """By path and hash, so that nothing is looked for and nothing unlisted gets in."""
    pip = next((w for w in wheels if w.path.rpartition("/")[2].startswith(PIP)), None)
    if pip is None:
        raise BundleError("the bundle brings no pip: make it again")
    wanted = [wheel for wheel in wheels if wheel is not pip]
    tell(0, len(wanted))
    lines = (f"{opened.path_of(w).absolute()} --hash=sha256:{w.sha256}\n" for w in wanted)
    with tempfile.TemporaryDirectory(prefix="steelyard-") as folder:
        # Read once more on its way: the stick may have been changed since it was checked.
        own = Path(folder, pip.path.rpartition("/")[2])
        copy(opened.path_of(pip), pip, own)
        listed = Path(folder, "wheels.txt")
        listed.write_text("".join(lines), encoding="utf-8")
        arguments = ["--quiet", "--no-index", "--no-deps", "--require-hashes", "--no-cache-dir"]
        command = [str(venv / "bin/python"), "-I", str(own / "pip"), "install", *arguments]
        run_watched(
            [*command, "-r", str(listed)],
            "the wheels cannot be installed",
            look=lambda: tell(len(list(venv.glob("lib/*/site-packages/*.dist-info"))), len(wanted)),
            env=_clean_environment(),
        )
    (venv / "bin/steelyard").write_text(COMMAND, encoding="ascii")
    (venv / "bin/steelyard").chmod(0o755)
    tell(len(wanted), len(wanted))


def _copy_system(opened: Opened, slot: Path) -> None:
    (slot / placing.FOLDER).mkdir()
    for entry in opened.manifest.of("system", "installer"):
        copy(opened.path_of(entry), entry, slot / entry.path)
    placing.layout_of(slot / placing.FOLDER)


def _clean_environment() -> dict[str, str]:
    """pip must not read settings of this machine: an index it names has no part in this."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env.pop("PYTHONPATH", None)
    return {**env, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
