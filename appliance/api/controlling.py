"""GET /admin/control and POST /admin/requests/{id}/priority: budgets and order, seen and moved.

The frames and /metrics tell the same numbers; here they are together, with the windows they come
from.
"""

import time

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.admin import act, named_ticket
from appliance.api.bodies import read_shape
from appliance.api.box import Box, box_of
from appliance.api.control_shapes import (
    ChannelNow,
    ControlNow,
    PoolNow,
    PriorityDone,
    PriorityRequest,
    TickerNow,
)
from appliance.api.replies import json_response
from appliance.control.budgets import FALLBACKS
from appliance.control.correction import ChannelState, TickerSnapshot
from appliance.engine.reports import Stats
from appliance.errors import BadRequest
from appliance.snapshot import SteeringSnapshot


async def control(request: Request) -> Response:
    """The control loop: ticker, windows, pools, order."""
    return json_response(control_of(box_of(request)))


def control_of(box: Box) -> ControlNow:
    """As it is now."""
    steering, loop, stats = box.steering(), box.control(), box.supervisor.snapshot.stats
    config = box.config.control
    return ControlNow(
        policy=steering.policy,
        order=steering.order,
        admission=steering.admission,
        fallback=steering.fallback,
        why=FALLBACKS.get(steering.fallback, ""),
        since_s=round(max(0.0, time.monotonic() - steering.since), 1),
        tau=steering.tau,
        overflow_target=config.overflow_target,
        ageing=config.ageing,
        max_wait_s=config.max_wait_s,
        fairness=config.fairness,
        longest_wait_s=round(stats.wait_max_s, 3),
        pools=pools_of(steering, stats),
        borrowed=stats.borrowed,
        overflows=stats.overflows,
        preemptions=stats.preemptions,
        b_evictions=stats.b_evictions,
        saved=stats.saved,
        restored=stats.restored,
        ticker=ticker_of(loop.ticker),
        channels=tuple(map(channel_of, loop.channels)),
        logged=loop.logged,
        unlogged=loop.unlogged,
        degraded=loop.degraded,
    )


def pools_of(steering: SteeringSnapshot, stats: Stats) -> dict[str, PoolNow]:
    """Both, in KV cells."""
    a_cap, b_cap = steering.parted(stats.kv_total)
    return {
        "a": PoolNow(cap=a_cap, used=stats.a_used, predicted=stats.a_peak),
        "b": PoolNow(cap=b_cap, used=stats.b_used, predicted=stats.b_peak),
    }


def ticker_of(now: TickerSnapshot) -> TickerNow:
    told = now.ticks + now.skipped
    return TickerNow(
        mode=now.mode,
        period_ms=round(now.period_s * 1e3, 3),
        ticks=now.ticks,
        overruns=now.overruns,
        skipped=now.skipped,
        overrun_pct=overrun_pct(now) if told else None,
        late_p50_ms=round(now.late_p50_s * 1e3, 3) if now.ticks else None,
        late_p99_ms=round(now.late_p99_s * 1e3, 3) if now.ticks else None,
        late_max_ms=round(now.late_max_s * 1e3, 3) if now.ticks else None,
        cost_p50_ms=round(now.cost_p50_s * 1e3, 3) if now.ticks else None,
        cost_p99_ms=round(now.cost_p99_s * 1e3, 3) if now.ticks else None,
    )


def overrun_pct(now: TickerSnapshot) -> float:
    """Deadlines that were not kept: ticks not done when the next was due, and ticks left out."""
    due = now.ticks + now.skipped
    return round(100 * (now.overruns + now.skipped) / due, 4) if due else 0.0


def channel_of(state: ChannelState) -> ChannelNow:
    found = state.correction
    ratio = found.std / found.sigma if found.std is not None and found.sigma else None
    return ChannelNow(
        channel=state.channel,
        kind=state.kind,
        unit=state.unit,
        n=found.n,
        raw=found.raw,
        filtered=found.filtered,
        valid=found.valid,
        std=found.std,
        sd_ratio=round(ratio, 3) if ratio is not None else None,
        shift=found.shift,
        scale=found.scale,
        steps=found.steps,
        clipped=found.clipped,
        rejected=found.rejected,
        running=state.running,
        quality=state.quality,
        window=state.window,
        cut=state.cut,
    )


async def reprioritise(request: Request) -> Response:
    """Move a request that waits or runs to another priority or pool."""
    shape, _ = await read_shape(request, PriorityRequest)
    ticket = named_ticket(request)
    was = ticket.request
    if shape.priority is None and shape.pool is None:
        raise BadRequest("give priority, pool, or both", param="priority", code="invalid_value")
    priority = was.priority if shape.priority is None else shape.priority
    pool = was.pool if shape.pool is None else shape.pool
    box_of(request).supervisor.orders.reprioritise(ticket, priority, pool)
    detail = {"priority": priority, "pool": pool, "was": [was.priority, was.pool]}
    recorded = await act(request, "request.priority", ticket.id, detail)
    return json_response(PriorityDone("moved", ticket.id, priority, pool, recorded))
