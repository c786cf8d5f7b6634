"""Area `config`: is there a file, can it be used, does the box run with what it says now?"""

import os
import re
from collections.abc import Iterator

from appliance.doctor.finding import Finding, fail, note, ok
from appliance.doctor.ground import Ground

_MOST = 20
_CLOCKS_S = 2.0
"""The kernel tells the start of a process by a clock that ticks, since a second that it knows."""


def look(ground: Ground) -> Iterator[Finding]:
    if not ground.usable:
        more = len(ground.problems) - _MOST
        told = [*ground.problems[:_MOST], *([f"and {more} more"] if more > 0 else [])]
        yield fail(
            "config.file",
            "; ".join(told),
            "correct these; `steelyard config check FILE` tests the file",
        )
        return
    if ground.file is None:
        yield note(
            "config.file",
            "there is no file, so every setting has its default",
            "to change a setting, write it into /etc/steelyard/steelyard.toml",
        )
    else:
        yield ok("config.file", f"{ground.file} can be used")
    yield from _newer(ground)


def _newer(ground: Ground) -> Iterator[Finding]:
    """The box reads its file when it starts."""
    holder = ground.box.holder
    if holder is None or ground.file is None:
        return
    began = started(holder.pid, ground)
    try:
        changed = ground.file.stat().st_mtime
    except OSError:
        return
    if began is not None and changed > began + _CLOCKS_S:
        yield note(
            "config.running",
            f"{ground.file} was changed after the box had started",
            "restart the box, if it is to follow",
        )


def started(pid: int, ground: Ground) -> float | None:
    """When the process began, wall time; None where the kernel does not tell."""
    # The name, in brackets, may hold anything.
    words = ground.text(f"proc/{pid}/stat").rpartition(")")[2].split()
    boot = re.search(r"^btime (\d+)$", ground.text("proc/stat"), re.MULTILINE)
    if len(words) < 20 or boot is None:
        return None
    return int(boot[1]) + int(words[19]) / os.sysconf("SC_CLK_TCK")
