"""Frames for consoles: what they say of a box, and who gets which."""

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.accounts.limits import Limits
from appliance.accounts.tally import Holder
from appliance.api.box import Box
from appliance.api.info import LOW_DISK_BYTES
from appliance.api.sources import Slow
from appliance.api.watch import PAST, PAST_S, Watch
from appliance.engine.commands import Submit
from appliance.engine.reports import SlotState, Stats
from appliance.frames import Live, Rows, State
from appliance.ledger.writer import LedgerSnapshot
from appliance.snapshot import QueueSnapshot
from tests.unit.api_box import READY, ScriptedTicket, ledger_of, make_box
from tests.unit.feed_parts import NOW, engine_of, set_engine

WALL = 1_800_000_000.0


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = make_box(tmp_path)
    set_engine(made, last_progress=NOW - 0.04)
    return made


def live_of(box: Box, watch: Watch | None = None) -> Live:
    watch = watch or Watch(box)
    watch.look(NOW, WALL)
    return watch.live(NOW, WALL)


def add(box: Box, name: str, *, started: float | None = None, **fields: Any) -> ScriptedTicket:
    submit = Submit(name, (1,) * 10, 20, **{"scope": "k_1", "stream": True, **fields})
    ticket = ScriptedTicket(submit, [], 0, None)
    ticket.submitted_at, ticket.started_at = NOW - 10 + len(box.supervisor.tickets), started
    engine_of(box).tickets[name] = ticket
    return ticket


# -- live ----------------------------------------------------------------------------------------


def test_a_quiet_box_serves_and_invents_nothing(box: Box) -> None:
    live = live_of(box)
    assert (live.state, live.degraded, live.running, live.waiting) == ("SERVING", "", 0, 0)
    unknown = ("ttft_p99_ms", "out_tok_s", "kv_a_pct", "power_w", "step_ms", "prefix_hit_pct")
    assert {getattr(live, name) for name in unknown} <= {None, 0.0}
    assert (live.board_state, live.forecast_state, live.kv_b_pct) == ("none", "none", None)
    assert live.step_age_ms == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ("STARTING", {"state": "starting"}),
        ("DOWN", {"state": "backoff"}),
        ("DOWN", {"state": "failed"}),
        ("STOPPING", {"state": "stopping"}),
        ("HOLDING", {"paused": True}),
        ("DEGRADED", {"ready": replace(READY, degraded=("gpu: no device",))}),
    ],
)
def test_the_state_follows_the_engine(box: Box, state: str, fields: dict[str, Any]) -> None:
    set_engine(box, **fields)
    assert live_of(box).state == state


def test_a_draining_box_says_so_before_all_else(box: Box) -> None:
    box.admission.drain(True)
    set_engine(box, paused=True)
    assert (live_of(box).state, live_of(box).ready) == ("DRAINING", False)


def test_half_a_queue_or_one_turned_away_is_overload(box: Box) -> None:
    half = box.config.limits.queue_requests // 2
    engine_of(box).queue = QueueSnapshot(waiting=half)
    assert live_of(box).state == "SERVING"
    engine_of(box).queue = QueueSnapshot(waiting=half + 1)
    assert live_of(box).state == "OVERLOAD"
    engine_of(box).queue = QueueSnapshot()
    box.metrics.pulse.refuse("queue_full", NOW - 1)
    assert (live_of(box).state, live_of(box).refused_min) == ("OVERLOAD", 1)


def test_a_refusal_for_a_keys_own_limit_is_no_overload(box: Box) -> None:
    box.metrics.pulse.refuse("rate_limit_exceeded", NOW - 1)
    assert (live_of(box).state, live_of(box).refused_min) == ("SERVING", 1)


def test_what_is_degraded_is_named(box: Box) -> None:
    set_engine(box, ready=replace(READY, degraded=("gpu: no device", "gpu: nor another")))
    ledger_of(box).snapshot = LedgerSnapshot(recording=False)
    assert live_of(box).degraded == "gpu,ledger"
    assert (live_of(box).ledger_state, live_of(box).chain_ok) == ("off", None)


def test_speeds_come_from_the_engines_counters(box: Box) -> None:
    watch = Watch(box)
    for tenth in range(31):
        stats = Stats(
            predicted_tokens=20 * tenth, prompt_tokens=5 * tenth, cached_tokens=15 * tenth
        )
        set_engine(box, stats=stats)
        live = watch.live(NOW + tenth / 10, WALL)
    assert live.out_tok_s == pytest.approx(200.0)
    assert live.prefill_tok_s == pytest.approx(50.0)
    assert live.prefix_hit_pct == pytest.approx(75.0)


