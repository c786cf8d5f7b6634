"""Runs the commands of a page of the documentation in a tree, as an operator would on a machine."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from appliance.cli import run
from appliance.engine.wheel import ROOT

STICK = "/mnt/usb"
ROOTED = ("sh ", "steelyard update", "python3 ")
"""Commands that would act on the machine itself: here they get `--root`."""
STAND_INS = {"python3": sys.executable}


def commands(page: str) -> list[str]:
    """The lines of the page's sh blocks, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def do(line: str, stick: Path, tree: Path) -> None:
    """Runs one line of a page; fails the test when it fails."""
    words = shlex.split(line.replace(STICK, str(stick)))
    words = [word.replace("/opt/steelyard", str(tree / "opt/steelyard")) for word in words]
    if line.startswith(ROOTED):
        words += ["--root", str(tree)]
    if words[0] == "steelyard":
        assert run(words[1:]) == 0, line
        return
    program = STAND_INS.get(words[0], shutil.which(words[0]))
    if program is None:
        assert words[0] == "minisign", line
        return  # test_bundle_signature.py says that it is missing
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (line, done.stderr)
