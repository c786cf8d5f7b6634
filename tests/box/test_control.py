"""Budgets and order on a real box: both pools while both kinds run, a request that is moved, what
happens without forecasts, and an engine that comes anew."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.frames import Live, Rows
from tests.box.asking import Asked, ask
from tests.box.operating import console
from tests.box.running import RunningBox
from tests.box.test_events import Console

LONG = 1900
"""Tokens that no request reaches before its test ends it."""


@contextmanager
def asked(box: RunningBox, *tiers: str, tokens: int = LONG) -> Iterator[list[Asked]]:
    """A long stream of each tier, which has begun."""
    streams = [ask(box, max_tokens=tokens, service_tier=tier) for tier in tiers]
    try:
        for stream in streams:
            stream.wait_for_tokens(1)
        yield streams
    finally:
        for stream in streams:
            stream.hang_up()
        box.wait_until(lambda: not control_used(box), what="all cells let go")


def control(box: RunningBox) -> dict[str, Any]:
    found: dict[str, Any] = box.admin("GET", "/admin/control").json()
    return found


def control_used(box: RunningBox) -> int:
    return sum(pool["used"] for pool in control(box)["pools"].values())


def metric(box: RunningBox, name: str, pool: str) -> float:
    found = re.search(rf'^{name}{{pool="{pool}"}} (\S+)$', box.http.get("/metrics").text, re.M)
    assert found is not None, name
    return float(found[1])


def both_used(box: RunningBox) -> bool:
    return all(metric(box, "steelyard:pool_cells_used", pool) > 0 for pool in "ab")


def has_share(box: RunningBox) -> bool:
    """A quarter of all cells, and between half and 1.25 of that as forecasts do."""
    a, b = (metric(box, "steelyard:pool_cells", pool) for pool in "ab")
    return (a + b) / 8 <= b <= (a + b) / 3.2


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """One with cells for long streams of both kinds."""
    home = tmp_path_factory.mktemp("roomy")
    with RunningBox.start(home, engine={"context": 8192}) as running:
        yield running


def test_both_pools_are_told_while_both_kinds_run(roomy: RunningBox) -> None:
    box = roomy
    with Console.of(box) as console, asked(box, "default", "flex", tokens=3500):
        box.wait_until(lambda: both_used(box), what="cells of both pools")
        live = console.wait(lambda live: (live.pool_a.used_tok or 0) and live.pool_b.used_tok)
        assert live.pool_a.cap_tok + live.pool_b.cap_tok == 8192
        box.wait_until(lambda: has_share(box), what="its share")
        live = console.wait(lambda live: (live.pool_b.cap_tok or 0) >= 1024)
        assert live.kv_b_pct is not None
        rows = console.wait(lambda rows: len(rows.requests) == 2, Rows)
        assert {row.tier: row.pool for row in rows.requests} == {"default": "A", "flex": "B"}
        slots = {slot["id_task"] for slot in box.slots() if slot["is_processing"]}
        assert len(slots) == 2


def test_without_batch_requests_the_others_have_all_cells(box: RunningBox) -> None:
    with Console.of(box) as console:
        live = console.wait(lambda live: live.pool_b.cap_tok == 0)
        assert (live.pool_a.cap_tok, live.kv_b_pct) == (2048, None)
    assert metric(box, "steelyard:pool_cells", "a") == 2048


def test_ticker_ticks_and_is_told_everywhere(box: RunningBox) -> None:
    box.wait_until(lambda: control(box)["ticker"]["ticks"] > 100, what="a second of ticks")
    with Console.of(box) as console:
        assert console.wait(lambda live: live.tick_late_p99_ms is not None)
    assert box.http.get("/readyz").json()["control"]["ticker"] in ("rr", "nice", "plain")


def test_waiting_request_that_is_moved_starts_in_its_new_turn(box: RunningBox) -> None:
    assert box.admin("POST", "/admin/hold").status_code == 200
    try:
        first, second = (ask(box, max_tokens=5, stream=False) for _ in range(2))
        box.wait_until(lambda: len(listed(box)) == 2, what="two wait")
        ids = [row["id"] for row in listed(box)]
        moved = box.admin("POST", f"/admin/requests/{ids[0]}/priority", json={"pool": "b"})
        assert moved.json() | {"recorded": True} == {
            "status": "moved", "id": ids[0], "priority": 0, "pool": "b", "recorded": True,
        }  # fmt: skip
        box.wait_until(lambda: positions(box) == {ids[0]: 1, ids[1]: 0}, what="the engine's order")
    finally:
        box.admin("POST", "/admin/release")
    assert [first.wait().status, second.wait().status] == [200, 200]
    (done, *_) = box.admin("GET", "/admin/actions?action=request.priority").json()["actions"]
    assert done["target"] == ids[0]
    assert done["detail"] == {"priority": 0, "pool": "b", "was": [0, "a"]}


async def test_operator_moves_a_request_from_the_console(box: RunningBox, tmp_path: Path) -> None:
    box.admin("POST", "/admin/hold")
    stream = ask(box, max_tokens=5, stream=False)
    try:
        box.wait_until(lambda: len(listed(box)) == 1, what="it waits")
        async with console(box, box.admin_key, tmp_path) as it:
            await it.type("2")
            await it.sees("wait 1")
            await it.type("P", "down", "down", "enter")
            await it.answers("y")
            await it.sees("moved, pool B")
        (row,) = listed(box)
        assert (row["pool"], row["priority"]) == ("b", 1)
    finally:
        box.admin("POST", "/admin/release")
    assert stream.wait().status == 200


def listed(box: RunningBox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = box.admin("GET", "/admin/requests").json()["requests"]
    return found


def positions(box: RunningBox) -> dict[str, int]:
    return {row["id"]: row["position"] for row in listed(box)}


def test_running_request_that_is_moved_keeps_all_its_tokens(box: RunningBox) -> None:
    stream = ask(box, max_tokens=LONG)
    stream.wait_for_tokens(3)
    (row,) = listed(box)
    box.admin("POST", f"/admin/requests/{row['id']}/priority", json={"pool": "b", "priority": 1})
    box.wait_until(lambda: metric(box, "steelyard:pool_cells_used", "b") > 0, what="it is B's")
    had = len(stream.token_ids)
    stream.wait_for_tokens(had + 3)
    stream.hang_up()
    box.wait_until(lambda: not listed(box), what="it ended")


def test_without_forecasts_the_queue_goes_by_arrival_and_says_why(unforecast: RunningBox) -> None:
    box = unforecast
    ready = box.http.get("/readyz").json()
    assert (ready["status"], ready["control"]["fallback"]) == ("ready", "off")
    assert "forecast.enabled" in ready["control"]["why"]
    with Console.of(box) as console:
        live: Live = console.wait(lambda live: live.queue_order)
        assert (live.queue_order, live.queue_fallback) == ("fcfs", "off")
    assert ask(box, stream=False).wait().status == 200


def test_next_engine_is_told_the_budgets_too(roomy: RunningBox) -> None:
    box = roomy
    with asked(box, "flex"):
        box.wait_until(lambda: has_share(box), what="its share")
    assert box.admin("POST", "/admin/engine/restart").status_code == 200
    box.wait_until(lambda: restarted(box), 60, what="another engine")
    with asked(box, "flex"):
        box.wait_until(lambda: metric(box, "steelyard:pool_cells_used", "b") > 0, what="it runs")
        box.wait_until(
            lambda: metric(box, "steelyard:pool_cells_borrowed", "b") == 0,
            what="the engine counts its cells as its own",
        )


def restarted(box: RunningBox) -> bool:
    ready = box.http.get("/readyz")
    return ready.status_code == 200 and ready.json()["engine"]["restarts"] == 1
