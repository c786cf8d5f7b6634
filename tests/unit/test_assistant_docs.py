"""What docs/install.md says of the set-up assistant."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from images.layout import FILES, HERE
from tests.unit.assistant_parts import machine
from tui.assistant import files
from tui.assistant.machine import DONE
from tui.assistant.steps import STEPS
from tui.words import Words

PAGE = (HERE.parent / "docs/install.md").read_text()
PROGRAM = "/usr/libexec/steelyard/setup"


def test_page_shows_what_the_screen_shows() -> None:
    shown = (Path(__file__).parent / "golden/assistant/network-en.txt").read_text()
    assert f"```text\n{shown.rstrip()}\n```" in PAGE


def test_page_names_every_step_and_every_file() -> None:
    about = PAGE[PAGE.index("## Setting it up") : PAGE.index("## Where things are")]
    words = Words()
    for step in STEPS:
        assert words(f"assist.step.{step.name}").split()[-1].lower() in about.lower()
    for target in files.TARGETS:
        assert f"/{target}" in about
    assert PROGRAM in [file.target for file in FILES]


def test_commands_of_the_page_work(tmp_path: Path) -> None:
    """Without a terminal both ask line by line; Enter keeps everything."""
    lines = re.findall(rf"^({PROGRAM}.*)$", PAGE, re.MULTILINE)
    assert [shlex.split(line)[1:] for line in lines] == [[], ["--lines"]]
    for number, line in enumerate(lines):
        root = tmp_path / str(number)
        machine(root)
        done = subprocess.run(
            [sys.executable, "-m", "tui.assistant", *shlex.split(line)[1:], "--root", str(root)],
            input="\n" * 8 + "y\n", capture_output=True, text=True, check=False, cwd=HERE.parent,
            start_new_session=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "Nothing would be changed" in done.stdout
        assert (root / DONE).exists()
