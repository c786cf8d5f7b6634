"""A trial in a child process: what crashes or hangs there is a finding, not the end."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.spawn import environment, python

MOST_LOG = 4 << 20
_TAIL = 300


@dataclass(frozen=True, slots=True)
class Ran:
    """How a trial ended. `told`: the object that it printed last; empty where it did not."""

    told: dict[str, Any]
    log: str
    problem: str = ""
    """Why it told nothing."""


def run(module: str, arguments: Sequence[str], *, timeout_s: float, nice: int = 0) -> Ran:
    """Runs `python -m MODULE`, which prints one JSON object, and logs on standard error. `nice`:
    how far it stands behind a box that serves."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            python(module, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            env=environment(),
        )
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
        try:
            code = process.wait(timeout_s)
            problem = _ended(code)
        except subprocess.TimeoutExpired:
            problem = f"it was not done within {timeout_s:.0f} s"
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        log.seek(0)
        told, text = _object(out.read(MOST_LOG)), log.read(MOST_LOG).decode(errors="replace")
    if told and not problem:
        return Ran(told, text)
    if not problem:
        problem = "it told nothing"
    return Ran({}, text, problem + _last_words(text))


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with status {code}" if code else ""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was ended by {name}"


def _object(data: bytes) -> dict[str, Any]:
    """The last line, where it is a JSON object."""
    lines = data.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _last_words(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f"; its last line: {lines[-1][-_TAIL:]}" if lines else ""