def test_latencies_come_from_the_windows(box: Box) -> None:
    box.metrics.first_token(180.0, NOW)
    box.metrics.between(0.03, NOW)
    live = live_of(box)
    assert live.ttft_p50_ms == pytest.approx(180.0, rel=0.03)
    assert live.itl_p99_ms == pytest.approx(30.0, rel=0.03)
    assert live.e2e_p50_ms is None


def test_cells_that_are_given_up_on_demand_are_free(box: Box) -> None:
    set_engine(box, stats=Stats(kv_used=1500, kv_cached=500, a_used=1000, kv_total=2000, steps=1))
    live = live_of(box)
    assert (live.kv_a_pct, live.pool_a.used_tok, live.pool_a.cap_tok) == (50.0, 1000, 2000)


def test_the_last_of_the_queue_starts_when_as_many_have_ended(box: Box) -> None:
    engine_of(box).queue = QueueSnapshot(running=2, waiting=6)
    assert live_of(box).last_eta_ms is None, "nothing has ended yet: there is no speed"
    for _ in range(30):
        box.metrics.pulse.close("stop", 5, NOW)
    box = make_old(box)
    assert live_of(box).last_eta_ms == pytest.approx(12_000, rel=0.05)


def make_old(box: Box) -> Box:
    """The same box, up for ten minutes."""
    object.__setattr__(box, "started_at", time.time() - 600)
    return box


def test_the_run_of_the_box_has_a_name(box: Box) -> None:
    assert live_of(box).boot_id == Watch(box).boot_id
    assert live_of(box).boot_id != live_of(make_old(box)).boot_id


def test_alarms_are_counted_and_the_worst_that_nobody_saw_is_told(box: Box) -> None:
    watch = Watch(box)
    set_engine(box, state="backoff", last_failure="crashed")
    for second in range(4):
        watch.look(NOW + second, WALL + second)
    live = watch.live(NOW + 4, WALL + 4)
    assert (live.alarms_1, live.alarm_top) == (1, "engine_down")
    assert live.worst is not None
    watch.alarms.see(live.worst.id)
    watch.changed()
    seen = watch.live(NOW + 4, WALL + 4)
    assert (seen.worst, seen.alarms_1, seen.alarm_top) == (None, 1, "engine_down")
    watch.alarms.snooze("engine_down", int(WALL * 1000) + 60_000)
    watch.changed()
    assert watch.live(NOW + 4, WALL + 4).alarms_1 == 0


def test_the_past_has_one_value_a_second_for_fifteen_minutes(box: Box) -> None:
    watch = Watch(box)
    for second in range(PAST_S + 5):
        set_engine(
            box, stats=Stats(predicted_tokens=10 * second, steps=second, last_step_ms=second)
        )
        watch.look(NOW + second, WALL + second)
    past = watch.past()
    assert set(past.values) == set(PAST)
    assert {len(values) for values in past.values.values()} == {PAST_S}
    assert past.last_ms == int((WALL + PAST_S + 4) * 1000)
    assert past.values["out_tok_s"][-1] == pytest.approx(10.0)
    assert past.values["step_ms"][-1] == PAST_S + 4


# -- rows ----------------------------------------------------------------------------------------


def rows_of(box: Box) -> Rows:
    watch = Watch(box)
    watch.look(NOW, WALL)
    return watch.rows(NOW, WALL)


def test_running_requests_come_first_then_the_queue_in_its_order(box: Box) -> None:
    add(box, "late", priority=1)
    add(box, "soon")
    add(box, "runs", started=NOW - 2)
    add(box, "first", priority=-1)
    rows = rows_of(box)
    assert [(row.id, row.state, row.pos) for row in rows.requests] == [
        ("runs", "prefill", 0), ("first", "waiting", 0), ("soon", "waiting", 1),
        ("late", "waiting", 2),
    ]  # fmt: skip
    assert rows.total == 4


def test_a_row_tells_what_the_engine_did_for_it(box: Box) -> None:
    ticket = add(box, "r", started=NOW - 2, n=2)
    ticket.first_at, ticket.generated = NOW - 1.5, 3
    slots = tuple(SlotState(i, "r", i, "decode", 10, 10, 8, 4, 20) for i in range(2))
    set_engine(box, slots=slots)
    (row,) = rows_of(box).requests
    assert (row.state, row.cached_tok, row.gen_tok, row.limit_tok) == ("decode", 8, 8, 40)
    assert (row.wait_ms, row.prefill_ms, row.run_ms) == (8000, 500, 2000)
    assert row.flags == ("stream", "choices")
    assert (row.eta_ms, row.cost, row.p50_tok, row.fc) == (None, None, None, "")


