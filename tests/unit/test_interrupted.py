"""Ctrl-C says nothing and exits with 130, whatever the command is doing: still being imported, at
work, or on its way out."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["steelyard", *{arguments!r}]
from appliance.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("click", ["--version"]),
        ("appliance.cli", ["--version"]),
        ("appliance.commands.audit", ["--help"]),
        ("appliance.buildinfo", ["--version"]),
        ("appliance.config", ["config", "show"]),
    ],
)
def test_an_interrupt_amid_an_import_ends_it_without_a_word(
    module: str, arguments: list[str]
) -> None:
    program = PROGRAM.format(module=module, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (130, "")


def test_an_interrupt_at_the_very_end_says_nothing_either() -> None:
    program = (
        "import atexit, os, signal, sys; sys.argv = ['steelyard', '--version']\n"
        "from appliance.__main__ import main\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-2, "")


def test_the_installed_command_is_the_one_that_can_be_interrupted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"steelyard": "appliance.__main__:main"}
