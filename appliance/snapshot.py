"""Frozen pictures of the box for everything outside: HTTP, metrics, console, board.

Each is replaced whole by its one owner; readers take the reference once and never lock.
"""

from typing import Literal

import msgspec

from appliance.engine.commands import Admission, Policy
from appliance.engine.reports import Ready, SlotState, Stats

EngineState = Literal["starting", "ready", "backoff", "stopping", "failed"]


class EngineSnapshot(msgspec.Struct, frozen=True):
    """What the supervisor knows of the engine child. Times are monotonic seconds."""

    state: EngineState = "starting"
    pid: int = 0
    ready: Ready | None = None
    stats: Stats = Stats()
    """Counters since the daemon started: a restart of the child never turns them back."""
    slots: tuple[SlotState, ...] = ()
    order: tuple[str, ...] = ()
    """Ids of the waiting requests, in the order in which they were last going to start."""
    last_progress: float = 0.0
    """When the engine last proved that its loop turns."""
    restarts: int = 0
    last_failure: str = ""
    rss_bytes: int = 0
    paused: bool = False
    slowed: bool = False
    """It was told to compute less, because the machine is hot."""
    retry_at: float = 0.0
    """When the next start is due, in state `backoff`."""


SwitchPhase = Literal["none", "checking", "testing", "draining", "loading", "returning"]
SwitchResult = Literal["switched", "kept", "returned", "failed", "stopped"]


class SwitchEnd(msgspec.Struct, frozen=True):
    """How a switch to another model ended."""

    result: SwitchResult
    """kept: the former model served on throughout; returned: it was loaded again; failed: neither
    loads, so the box gives up; stopped: the box stops."""
    source: str
    target: str
    why: str = ""
    """Why it is not the new model that serves, and what to do."""
    note: str = ""
    """What was done otherwise than usual."""
    away_s: float = 0.0
    """So long nothing new was admitted."""
    ended_ms: int = 0
    """Wall time."""


class ModelSwitch(msgspec.Struct, frozen=True):
    """The switch to another model that runs now, and the one before."""

    phase: SwitchPhase = "none"
    source: str = ""
    target: str = ""
    note: str = ""
    done: int = 0
    total: int = 0
    """Bytes of the new model that were read again, while it is checked."""
    began_ms: int = 0
    """Wall time."""
    last: SwitchEnd | None = None

    @property
    def away(self) -> bool:
        """Nothing new is admitted for it."""
        return self.phase in ("draining", "loading", "returning")


class SteeringSnapshot(msgspec.Struct, frozen=True):
    """How the queue is ordered and the KV cells are parted, as the engine was last told."""

    policy: Policy = "fcfs"
    """As configured."""
    admission: Admission = "peak"
    order: Policy = "fcfs"
    """In force: fcfs while there is a reason to fall back."""
    fallback: str = ""
    """Why: off, missing, uncalibrated, broken; empty: there is no reason."""
    since: float = 0.0
    """When that last changed, monotonic seconds."""
    tau: float = 0.0
    """The quantile of what is still to come that predicted peaks count with."""
    b_cells: int = 0
    """KV cells of pool B; all others are pool A's."""
    steers: int = 0
    """Times that the engine was told something new."""

    def parted(self, total: int) -> tuple[int, int]:
        """The cells of A and of B, of so many; 0 before the engine has told."""
        b_cells = min(self.b_cells, total)
        return total - b_cells, b_cells


class QueueSnapshot(msgspec.Struct, frozen=True):
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    """Prompt tokens of the waiting requests."""
    oldest_wait_s: float = 0.0


_COUNTERS = (
    "steps",
    "prompt_tokens",
    "cached_tokens",
    "prompt_seconds",
    "predicted_tokens",
    "predicted_seconds",
    "drafted_tokens",
    "accepted_tokens",
    "busy_sequences",
    "preemptions",
    "evictions",
    "compute_seconds",
    "loop_seconds",
    "overflows",
    "b_evictions",
    "saved",
    "restored",
)


def accumulate(past: Stats, now: Stats) -> Stats:
    """`now` with the counters of earlier children added; states are those of now."""
    added = {name: getattr(past, name) + getattr(now, name) for name in _COUNTERS}
    return msgspec.structs.replace(now, tokens_max=max(past.tokens_max, now.tokens_max), **added)


class Unreported(msgspec.Struct, frozen=True):
    """What an engine that died had computed after it last told its counters."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    predicted_tokens: int = 0


def with_unreported(stats: Stats, more: Unreported) -> Stats:
    """The counters of an engine that is gone, complete."""
    return msgspec.structs.replace(
        stats,
        prompt_tokens=stats.prompt_tokens + more.prompt_tokens,
        cached_tokens=stats.cached_tokens + more.cached_tokens,
        predicted_tokens=stats.predicted_tokens + more.predicted_tokens,
    )
