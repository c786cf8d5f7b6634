"""Verifying the ledger while the box serves: `python -m appliance.ledger.verify` as a child of low
priority, one at a time. Its result is kept until the next one.
"""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from appliance.api.console_shapes import Verification
from appliance.frames import Job

log = logging.getLogger("appliance.admin")

NICE = 10
_FAULTS = 1
_END_S = 2.0
_LINE_BYTES = 1 << 20
"""Of the child's progress: its lines are short, an error's traceback is not."""


class Verifying:
    """The one verification of the box. Belongs to the event loop."""

    def __init__(self, ledger: Path, command: tuple[str, ...] = ()) -> None:
        """`command`: what to run in place of the verifier, for tests."""
        self.now = Verification(state="none")
        self._command = command or (
            sys.executable, "-P", "-m", "appliance.ledger.verify", str(ledger), "--json",
            "--progress",
        )  # fmt: skip
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0

    @property
    def running(self) -> bool:
        return self.now.state == "running"

    @property
    def ok(self) -> bool | None:
        """What the last one found; None while there is none."""
        return {"intact": True, "faults": False}.get(self.now.state)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """As `state` tells of it."""
        if not self.running:
            return ()
        now = self.now
        return (
            Job(
                kind="verify",
                phase="rows",
                done=now.done,
                total=now.total,
                eta_ms=now.eta_ms,
                rate=now.rate,
            ),
        )

    def start(self, by: str) -> bool:
        """Starts one. False, and nothing happens, while one runs."""
        if self.running:
            return False
        self._began = time.monotonic()
        self.now = Verification(state="running", by=by, started_ms=_wall_ms())
        self._task = asyncio.create_task(self._run(), name="verify")
        return True

    async def close(self) -> None:
        """Ends what runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            status, told, problem = await self._child()
            self._end(status, told, problem)
        except OSError as error:
            self._fail(f"the verifier could not be started: {error.strerror}")
        except asyncio.CancelledError:
            self._fail("the box stopped before it was done: start it again")
            raise

    async def _child(self) -> tuple[int, bytes, str]:
        """Its exit status, what it found, and what it complained of last."""
        child = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        try:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
            assert child.stdout is not None
            assert child.stderr is not None
            told, problem = await asyncio.gather(child.stdout.read(), self._follow(child.stderr))
            return await child.wait(), told, problem
        finally:
            await _ended(child)

    async def _follow(self, lines: asyncio.StreamReader) -> str:
        """Notes the progress; returns the last line that was none."""
        said = ""
        while raw := await lines.readline():
            line = raw.decode("utf-8", "replace").strip()
            words = line.split()
            if len(words) == 2 and all(word.isdecimal() for word in words):
                self._progress(int(words[0]), int(words[1]))
            elif line:  # a traceback may hold empty ones
                said = line
        return said

    def _progress(self, done: int, total: int) -> None:
        rate = done / max(time.monotonic() - self._began, 1e-3)
        eta_ms = round((total - done) / rate * 1000) if rate else None
        self.now = replace(self.now, done=done, total=total, rate=round(rate), eta_ms=eta_ms)

    def _end(self, status: int, told: bytes, problem: str) -> None:
        if status not in (0, _FAULTS):
            self._fail(problem or f"the verifier ended with {status}: see the log")
            return
        try:
            verdict: dict[str, Any] = msgspec.json.decode(told, type=dict[str, Any])
        except msgspec.DecodeError:
            self._fail(problem or "the verifier said nothing that could be read: see the log")
            return
        rows = int(verdict.get("rows", 0))
        rate = rows / max(time.monotonic() - self._began, 1e-3)
        self.now = replace(
            self.now,
            state="faults" if status else "intact",
            ended_ms=_wall_ms(),
            done=rows,
            total=rows,
            rate=round(rate),
            eta_ms=0,
            bad_row=_first([fault.get("seq") for fault in verdict.get("faults", ())]),
            verdict=verdict,
        )
        say: Callable[..., None] = log.critical if status else log.info
        say("the ledger was verified: %d faults in %d rows", verdict.get("fault_count", 0), rows)

    def _fail(self, problem: str) -> None:
        self.now = replace(self.now, state="failed", ended_ms=_wall_ms(), problem=problem)
        log.error("the ledger could not be verified: %s", problem)


async def _ended(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), _END_S)


def _first(rows: list[object]) -> int | None:
    return min((row for row in rows if isinstance(row, int)), default=None)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