def test_no_more_than_two_hundred_rows_are_told(box: Box) -> None:
    for number in range(250):
        add(box, f"r{number}", started=NOW if number < 3 else None)
    rows = rows_of(box)
    assert (rows.total, len(rows.requests)) == (250, 200)
    assert [row.pos for row in rows.requests][3:6] == [0, 1, 2]


def test_keys_are_told_by_what_they_used_in_the_last_minute(box: Box) -> None:
    box.keys.create("wiki", ["infer"], tenant="docs", limits=Limits(tokens_per_min=5000))
    (wiki,) = box.keys.list()
    for id, name, tokens in ((wiki.id, "wiki", 300), ("", "", 100)):
        visit = box.quotas.visit(Holder(id, name, wiki.tenant))
        box.quotas.admit(visit, tokens, None, NOW, WALL)
    add(box, "r", scope=wiki.id, started=NOW)
    first, second = rows_of(box).keys
    assert (first.key, first.tenant, first.run, first.tok_min) == ("wiki", "docs", 1, 300)
    assert (first.limit_min, first.share_pct, second.key) == (5000, 75.0, "-")


# -- state ---------------------------------------------------------------------------------------


def state_of(box: Box) -> State:
    watch = Watch(box)
    watch.look(NOW, WALL)
    return watch.state(NOW, WALL)


def test_the_setup_list_says_what_is_left_to_do(box: Box) -> None:
    steps = {step.step: step.state for step in state_of(box).setup}
    assert list(steps) == [
        "engine", "model", "admin_key", "app_key", "ledger", "network", "tls", "board",
        "forecaster",
    ]  # fmt: skip
    assert (steps["app_key"], steps["network"], steps["tls"]) == ("todo", "todo", "wait")
    box.keys.create("app", ["infer"])
    box.keys.create("root", ["admin"])
    steps = {step.step: step.state for step in state_of(box).setup}
    assert (steps["app_key"], steps["admin_key"]) == ("ok", "ok")


def shelved(free: int, total: int) -> Slow:
    return Slow(ready=free >= LOW_DISK_BYTES, disk_free=free, disk_total=total)


@pytest.mark.parametrize(
    ("free", "total", "state", "word", "detail"),
    [
        (41_000_000_000, 200_000_000_000, "ok", "SERVING", "41 GB free"),
        (5_100_000_000, 41_000_000_000, "ok", "SERVING", "5.1 GB free"),
        (9_000_000_000, 200_000_000_000, "todo", "SERVING", "9 GB of 200 GB are free: make room"),
        (56_000_000, 60_000_000, "todo", "DOWN", "56 MB of 60 MB are free: make room"),
    ],
)
def test_a_disk_that_fills_is_left_to_do_and_a_full_one_serves_nothing(
    box: Box, free: int, total: int, state: str, word: str, detail: str
) -> None:
    watch = Watch(box)
    watch.look(NOW, WALL)
    watch._slow = shelved(free, total)
    step = next(step for step in watch.state(NOW, WALL).setup if step.step == "ledger")
    assert step.state == state
    assert step.detail.endswith(detail)
    assert watch.live(NOW, WALL).state == word


def test_a_ledger_that_cannot_be_written_is_down(box: Box) -> None:
    ledger_of(box).snapshot = LedgerSnapshot(ok=False, problem="the disk is full")
    assert live_of(box).state == "DOWN"
    box.admission.drain(True)
    assert live_of(box).state == "DOWN"


def test_settings_are_told_and_secrets_are_not(box: Box) -> None:
    told = state_of(box).settings
    assert told["engine.threads"] == "0"
    assert told["server.host"] == '"127.0.0.1"'
    assert not {"tls.key", "ledger.redact"} & set(told)


def test_every_band_is_of_a_number_of_live(box: Box) -> None:
    names = {name.rpartition("_")[0] for name in Live.__struct_fields__}
    names |= {name.removesuffix("_tok_s") for name in Live.__struct_fields__}
    assert set(state_of(box).bands) <= names | {"waiting", "export"}


def test_the_chain_compares_three_counts_of_the_same_tokens(box: Box) -> None:
    set_engine(box, stats=Stats(predicted_tokens=40))
    box.metrics.pulse.close("stop", 40, NOW)
    box.metrics.pulse.tokens_sent = 39
    chain = state_of(box).chain
    assert (chain.tok_ledger, chain.tok_engine, chain.tok_sent) == (40, 40, 39)
