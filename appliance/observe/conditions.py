"""Which conditions hold, from the facts of one moment. Pure. Every text says what, why, and what to
do; the key in it is the console's.

Bounds: what an operator can still act on. Each stands beside its reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from appliance.observe.alarms import Condition

DISK_LOW = 0.10
"""Of the disk: room for days of ledger on most boxes."""
TLS_DAYS = 7.0
"""The box renews its own certificate at 30 days: at 7 something has failed for weeks."""
KEY_DAYS = 14
"""Time to tell whoever uses the key."""
EXPORT_DAYS = 7.0
"""One stick a week."""
FIRST_EXPORT_DAYS = 30.0
"""A box that never exported is reminded once it has something to lose."""
TICK_LATE_MS, TICK_OVERRUN_PCT = 2.0, 0.1
"""What the control loop keeps on a machine that is not overcommitted."""
TICKS_FAIL_PCT = 1.0
"""Of the last minute's ticks: budgets and corrections then lag behind what they are of."""
FAILING = 2
"""Restarts in five minutes that are no single accident any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What alarms are made from. None: unknown, which raises nothing."""

    engine_state: str = "ready"
    engine_failure: str = ""
    restarts: int = 0
    """Since the box started."""
    restarts_5min: int = 0
    restarts_most: int = 3
    retry_s: float = 0.0
    step_age_s: float | None = None
    step_timeout_s: float = 60.0
    ledger_problem: str = ""
    chain_broken: bool = False
    bad_row: int | None = None
    disk: str = ""
    """The folder whose disk it is."""
    disk_free: int | None = None
    disk_total: int | None = None
    disk_least: int = 0
    """With less the box serves nothing."""
    waiting: int = 0
    waiting_most: int = 256
    queue_full_min: int = 0
    top_key: str = ""
    top_share_pct: float = 0.0
    tls_days: float | None = None
    keys: tuple[tuple[str, str, int], ...] = ()
    """Id, name and days left of the keys that end."""
    export_age_days: float | None = None
    """None: never exported."""
    ledger_age_days: float | None = None
    degraded: tuple[str, ...] = ()
    """Each `part: why`."""
    too_hot: tuple[tuple[str, float, float], ...] = ()
    """Sensors at their own critical limit: name, temperature, limit."""
    overrun_pct: float | None = None
    """Ticks of the control loop that were not done in time, over the last minute."""


def conditions(facts: Facts) -> list[Condition]:
    """All that hold now."""
    return [found for rule in _RULES for found in rule(facts)]


def overloaded(waiting: int, most: int, turned_away: int) -> bool:
    """More than half of the queue is taken, or somebody was turned away for want of room lately."""
    return turned_away > 0 or waiting * 2 > most > 0


def _engine(facts: Facts) -> Iterator[Condition]:
    state, why = facts.engine_state, facts.engine_failure or "why is not known"
    if state in ("backoff", "failed") or (state == "starting" and facts.restarts):
        then = "the box gives up" if state == "failed" else f"next start in {facts.retry_s:.0f} s"
        text = f"ENGINE DOWN: it {why}; {then}. 7 shows it, R restarts"
        yield Condition("engine_down", 7, 1, text, (why, f"{facts.retry_s:.0f}"))
    if facts.restarts_5min >= FAILING:
        count, most = facts.restarts_5min, facts.restarts_most
        text = f"ENGINE FAILING: {count} restarts in 5 min (gives up at {most}): it {why}. 7 log"
        args = (str(count), str(most), why)
        yield Condition("engine_failing", 7, 2, text, args, ("engine_down",))


def _stall(facts: Facts) -> Iterator[Condition]:
    """Half of the time after which the engine is killed."""
    age = facts.step_age_s
    if facts.engine_state == "ready" and age is not None and age > facts.step_timeout_s / 2:
        text = (
            f"ENGINE STUCK: no step for {age:.0f} s, killed at {facts.step_timeout_s:.0f} s. "
            "7 R restarts now"
        )
        args = (f"{age:.0f}", f"{facts.step_timeout_s:.0f}")
        yield Condition("engine_stuck", 7, 1, text, args, ("engine_down",))


def _ledger(facts: Facts) -> Iterator[Condition]:
    if facts.chain_broken:
        where = f" at row {facts.bad_row}" if facts.bad_row is not None else ""
        text = f"CHAIN BROKEN{where}: the ledger was changed behind the box. 5 shows it, v verifies"
        row = "" if facts.bad_row is None else str(facts.bad_row)
        yield Condition("chain_broken", 5, 1, text, (row,))
    if facts.ledger_problem:
        text = f"LEDGER NOT WRITABLE, so nothing is served: {facts.ledger_problem}. 5 shows it"
        yield Condition(
            "ledger_failing", 5, 1, text, (facts.ledger_problem,), ("chain_broken", "disk_full")
        )


