"""When the engine child must be given up: it hangs, it was stopped, or it grows without end.

The child answers pings only between two steps, so silence means a step that does not end. Silence
counts only while the daemon itself was there to listen.
"""

from dataclasses import dataclass

from appliance.engine.reports import Ready
from appliance.vitals import Vitals

STOPPED_S = 1.0
"""A child stopped by a signal for this long is given up: nothing in the box stops it on purpose."""
AWAY_S = 2.0
"""Not having looked for this long means that the daemon was stopped (a frozen container, a
debugger): what the child sent meanwhile may be unread still."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a child is given up. `message` continues "the engine ..."."""

    code: str
    message: str


def lacks_gpu(ready: Ready) -> Cause | None:
    """Why an engine that must have a GPU may not serve, if so."""
    missing = ready.layers_asked - ready.layers_offloaded
    if missing <= 0 and ready.layers_offloaded > 0:
        return None
    return Cause(
        "gpu_required",
        "has no GPU for all layers that it was asked to put there, and engine.require_gpu is set: "
        "install the CUDA build (make run BACKEND=cuda), check the driver, or unset it",
    )


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a child may do before it is given up."""

    step_timeout_s: float
    memory_growth_bytes: int
    """0: any growth."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When the child is given up, and when the box is: after `deaths` within `window_s`."""

    running: Tolerance
    start_timeout_s: float
    deaths: int
    window_s: float
    require_gpu: bool = False


class Watchdog:
    """Judges one child from the moment when it was ready. Pure: time and vitals are given."""

    def __init__(self, tolerance: Tolerance, now: float, memory_at_ready: int) -> None:
        self._tolerance = tolerance
        self._memory_at_ready = memory_at_ready
        self._heard = now
        self._looked = now
        self._stopped_since: float | None = None

    def heard(self, now: float) -> None:
        """The child said something: its loop turns."""
        self._heard = now

    def examine(self, now: float, vitals: Vitals | None) -> Cause | None:
        """What is wrong with the child, if anything is. To be called every fraction of a second;
        without `vitals` only silence is judged."""
        if now - self._looked > AWAY_S:
            self._heard, self._stopped_since = now, None
        self._looked = now
        return self._silence(now) or (self._stop(now, vitals) or self._growth(vitals))

    def _silence(self, now: float) -> Cause | None:
        silent = now - self._heard
        if silent <= self._tolerance.step_timeout_s:
            return None
        return Cause("engine_hung", f"made no progress for {silent:.1f} s")

    def _stop(self, now: float, vitals: Vitals | None) -> Cause | None:
        if vitals is None or not vitals.stopped:
            self._stopped_since = None
            return None
        if self._stopped_since is None:
            self._stopped_since = now
        if now - self._stopped_since < STOPPED_S:
            return None
        return Cause("engine_hung", "was stopped by a signal (SIGSTOP)")

    def _growth(self, vitals: Vitals | None) -> Cause | None:
        limit = self._tolerance.memory_growth_bytes
        grown = vitals.anonymous_bytes - self._memory_at_ready if vitals is not None else 0
        if not limit or grown <= limit:
            return None
        return Cause(
            "engine_memory",
            f"grew by {grown >> 20} MiB since it was ready (engine.memory_growth_mb = "
            f"{limit >> 20})",
        )
