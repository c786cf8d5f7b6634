"""Area `board`: the microcontroller's line, and what the box says of it."""

import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground

_WELL = ("armed", "watching", "inhibited")


def look(ground: Ground) -> Iterator[Finding]:
    device = ground.config.board.device
    told = ground.box.ready.get("board")
    state = str(told.get("state", "")) if isinstance(told, dict) else ""
    if not device and state in ("", "none"):
        yield note("board.line", "no board is configured: nothing power-cycles a box that hangs")
        return
    if device and "://" not in device:
        yield from _line(Path(device))
    if state:
        yield from _state(state, str(told.get("problem", "")) if isinstance(told, dict) else "")


def _line(path: Path) -> Iterator[Finding]:
    try:
        found = path.stat()
    except OSError as error:
        yield fail(
            "board.line",
            f"{path}: {error.strerror}",
            "plug the board in; its udev rule makes this name (docs/board.md)",
        )
        return
    if not stat.S_ISCHR(found.st_mode):
        yield fail("board.line", f"{path} is no serial line", "correct board.device")
    elif not os.access(path, os.R_OK | os.W_OK):
        group = _group(found.st_gid)
        yield warn(
            "board.line",
            f"{path} cannot be opened by this user; its group is {group}",
            f"the box's own user must be in {group}: `usermod -aG {group} steelyard`",
        )
    else:
        yield ok("board.line", f"{path} is there, and may be opened")


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _state(state: str, problem: str) -> Iterator[Finding]:
    if state in _WELL:
        yield ok("board.state", f"the box says: {state}")
    elif state == "latched":
        yield fail(
            "board.state",
            "its watchdog has latched after three power cycles and acts no more",
            "find out why the box hung (`steelyard audit log`), then press the board's button",
        )
    elif state == "greeting":
        yield note("board.state", "the box is just greeting it", "look again in some seconds")
    else:
        yield warn("board.state", f"the box says: {state}. {problem}".strip(), "see docs/board.md")