def _disk(facts: Facts) -> Iterator[Condition]:
    free, total = facts.disk_free, facts.disk_total
    if free is None or not total:
        return
    where = f" in {facts.disk}" if facts.disk else ""
    if free < facts.disk_least:
        left = f"{free / 1e6:.0f}"
        text = f"DISK FULL: {left} MB left{where}, the box serves nothing. Free some space"
        yield Condition("disk_full", 5, 1, text, (left, facts.disk))
    if free < DISK_LOW * total:
        share = f"{100 * free / total:.0f}"
        left = f"{free / 1e9:.1f}"
        text = f"DISK LOW: {share} % left{where}, {left} GB. Free some space"
        yield Condition("disk_low", 5, 2, text, (share, left, facts.disk), ("disk_full",))


def _load(facts: Facts) -> Iterator[Condition]:
    if not overloaded(facts.waiting, facts.waiting_most, facts.queue_full_min):
        return
    waiting, most = str(facts.waiting), str(facts.waiting_most)
    who = f", {facts.top_key} holds {facts.top_share_pct:.0f} %" if facts.top_key else ""
    away = facts.queue_full_min
    gone = f"{away} turned away in a minute, " if away else ""
    text = f"OVERLOAD: {gone}{waiting} of {most} waiting{who}. 2 shows them, T throttles"
    args = (waiting, most, facts.top_key, f"{facts.top_share_pct:.0f}", str(away))
    under = ("engine_down", "engine_stuck", "ledger_failing", "chain_broken", "disk_full")
    yield Condition("overload", 2, 2, text, args, under)


def _tls(facts: Facts) -> Iterator[Condition]:
    days = facts.tls_days
    if days is not None and days < TLS_DAYS:
        left = f"{max(days, 0):.0f}"
        text = f"TLS certificate ends in {left} days: clients will refuse the box. 9 shows it"
        yield Condition("tls_expires", 9, 2, text, (left,))


def _keys(facts: Facts) -> Iterator[Condition]:
    for id, name, days in facts.keys:
        if 0 <= days < KEY_DAYS:
            text = f"KEY {name} ends in {days} days: make another for its apps. 4 N"
            yield Condition(f"key_expires:{id}", 4, 3, text, (name, str(days)))


def _export(facts: Facts) -> Iterator[Condition]:
    age = facts.export_age_days
    if age is not None and age >= EXPORT_DAYS:
        text = f"EXPORT OVERDUE: the last one is {age:.0f} days old. steelyard audit export DIR"
        yield Condition("export_overdue", 5, 3, text, (f"{age:.0f}",))
    elif age is None and (facts.ledger_age_days or 0.0) >= FIRST_EXPORT_DAYS:
        text = "NEVER EXPORTED: the ledger is on this disk alone. steelyard audit export DIR"
        yield Condition("export_overdue", 5, 3, text, ("",))


_SCREENS = {"board": 6, "control": 3, "forecast": 3, "keys": 4, "ledger": 5, "tls": 9}


def _degraded(facts: Facts) -> Iterator[Condition]:
    for reason in facts.degraded:
        part, _, why = reason.partition(": ")
        screen, under = _SCREENS.get(part, 7), ("tls_expires",) if part == "tls" else ()
        code = "gpu_lost" if part == "gpu" else f"degraded:{part}"
        text = f"{part.upper()}: {why}. {screen} shows it"
        yield Condition(code, screen, 2, text, (part, why), under)


def _heat(facts: Facts) -> Iterator[Condition]:
    """Only where the hardware itself says what it cannot bear."""
    for name, value, limit in facts.too_hot:
        text = (
            f"TOO HOT: {name} is at {value:.0f} C, its limit {limit:.0f} C. Check fans. 6 shows it"
        )
        args = (name, f"{value:.0f}", f"{limit:.0f}")
        yield Condition(f"too_hot:{name}", 6, 1, text, args)


def _ticks(facts: Facts) -> Iterator[Condition]:
    """Another program has the cores, or the machine is too small."""
    share = facts.overrun_pct
    if share is not None and share >= TICKS_FAIL_PCT:
        text = (
            f"TICKS OVERRUN: {share:.1f} % of 10 ms ticks are late, so budgets lag. Free a core or "
            "lower engine.threads. 3 shows it"
        )
        yield Condition("ticks_overrun", 3, 2, text, (f"{share:.1f}",), ("engine_stuck",))


_RULES: tuple[Callable[[Facts], Iterator[Condition]], ...] = (
    _engine, _stall, _ledger, _disk, _load, _tls, _keys, _export, _degraded,
    _heat, _ticks,
)  # fmt: skip
