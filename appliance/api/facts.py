"""From what is known of the box to the facts that alarms are made from. Pure."""

from collections import Counter
from collections.abc import Iterable
from datetime import date

from appliance.accounts.quotas import DAY_S
from appliance.api.info import LOW_DISK_BYTES
from appliance.api.ports import Ticket
from appliance.api.sources import Sources
from appliance.config import Config
from appliance.observe.conditions import Facts


def facts_of(
    now: Sources, config: Config, today: date, waiting: Counter[str], bad_row: int | None
) -> Facts:
    """`waiting`: requests in the queue by key id."""
    engine, slow = now.engine, now.slow
    names = {key.id: key.name for key in slow.keys}
    top, count = next(iter(waiting.most_common(1)), ("", 0))
    return Facts(
        engine_state=engine.state,
        engine_failure=engine.last_failure,
        restarts=0 if now.switching else engine.restarts,
        restarts_5min=now.speeds.restarts_5min,
        restarts_most=config.engine.restarts,
        retry_s=max(0.0, engine.retry_at - now.now),
        step_age_s=now.now - engine.last_progress if engine.last_progress else None,
        step_timeout_s=config.engine.step_timeout_s,
        ledger_problem="" if now.ledger.ok else now.ledger.problem,
        chain_broken=not now.chain_ok,
        bad_row=bad_row,
        disk=str(config.server.state_dir),
        disk_free=slow.disk_free,
        disk_total=slow.disk_total,
        disk_least=LOW_DISK_BYTES,
        waiting=now.queue.waiting,
        waiting_most=now.queue_most,
        queue_full_min=now.speeds.queue_full_min,
        top_key=names.get(top, top),
        top_share_pct=100 * count / max(1, waiting.total()),
        tls_days=slow.tls_days,
        keys=tuple(
            (key.id, key.name, (key.expires - today).days)
            for key in slow.keys
            if key.expires is not None and key.live(today)
        ),
        export_age_days=_days(now.kept.export_ms, now.wall_ms),
        ledger_age_days=_days(now.kept.first_ms, now.wall_ms),
        degraded=slow.degraded,
        too_hot=now.measured.too_hot,
        overrun_pct=now.speeds.overrun_pct,
    )


def waiting_by_key(tickets: Iterable[Ticket]) -> Counter[str]:
    """Requests in the queue by key id."""
    return Counter(ticket.request.scope for ticket in tickets if ticket.started_at is None)


def _days(at_ms: int | None, wall_ms: int) -> float | None:
    return (wall_ms - at_ms) / 1000 / DAY_S if at_ms is not None else None
