"""What a calibration tells of itself, in files of `state_dir/calibration`, so that the command
line, the daemon and the next calibration all see the same, whoever began it.

status.json  Status, replaced whole; it stays after the end
wish         `hold`, `go` or `stop`: what the operator wants of the one that runs
lock         held (flock) as long as one runs
<model>/answers.jsonl  every answer generated so far (answers.py)
"""

import fcntl
import time
from pathlib import Path
from typing import IO, Literal, get_args

import msgspec

from appliance import durable

FOLDER = "calibration"

Phase = Literal["prepare", "generate", "train", "compare", "install"]
Wish = Literal["go", "hold", "stop"]
State = Literal["none", "running", "done", "stopped", "failed"]
WISHES: tuple[Wish, ...] = get_args(Wish)
PHASES: tuple[Phase, ...] = get_args(Phase)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a calibration came to."""

    version: str = ""
    """The new forecaster's name, where one was made."""
    installed: bool = False
    wins: bool = False
    done: str = ""
    """What was done: `v0003 is in use`, `not installed`, `written to FILE`."""
    why: str = ""
    """Why."""
    skill: float | None = None
    """Share closed of the gap between the global median's mean error and the noise floor."""
    coverage_pct: float | None = None
    """Of the 90 % bound, on prompts kept apart."""
    prompts: int = 0
    answers: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """GET /admin/calibration, and `steelyard calibrate status --json`."""

    state: State = "none"
    phase: Phase = "prepare"
    done: int = 0
    total: int | None = None
    rate: float | None = None
    """Of the phase, per second."""
    eta_ms: int | None = None
    held: bool = False
    waits: str = ""
    """Why it generates nothing just now: `operator`, `others` (the box is busy), `box` (the
    daemon does not answer); empty while it works."""
    pid: int = 0
    by: str = ""
    model: str = ""
    model_sha256: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    """Wall clock, as all `*_ms` but `eta_ms`; 0: not yet."""
    problem: str = ""
    """state failed: what happened, and what to do."""
    result: Result | None = None


class BusyError(Exception):
    """Another calibration runs on this state directory."""


class StatusFiles:
    """The files of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER
        self._status = self.folder / "status.json"
        self._wish = self.folder / "wish"
        self._lock = self.folder / "lock"

    def read(self) -> Status:
        """How it stands. One that says it runs although no process holds the lock has died."""
        try:
            found = msgspec.json.decode(self._status.read_bytes(), type=Status)
        except FileNotFoundError:
            return Status()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Status(problem=f"{self._status} cannot be read: remove it")
        if found.state == "running" and not self.running:
            return msgspec.structs.replace(
                found,
                state="failed",
                held=False,
                waits="",
                eta_ms=None,
                problem="the calibration was killed before it was done. Its answers are kept: "
                "start it again, and it goes on",
            )
        return found

    def write(self, status: Status) -> None:
        """Replaces it whole. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(self._status, msgspec.json.encode(status), lasting=False)

    @property
    def running(self) -> bool:
        """Whether a calibration holds the lock now."""
        try:
            with self._lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def take(self) -> IO[bytes]:
        """The lock, held until it is closed or the process ends. Raises BusyError, OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._lock.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise BusyError(
                "a calibration runs already: `steelyard calibrate status` shows it, and "
                "`steelyard calibrate stop` ends it"
            ) from None
        return file

    def wish(self, wish: Wish) -> None:
        """What the calibration that runs shall do. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(self._wish, wish.encode(), lasting=False)

    @property
    def wished(self) -> Wish:
        """What was wished last."""
        try:
            text = self._wish.read_text()
        except (OSError, UnicodeDecodeError):
            return "go"
        return next((wish for wish in WISHES if wish == text.strip()), "go")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
