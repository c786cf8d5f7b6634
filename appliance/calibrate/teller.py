"""Keeps the status of a calibration: in its file for others, and for whoever watches this one."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from appliance.calibrate.generate import Progress
from appliance.calibrate.pace import Pace
from appliance.calibrate.status import Phase, Result, Status, StatusFiles, Wish, wall_ms

EVERY_S = 0.5
"""Between two writings of the same phase."""
THOUSAND = 1000
"""What a phase that is told in shares counts to."""


class Stopped(Exception):
    """An operator wishes it to stop."""


@dataclass(frozen=True, slots=True)
class Ears:
    """Whom the status is told, and what the operator wishes."""

    files: StatusFiles
    watch: Callable[[Status], None]
    wished: Callable[[], Wish]
    clock: Callable[[], float] = time.monotonic


class Teller:
    """One calibration's status. A status file that cannot be written does not end it."""

    def __init__(self, ears: Ears, first: Status) -> None:
        self.now = first
        self._ears = ears
        self._pace = Pace(ears.clock())
        self._told_at = -EVERY_S
        self._tell(urgent=True)

    def about(self, model: str, sha256: str) -> None:
        """Which model it is for."""
        self.now = replace(self.now, model=model, model_sha256=sha256)

    def phase(self, phase: Phase, total: int | None = None) -> None:
        """Another phase begins. Raises Stopped."""
        self.heed()
        self._pace = Pace(self._ears.clock())
        self.now = replace(
            self.now, phase=phase, done=0, total=total, rate=None, eta_ms=None, waits="", held=False
        )
        self._tell(urgent=True)

    def generated(self, progress: Progress) -> None:
        """How far the generation is."""
        eta = progress.eta_s
        self.now = replace(
            self.now,
            done=progress.done,
            total=progress.total,
            rate=None if progress.rate is None else round(progress.rate, 3),
            eta_ms=None if eta is None else round(eta * 1000),
            held=progress.waits == "operator",
            waits=progress.waits,
        )
        self._tell()

    def share(self, share: float) -> None:
        """How far a phase is that tells it as a share of 0 to 1. Raises Stopped."""
        self.heed()
        done = round(THOUSAND * min(1.0, max(0.0, share)))
        self._pace.see(self._ears.clock(), done)
        eta = self._pace.eta_s(THOUSAND - done)
        self.now = replace(
            self.now,
            done=done,
            total=THOUSAND,
            eta_ms=None if eta is None else round(eta * 1000),
        )
        self._tell()

    def heed(self) -> None:
        """Raises Stopped when an operator wishes so; waits here while held."""
        while (wish := self._ears.wished()) == "hold":
            self.now = replace(self.now, held=True, waits="operator")
            self._tell()
            time.sleep(EVERY_S)
        if self.now.held:
            self.now = replace(self.now, held=False, waits="")
        if wish == "stop":
            raise Stopped

    def end(self, result: Result) -> None:
        """It is done."""
        self._over(replace(self.now, state="done", result=result))

    def stopped(self) -> None:
        """An operator ended it."""
        self._over(replace(self.now, state="stopped"))

    def failed(self, problem: str) -> None:
        self._over(replace(self.now, state="failed", problem=problem))

    def _over(self, status: Status) -> None:
        self.now = replace(status, ended_ms=wall_ms(), eta_ms=None, held=False, waits="")
        self._tell(urgent=True)

    def _tell(self, *, urgent: bool = False) -> None:
        now = self._ears.clock()
        if not urgent and now - self._told_at < EVERY_S:
            return
        self._told_at = now
        with contextlib.suppress(OSError):
            self._ears.files.write(self.now)
        self._ears.watch(self.now)
