"""The frame `live`: every number at a glance. Pure."""

from appliance.api.info import LOW_DISK_BYTES
from appliance.api.sources import Sources
from appliance.engine.reports import Stats
from appliance.forecast.told import ForecasterSnapshot
from appliance.frames import Alarm, Live, Pool
from appliance.observe.conditions import overloaded
from appliance.snapshot import SteeringSnapshot


def live_of(now: Sources) -> Live:
    """The frame of this moment."""
    engine, queue, speeds, slow = now.engine, now.queue, now.speeds, now.slow
    stats, ticker = engine.stats, now.control.ticker
    pool_a, pool_b = pools_of(now.steering, stats)
    counted = [alarm for alarm in now.alarms if not alarm.snooze_ms]
    return Live(
        seq=now.seq,
        boot_id=now.boot_id,
        host=now.host,
        version=now.version,
        state=state_of(now),
        degraded=",".join(parts_of(slow.degraded)),
        ready=slow.ready and engine.state == "ready" and now.ledger.ok and not now.draining,
        at_ms=now.wall_ms,
        out_tok_s=_rounded(speeds.out_tok_s),
        prefill_tok_s=_rounded(speeds.prefill_tok_s),
        ttft_p50_ms=speeds.ttft[0],
        ttft_p99_ms=speeds.ttft[1],
        itl_p50_ms=speeds.between[0],
        itl_p99_ms=speeds.between[1],
        e2e_p50_ms=speeds.latency[0],
        e2e_p99_ms=speeds.latency[1],
        running=queue.running,
        waiting=queue.waiting,
        oldest_wait_ms=round(queue.oldest_wait_s * 1000, 1),
        last_eta_ms=_last_eta_ms(now),
        kv_a_pct=_share(pool_a),
        kv_b_pct=_share(pool_b),
        tick_late_p99_ms=round(ticker.late_p99_s * 1e3, 3) if ticker.ticks else None,
        tick_overrun_pct=speeds.overrun_pct,
        prefix_hit_pct=_rounded(speeds.prefix_hit_pct),
        refused_min=speeds.refused_min,
        failed_min=speeds.failed_min,
        engine_state=engine.state,
        step_ms=round(stats.last_step_ms, 2) if stats.steps else None,
        step_age_ms=step_age_ms(now),
        restarts_5min=speeds.restarts_5min,
        board_state=now.board.state,
        dog_left_ms=_rounded(now.board.left_ms(now.now)),
        power_w=_rounded(now.measured.power_w),
        temp_c=_rounded(now.measured.temp_c),
        j_per_tok=now.measured.j_per_tok,
        forecaster=named(now.forecaster),
        forecast_state=forecast_state(now.forecaster),
        coverage_pct=_percent(now.forecaster.coverage),
        queue_order=now.steering.order,
        queue_fallback=now.steering.fallback,
        ledger_state=ledger_state(now),
        ledger_rows=now.ledger.rows if now.ledger.recording else None,
        chain_ok=now.chain_ok if now.ledger.recording else None,
        disk_free_gb=round(slow.disk_free / 1e9, 2) if slow.disk_free is not None else None,
        tls_days=_rounded(slow.tls_days),
        tok_today=now.kept.tok_today,
        cost_today=now.kept.cost_today,
        currency=now.currency,
        alarms_1=sum(alarm.prio == 1 for alarm in counted),
        alarms_2=sum(alarm.prio == 2 for alarm in counted),
        alarms_3=sum(alarm.prio == 3 for alarm in counted),
        alarm_top=counted[0].code if counted else "",
        pool_a=pool_a,
        pool_b=pool_b,
        evictions=stats.evictions,
        worst=worst_of(now.alarms),
    )


def pools_of(steering: SteeringSnapshot, stats: Stats) -> tuple[Pool, Pool]:
    """A and B; unknown before the engine has told how many cells there are."""
    if not stats.kv_total:
        return Pool(), Pool()
    a_cap, b_cap = steering.parted(stats.kv_total)
    a = Pool(
        cap_tok=a_cap,
        used_tok=stats.a_used,
        reserved_tok=max(0, stats.a_peak - stats.a_used),
        borrowed_tok=max(0, stats.a_used - a_cap),
        peak_tok=stats.tokens_max or None,
    )
    b = Pool(
        cap_tok=b_cap,
        used_tok=stats.b_used,
        reserved_tok=max(0, stats.b_peak - stats.b_used),
        borrowed_tok=stats.borrowed,
        peak_tok=None,
    )
    return a, b


def _share(pool: Pool) -> float | None:
    """In use, of the cells it has, borrowed ones included; None for a pool without any."""
    if pool.cap_tok is None or pool.used_tok is None:
        return None
    has = pool.cap_tok + (pool.borrowed_tok or 0)
    return round(100 * pool.used_tok / has, 1) if has else None


def state_of(now: Sources) -> str:
    """The box in one word: what keeps it from serving first, then what an operator did."""
    by_engine = {"starting": "STARTING", "stopping": "STOPPING", "ready": ""}
    if word := by_engine.get(now.engine.state, "DOWN"):
        return word
    free = now.slow.disk_free
    if not now.ledger.ok or (free is not None and free < LOW_DISK_BYTES):
        return "DOWN"
    if now.draining:
        return "DRAINING"
    if now.engine.paused:
        return "HOLDING"
    if overloaded(now.queue.waiting, now.queue_most, now.speeds.queue_full_min):
        return "OVERLOAD"
    return "DEGRADED" if now.slow.degraded else "SERVING"


def worst_of(alarms: tuple[Alarm, ...]) -> Alarm | None:
    """The first that nobody has seen or snoozed; `alarms` are worst first."""
    return next((alarm for alarm in alarms if not alarm.seen and not alarm.snooze_ms), None)


def parts_of(degraded: tuple[str, ...]) -> list[str]:
    """The names of what does not run as it should."""
    return list(dict.fromkeys(reason.partition(":")[0] for reason in degraded))


def ledger_state(now: Sources) -> str:
    if not now.ledger.recording:
        return "off"
    return "ok" if now.ledger.ok else "failing"


def named(forecaster: ForecasterSnapshot) -> str:
    """`v3 CPU INT8`: the version, and what runs it."""
    provider = forecaster.provider.removesuffix("ExecutionProvider")
    return " ".join(filter(None, (forecaster.version, provider, forecaster.precision.upper())))


def forecast_state(forecaster: ForecasterSnapshot) -> str:
    """`none` while forecasts are off."""
    return "none" if forecaster.state == "off" else forecaster.state


def step_age_ms(now: Sources) -> float | None:
    """Since the engine last proved that its loop turns."""
    if not now.engine.last_progress:
        return None
    return round(max(0.0, now.now - now.engine.last_progress) * 1000, 1)


def _last_eta_ms(now: Sources) -> float | None:
    """As many must end as wait, at the speed at which they ended in the last minute."""
    if not now.queue.waiting:
        return 0.0
    rate = now.speeds.ended_s
    return round(now.queue.waiting / rate * 1000) if rate else None


def _percent(share: float | None) -> float | None:
    return round(100 * share, 1) if share is not None else None


def _rounded(value: float | None) -> float | None:
    return round(value, 1) if value is not None else None
