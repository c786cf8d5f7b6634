"""Models and board firmware of a bundle, brought into the box's state. Standard library only.

What the state has already under the same name stays: it is the operator's.
"""

import os
import subprocess
from pathlib import Path

from appliance.bundle.errors import BundleError
from appliance.bundle.folder import Opened, Say, copy
from appliance.bundle.manifest import Entry

MODELS = "models"
FIRMWARE = "firmware"
_ADD_S = 7200


def bring(opened: Opened, python: Path, state: Path, say: Say) -> None:
    """`python`: of the slot whose code keeps the models. Raises BundleError, OSError."""
    for name, entry in _models(opened).items():
        if not (state / MODELS / name / "manifest.json").exists():
            say(f"adds model {name}")
            _add_model(opened.path_of(entry), name, python, state)
    for entry in opened.manifest.of("firmware"):
        target = state / FIRMWARE / entry.path.rpartition("/")[2]
        if not target.exists():
            say(f"adds board firmware {target.name}")
            for folder in (state, target.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            copy(opened.path_of(entry), entry, target)
            _hand_over(target)


def _models(opened: Opened) -> dict[str, Entry]:
    """Each by its name; of one in parts the first, beside which the others lie."""
    entries = sorted(opened.manifest.of("model"), key=lambda entry: entry.path, reverse=True)
    return {_name(entry): entry for entry in entries}


def _name(entry: Entry) -> str:
    """models/NAME/FILE in the bundle."""
    parts = entry.path.split("/")
    if len(parts) != 3:
        raise BundleError(f"{entry.path} is no model of a bundle: make the bundle again")
    return parts[1]


def _add_model(file: Path, name: str, python: Path, state: Path) -> None:
    """The store checks the file's structure, and its SHA-256 is compared with what was signed."""
    state.parent.mkdir(parents=True, exist_ok=True)
    command = [str(python), "-P", "-m", "appliance", "model", "add", str(file), "--name", name]
    env = {**os.environ, "STEELYARD_SERVER_STATE_DIR": str(state)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_ADD_S, check=False, env=env
    )
    if done.returncode:
        raise BundleError(f"model {name} cannot be added: {done.stderr.strip()[-400:]}")


def _hand_over(path: Path) -> None:
    """The state belongs to the box's own user, who may have put links there: none is followed."""
    if os.geteuid() == 0:
        owner = path.parent.parent.stat()
        for made in (path.parent, path):
            os.chown(made, owner.st_uid, owner.st_gid, follow_symlinks=False)
