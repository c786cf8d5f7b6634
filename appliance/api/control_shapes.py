"""What /admin/control and /admin/requests/{id}/priority take and tell."""

from typing import Annotated, Literal

import msgspec
from pydantic import Field

from appliance.api.shapes import Shape
from appliance.engine.commands import Pool


class PriorityRequest(Shape):
    """POST /admin/requests/{id}/priority. What is left out stays as it is."""

    priority: Annotated[int, Field(ge=-9, le=9)] | None = Field(
        None, description="Lower runs first: priority -1, default 0, flex 1."
    )
    pool: Literal["a", "b"] | None = Field(None, description="a: interactive; b: batch.")


class PriorityDone(msgspec.Struct, frozen=True):
    """`recorded`: the action is in the ledger."""

    status: Literal["moved"]
    id: str
    priority: int
    pool: Pool
    recorded: bool


class PoolNow(msgspec.Struct, frozen=True):
    """In KV cells."""

    cap: int
    """That it may have; what the other one does not use it may borrow."""
    used: int
    """By what runs now."""
    predicted: int
    """The most that what runs now is expected to use before it ends."""


class TickerNow(msgspec.Struct, frozen=True):
    """Times of the newest 2048 ticks; None: none yet."""

    mode: str
    """rr, nice, plain, off."""
    period_ms: float
    ticks: int
    overruns: int
    skipped: int
    overrun_pct: float | None
    late_p50_ms: float | None
    late_p99_ms: float | None
    late_max_ms: float | None
    cost_p50_ms: float | None
    cost_p99_ms: float | None


class ChannelNow(msgspec.Struct, frozen=True):
    """One window with what follows from it."""

    channel: str
    kind: str
    """tokens: natural logarithms of actual over forecast; sensor: in `unit`."""
    unit: str
    n: int
    raw: float | None
    filtered: float
    valid: bool
    std: float | None
    sd_ratio: float | None
    """`std` over that at calibration."""
    shift: float
    scale: float
    steps: int
    clipped: int
    rejected: int
    running: int
    quality: str
    window: tuple[float | None, ...]
    """The newest last, 64 at most."""
    cut: tuple[bool, ...]


class ControlNow(msgspec.Struct, frozen=True):
    """GET /admin/control."""

    policy: str
    order: str
    """In force: `fcfs` while `fallback` names a reason."""
    admission: str
    fallback: str
    """off, missing, uncalibrated, broken; empty: none."""
    why: str
    """The same in words, with what to do."""
    since_s: float
    tau: float
    overflow_target: float
    ageing: float
    max_wait_s: float
    fairness: bool
    longest_wait_s: float
    pools: dict[str, PoolNow]
    borrowed: int
    """Cells that pool B holds of A's."""
    overflows: int
    """Times that cells ran out although the predicted peak had fitted, since the box started."""
    preemptions: int
    b_evictions: int
    saved: int
    restored: int
    ticker: TickerNow
    channels: tuple[ChannelNow, ...]
    logged: int
    unlogged: int
    degraded: str
