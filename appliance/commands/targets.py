"""Files that a command writes at its end: whether it could is asked at its beginning, before the
minutes or hours in between."""

import os
from pathlib import Path

from appliance.commands.exits import NotDone


def refuse_unwritable(*targets: Path | None) -> None:
    """Raises NotDone for the first that could not be written."""
    for target in targets:
        if target is not None and (why := _why_not(target)):
            raise NotDone(f"{target} cannot be written: {why}")


def _why_not(target: Path) -> str:
    folder = target.absolute().parent
    if target.is_dir():
        return "it is a directory. Name a file in it"
    if not folder.is_dir():
        return f"{folder} is no directory. Make it, or name another place"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} is not to be written by this user, or is mounted read-only. Name another"
    return ""
