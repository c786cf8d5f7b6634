"""Calibrating while the box serves: `steelyard calibrate` as a child of low priority, one at a
time, begun by an operator or by the clock. Its status is in files (calibrate/status.py), so one
that somebody began on the command line is seen as well."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from appliance.calibrate.status import Status, StatusFiles, Wish
from appliance.config import Config, effective
from appliance.forecast.versions import CURRENT
from appliance.frames import Job

log = logging.getLogger("appliance.admin")

NICE = 10
KIND = "calibrate"
_END_S = 10.0
_LATE_S = 3600.0
"""A box that was off at the hour still begins when it is on again within so long."""


class Calibrating:
    """Belongs to the event loop. `look` once a second."""

    def __init__(
        self,
        config: Config,
        model_sha256: str,
        reload: Callable[[], object] = lambda: None,
        command: tuple[str, ...] = (),
    ) -> None:
        """`reload` is called after another forecaster came into use; `command` stands in for the
        real one, in tests."""
        self._config = config
        self._files = StatusFiles(config.server.state_dir)
        self._command = command
        self._task: asyncio.Task[None] | None = None
        self.serves(model_sha256, reload)
        self._asked_on: str = ""
        self.now = Status()
        self.url = ""
        """Where this daemon listens; empty: as configured."""
        self.cacert = ""

    def serves(self, model_sha256: str, reload: Callable[[], object]) -> None:
        """The model that is served from now on, and what takes its forecaster anew."""
        folder = self._config.server.state_dir / "forecasters" / model_sha256[:12]
        self._pointer, self._reload = folder / CURRENT, reload
        self._in_use = _mark(self._pointer)

    @property
    def running(self) -> bool:
        return self.now.state == "running" or self._task is not None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """As `state` tells of it."""
        now = self.now
        if now.state != "running":
            return ()
        return (
            Job(
                kind=KIND,
                phase=now.phase,
                done=now.done,
                total=now.total,
                eta_ms=now.eta_ms,
                rate=now.rate,
                held=now.held,
            ),
        )

    @property
    def status(self) -> Status:
        """How it stands, asked anew."""
        self.now = self._files.read()
        return self.now

    def changed(self) -> None:
        """Another forecaster may be in use: if so, the daemon goes over to it."""
        mark = _mark(self._pointer)
        if mark != self._in_use:
            self._in_use = mark
            self._reload()

    def look(self, wall: float) -> None:
        """How it stands now; goes over to a new forecaster; begins when it is time."""
        self.now = self._files.read()
        self.changed()
        if self._is_time(wall) and not self.running:
            log.info("calibrating, because it is %s", self._config.forecast.calibrate_at)
            self.start("clock", unattended=True)

    def _is_time(self, wall: float) -> bool:
        """Once a day, at the configured local time or shortly after it."""
        at = self._config.forecast.calibrate_at
        if not at or not self._config.forecast.enabled:
            return False
        here = datetime.fromtimestamp(wall)
        hour, minute = at.split(":")
        due = here.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
        day = here.date().isoformat()
        if self._asked_on == day or not 0 <= (here - due).total_seconds() < _LATE_S:
            return False
        self._asked_on = day
        return True

    def start(self, by: str, *, unattended: bool = False) -> bool:
        """Begins one. False, and nothing happens, while one runs."""
        self.now = self._files.read()
        if self.running:
            return False
        self._task = asyncio.create_task(self._run(by, unattended), name="calibrate")
        self._task.add_done_callback(lambda _: self._over())
        return True

    def wish(self, wish: Wish) -> bool:
        """What the one that runs shall do; False while none runs. Raises OSError."""
        self.now = self._files.read()
        if not self.running:
            return False
        self._files.wish(wish)
        return True

    async def close(self) -> None:
        """Ends what this daemon began; its answers are kept."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _over(self) -> None:
        self._task = None
        self.now = self._files.read()

    async def _run(self, by: str, unattended: bool) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._order(by, unattended),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            self._fail(f"it could not be started: {error.strerror}: start it again")
            return
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
        try:
            assert child.stderr is not None
            said = await child.stderr.read()
            status = await child.wait()
        finally:
            await _ended(child)
        words = said.decode("utf-8", "replace").strip().splitlines()
        if status:
            log.error("the calibration ended with %d: %s", status, words[-1] if words else "")
            if self._files.read().state not in ("failed", "stopped"):
                self._fail(words[-1] if words else f"it ended with {status}: see the log")

    def _order(self, by: str, unattended: bool) -> tuple[str, ...]:
        """The command line. The configuration goes along as a file: what this daemon runs with
        may have come from options that a new process would not see."""
        if self._command:
            return self._command
        file = self._files.folder / "config.toml"
        self._files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(effective(self._config))
        command = [sys.executable, "-P", "-m", "appliance", "calibrate", "--config", str(file)]
        command += ["--quiet", "--by", by]
        command += ["--url", self.url] if self.url else []
        command += ["--cacert", self.cacert] if self.cacert else []
        forecast = self._config.forecast
        command += ["--prompts", forecast.calibrate_prompts] if forecast.calibrate_prompts else []
        if unattended:
            command += ["--minutes", str(forecast.calibrate_minutes)]
            command += ["--min-new", str(forecast.calibrate_min_new)]
        return tuple(command)

    def _fail(self, problem: str) -> None:
        log.error("calibration: %s", problem)
        failed = Status(state="failed", problem=problem, ended_ms=time.time_ns() // 1_000_000)
        with contextlib.suppress(OSError):
            self._files.write(failed)


def _mark(pointer: Path) -> tuple[int, int]:
    """Changes when another forecaster comes into use: the file that names it is replaced then."""
    try:
        found = pointer.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


async def _ended(child: asyncio.subprocess.Process) -> None:
    """SIGTERM lets it say that it was stopped; SIGKILL loses nothing but that."""
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), _END_S)
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
