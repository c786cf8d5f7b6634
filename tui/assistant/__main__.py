"""`/usr/libexec/steelyard/setup`: the assistant, as a screen where the terminal can show one, else
line by line. `python -m tui.assistant --help`."""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tui.assistant import lines, plan
from tui.assistant.checks import Wrong
from tui.assistant.machine import Machine
from tui.assistant.pages import SMALLEST, wrong_text
from tui.words import Words, language

_SERIAL = re.compile(r"/dev/(tty(S|AMA|USB|ACM|O|mxc)\d+|hvc\d+|ttysclp\d+)")


def screen(env: Mapping[str, str], size: tuple[int, int] | None, tty: str) -> str:
    """Empty where a screen can be drawn, else why not. `size`: columns and rows; None: the output
    is no terminal. `tty`: the input's name."""
    term = env.get("TERM", "")
    if size is None or not tty:
        return "no terminal"
    if term in ("", "dumb", "unknown"):
        return f"TERM={term}"
    if _SERIAL.fullmatch(tty):
        return tty
    if size[0] < SMALLEST[0] or size[1] < SMALLEST[1]:
        return f"{size[0]}x{size[1]}"
    return ""


def chinese(env: Mapping[str, str], encoding: str) -> bool:
    """The kernel's own console has no Chinese signs."""
    return env.get("TERM") != "linux" and "utf" in encoding.lower()


def _size() -> tuple[int, int] | None:
    try:
        found = os.get_terminal_size(1)
    except OSError:
        return None
    return found.columns, found.lines


def _tty() -> str:
    """Name of the terminal that is read from; empty: it is none. A unit that sees no devices
    (PrivateDevices) has no file of that name, and the kernel knows it all the same."""
    if not os.isatty(0):
        return ""
    try:
        return os.ttyname(0)
    except OSError:
        return os.readlink("/proc/self/fd/0")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("setup", description="Sets this machine up as a box.")
    parser.add_argument("--lines", action="store_true", help="Line by line, whatever the terminal.")
    parser.add_argument("--lang", choices=("en", "zh"), help="Default: the terminal's.")
    parser.add_argument("--resume", action="store_true",
                        help="End what a power cut broke off, and nothing else.")  # fmt: skip
    parser.add_argument("--root", type=Path, default=Path("/"), help="A tree in place of /.")
    given = parser.parse_args(arguments)
    lang = given.lang or language(os.environ)
    words = Words(lang)
    try:
        if plan.resume(given.root) and not given.resume:
            print(words("assist.resumed"), flush=True)
    except Wrong as wrong:
        print(wrong_text(wrong, words), file=sys.stderr)
        if given.resume:
            return 1
    if given.resume:
        return 0
    machine = Machine(given.root)
    print(words("assist.looking"), flush=True)
    facts = machine.look(chinese=chinese(os.environ, sys.stdout.encoding))
    why = "--lines" if given.lines else screen(os.environ, _size(), _tty())
    if not why:
        try:
            from tui.assistant import full

            return full.run(machine, facts, lang)
        except Exception as error:  # whatever it is, a person at the console must get on
            print(words("assist.lines.fallback", f"{type(error).__name__}: {error}"))
            facts = machine.look(chinese=facts.chinese)
    try:
        return lines.Lines(machine, facts, lang).talk()
    except Wrong as wrong:
        print(wrong_text(wrong, words), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
