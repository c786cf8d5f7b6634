"""Budgets and order over HTTP: pools by tier, what is expected, who may move a request."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from appliance.api.box import Aboard, Box
from appliance.api.prospects import Newcomer, position
from appliance.config import EngineConfig
from appliance.control.correction import (
    ChannelState,
    ControlSnapshot,
    Correction,
    TickerSnapshot,
)
from appliance.engine.reports import Stats
from appliance.ledger.rows import Action
from appliance.observe.metrics import Metrics
from appliance.outlook import Outlook
from appliance.snapshot import EngineSnapshot, QueueSnapshot, SteeringSnapshot
from tests.unit.api_box import chat, client_of, ledger_of, make_box
from tests.unit.engine_parts import make_submit
from tests.unit.forecast_parts import forecasting, long_answer, told

STATS = Stats(
    kv_total=8192, a_used=3000, a_peak=4500, b_used=2500, b_peak=2600, borrowed=452,
    overflows=2, preemptions=5, b_evictions=4, saved=3, restored=1, wait_max_s=1.5,
)  # fmt: skip
STEERING = SteeringSnapshot("expected-cost", "peak", "expected-cost", tau=0.62, b_cells=2048)
WINDOW = ChannelState(
    "tokens",
    "tiny/chat",
    "log",
    Correction("tiny/chat", raw=0.08, filtered=0.06, valid=True, n=64, std=0.35, sigma=0.5),
    (0.1, -0.2, None),
)
LOOP = ControlSnapshot(
    channels=(WINDOW,),
    ticker=TickerSnapshot(
        mode="nice", ticks=9990, overruns=4, skipped=10, late_p50_s=0.0001, late_p99_s=0.0004
    ),
)


def controlled(tmp_path: Path, steering: SteeringSnapshot = STEERING, **changes: Any) -> Box:
    box = make_box(tmp_path, **changes)
    supervisor: Any = box.supervisor
    supervisor.snapshot = changed(supervisor.snapshot, stats=STATS)
    return replace(box, steering=lambda: steering, control=lambda: LOOP)


def admin(box: Box) -> dict[str, str]:
    return {"X-Api-Key": box.keys.create("alice", ["admin"]), "X-Operator": "bob"}


# -- tiers, and what is expected -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "pool"),
    [(None, "a"), ("auto", "a"), ("default", "a"), ("priority", "a"), ("flex", "b")],
)
async def test_flex_requests_go_to_pool_b(tmp_path: Path, tier: str | None, pool: str) -> None:
    box: Any = make_box(tmp_path)
    await client_of(box).post("/v1/chat/completions", json=chat(service_tier=tier))
    assert box.supervisor.last.request.pool == pool


@pytest.mark.parametrize("tier", ["batch", "", 1, "FLEX"])
async def test_unknown_tier_is_refused_with_what_there_is(tmp_path: Path, tier: object) -> None:
    box: Any = make_box(tmp_path)
    answer = await client_of(box).post("/v1/chat/completions", json=chat(service_tier=tier))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "service_tier"
    assert "'flex'" in answer.json()["error"]["message"]
    assert not box.supervisor.tickets


async def test_engine_learns_how_long_an_answer_may_become(tmp_path: Path) -> None:
    async with forecasting(tmp_path, script=long_answer) as box:
        supervisor: Any = box.supervisor
        await client_of(box).post("/v1/chat/completions", json=chat(stream=True))
        (expect,) = supervisor.orders.expected
        assert expect.id == supervisor.last.id
        assert len(expect.tokens) == len(expect.survival) > 8


async def test_answer_that_runs_to_its_limit_has_no_forecast_to_tell(tmp_path: Path) -> None:
    async with forecasting(tmp_path, script=long_answer) as box:
        supervisor: Any = box.supervisor
        body = chat(ignore_eos=True, max_tokens=16)
        await client_of(box).post("/v1/chat/completions", json=body)
        assert supervisor.orders.expected == []


# -- the queue, as it is told ----------------------------------------------------------------------


def waiting(box: Box, id: str, mean: int, **fields: Any) -> None:
    supervisor: Any = box.supervisor
    supervisor.script = lambda request: ()
    supervisor.submit(make_submit(id, **fields))
    box.aboard[id] = Aboard("", "", "", "default", Outlook(told(mean=mean)))
    supervisor.queue = QueueSnapshot(running=1, waiting=len(supervisor.tickets))


@pytest.mark.parametrize(
    ("newcomer", "by_cost", "by_arrival"),
    [
        (Newcomer(0, "a", 50), 2, 3),
        (Newcomer(0, "a", 200), 3, 3),
        (Newcomer(-1, "a", 900), 1, 1),
        (Newcomer(1, "b", 10), 3, 4),
        (Newcomer(0, "b", 900), 3, 3),
    ],
)
def test_place_of_a_newcomer_follows_pool_then_priority_then_cost(
    tmp_path: Path, newcomer: Newcomer, by_cost: int, by_arrival: int
) -> None:
    for order, place in (("expected-cost", by_cost), ("fcfs", by_arrival)):
        steering = changed(STEERING, order=order)
        box = controlled(tmp_path, steering, engine=EngineConfig(max_sequences=1))
        waiting(box, "first", 20, priority=-1)
        waiting(box, "short", 30)
        waiting(box, "long", 100)
        waiting(box, "batch", 100, pool="b", priority=1)
        assert position(box, newcomer) == place, order


# -- GET /admin/control ----------------------------------------------------------------------------


async def test_control_tells_pools_order_windows_and_ticks(tmp_path: Path) -> None:
    box = controlled(tmp_path)
    found = (await client_of(box).get("/admin/control", headers=admin(box))).json()
    assert found["pools"] == {
        "a": {"cap": 6144, "used": 3000, "predicted": 4500},
        "b": {"cap": 2048, "used": 2500, "predicted": 2600},
    }
    numbers = ("borrowed", "overflows", "preemptions", "b_evictions", "saved", "restored")
    assert [found[name] for name in numbers] == [452, 2, 5, 4, 3, 1]
    assert (found["order"], found["fallback"], found["tau"]) == ("expected-cost", "", 0.62)
    assert found["overflow_target"] == 0.005
    (channel,) = found["channels"]
    assert (channel["sd_ratio"], channel["window"]) == (0.7, [0.1, -0.2, None])
    assert found["ticker"]["overrun_pct"] == 0.14
    assert found["ticker"]["late_p99_ms"] == 0.4


async def test_control_tells_why_the_queue_goes_by_arrival(tmp_path: Path) -> None:
    box = controlled(tmp_path, changed(STEERING, order="fcfs", fallback="missing"))
    found = (await client_of(box).get("/admin/control", headers=admin(box))).json()
    assert "steelyard calibrate" in found["why"]
    ready = (await client_of(box).get("/readyz")).json()
    assert ready["control"]["fallback"] == "missing"
    assert ready["control"]["ticker"] == "nice"
    assert ready["status"] == "ready", "a fallback keeps nobody waiting"


async def test_control_of_a_box_that_has_measured_nothing_is_told_as_unknown(
    tmp_path: Path,
) -> None:
    box = make_box(tmp_path)
    found = (await client_of(box).get("/admin/control", headers=admin(box))).json()
    assert found["ticker"]["late_p99_ms"] is None
    assert found["channels"] == []


async def test_control_needs_an_admin_key(tmp_path: Path) -> None:
    box = controlled(tmp_path)
    headers = {"X-Api-Key": box.keys.create("app", ["infer"])}
    assert (await client_of(box).get("/admin/control", headers=headers)).status_code == 403


async def test_pools_order_and_ticks_are_metrics(tmp_path: Path) -> None:
    box = controlled(tmp_path)
    engine = EngineSnapshot(stats=STATS)
    metrics = Metrics(
        version="0", llama_commit="c", model="m", engine=lambda: engine,
        steering=box.steering, control=box.control,
    )  # fmt: skip
    text = metrics.text().decode()
    for line in (
        'steelyard:pool_cells{pool="a"} 6144.0',
        'steelyard:pool_cells_used{pool="b"} 2500.0',
        'steelyard:pool_cells_predicted{pool="a"} 4500.0',
        'steelyard:pool_cells_borrowed{pool="b"} 452.0',
        'steelyard:pool_evictions_total{pool="a"} 1.0',
        'steelyard:pool_evictions_total{pool="b"} 4.0',
        "steelyard:pool_overflows_total 2.0",
        "steelyard:states_saved_total 3.0",
        "steelyard:peak_tau 0.62",
        'steelyard:queue_order{order="expected-cost"} 1.0',
        'steelyard:queue_fallback{reason="missing"} 0.0',
        "steelyard:tick_overruns_total 14.0",
    ):
        assert line in text, line


# -- POST /admin/requests/{id}/priority ------------------------------------------------------------


async def running(box: Box) -> tuple[Any, asyncio.Task[Any]]:
    supervisor: Any = box.supervisor
    supervisor.script = lambda submit: [60.0]
    asked = asyncio.create_task(client_of(box).post("/v1/chat/completions", json=chat()))
    async with asyncio.timeout(10):
        while not supervisor.tickets:
            await asyncio.sleep(0.001)
    return supervisor.last, asked


async def test_moved_request_is_moved_and_the_ledger_has_who_did_it(tmp_path: Path) -> None:
    box = controlled(tmp_path)
    ticket, asked = await running(box)
    answer = await client_of(box).post(
        f"/admin/requests/{ticket.id}/priority",
        json={"priority": 1, "pool": "b"},
        headers=admin(box),
    )
    assert answer.json() == {
        "status": "moved", "id": ticket.id, "priority": 1, "pool": "b", "recorded": True,
    }  # fmt: skip
    assert (ticket.request.priority, ticket.request.pool) == (1, "b")
    (row,) = [row for row in ledger_of(box).rows if isinstance(row, Action)]
    assert (row.action, row.target, row.operator) == ("request.priority", ticket.id, "bob")
    assert row.detail == {"priority": 1, "pool": "b", "was": [0, "a"]}
    listed = await client_of(box).get("/admin/requests", headers=admin_again(box))
    (shown,) = listed.json()["requests"]
    assert (shown["pool"], shown["priority"], shown["forecast"]) == ("b", 1, None)
    ticket.cancel()
    await asked


def admin_again(box: Box) -> dict[str, str]:
    return {"X-Api-Key": box.keys.create("eve", ["admin"])}


@pytest.mark.parametrize(
    "body",
    [{}, {"priority": 10}, {"priority": "high"}, {"pool": "c"}, {"priority": 0, "tier": "flex"}],
)
async def test_place_that_there_is_not_is_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    box = controlled(tmp_path)
    ticket, asked = await running(box)
    path = f"/admin/requests/{ticket.id}/priority"
    answer = await client_of(box).post(path, json=body, headers=admin(box))
    assert answer.status_code == 400
    assert ticket.request.pool == "a"
    ticket.cancel()
    await asked


async def test_request_that_is_not_there_cannot_be_moved(tmp_path: Path) -> None:
    box = controlled(tmp_path)
    path = "/admin/requests/gone/priority"
    answer = await client_of(box).post(path, json={"priority": 0}, headers=admin(box))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "request_not_found")


async def test_live_request_shows_its_forecast(tmp_path: Path) -> None:
    async with forecasting(tmp_path) as box:
        ticket, asked = await running(box)
        await asyncio.wait([asyncio.create_task(box.aboard[ticket.id].outlook.within(5))])  # type: ignore[union-attr]
        listed = await client_of(box).get("/admin/requests", headers=admin(box))
        (shown,) = listed.json()["requests"]
        assert shown["forecast"]["p50"] == 100
        assert shown["forecast"]["version"] == "v7"
        ticket.cancel()
        await asked
