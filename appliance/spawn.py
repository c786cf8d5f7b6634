"""How a program of ours is started in a process of its own."""

import os
import sys
from pathlib import Path

import appliance

_HOME = Path(appliance.__file__).parents[1]


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours: never one of the same name from the folder that an
    operator, who may be root, happens to be in."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**more: str) -> dict[str, str]:
    """With the place that this program itself was loaded from."""
    places = [str(_HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **more}
