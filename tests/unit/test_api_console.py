"""What the console asks over HTTP: who may, what comes back, and that each act is in the ledger."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.api.console_shapes import (
    AlarmDone,
    AlarmList,
    Log,
    Past,
    Who,
)
from appliance.api.feed import KEPT_LISTENERS, MOST_LISTENERS
from appliance.frames import Live, Rows, State
from appliance.observe.logs import RECENT, Ring
from tests.unit.api_box import chat, client_of, make_box
from tests.unit.console_desk import VERIFY, Desk, actions, frames_in


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(make_box(tmp_path))
    yield made
    await made.app.state.feed.close()


# -- events --------------------------------------------------------------------------------------


async def test_one_frame_of_each_kind_can_be_asked_for(desk: Desk) -> None:
    answer = await desk.get("/events?once=1")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [type(frame) for frame in frames_in(answer)] == [Live, Rows, State]
    assert [type(f) for f in frames_in(await desk.get("/events?once=1&frames=state"))] == [State]


async def test_a_key_for_metrics_may_listen_and_one_for_inference_may_not(desk: Desk) -> None:
    for scope, status in (("metrics", 200), ("infer", 403)):
        key = {"X-Api-Key": desk.box.keys.create(scope, [scope])}
        assert (await desk.client.get("/events?once=1", headers=key)).status_code == status
    assert (await client_of(desk.box, peer="10.0.0.9").get("/events?once=1")).status_code == 401


async def test_keys_for_metrics_cannot_keep_the_operator_from_listening(desk: Desk) -> None:
    watching = {"X-Api-Key": desk.box.keys.create("dashboard", ["metrics", "infer"])}
    for _ in range(MOST_LISTENERS - KEPT_LISTENERS):
        desk.app.state.feed.listen(["live"])
    desk.app.state.feed.end()  # who is let in nevertheless gets an answer that ends
    refused = await desk.client.get("/events", headers=watching)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (503, "too_many_consoles")
    assert refused.headers["Retry-After"] == "5"
    assert (await desk.client.get("/events", headers=desk.headers)).status_code == 200
    assert (await desk.client.get("/events?once=1", headers=watching)).status_code == 200


@pytest.mark.parametrize("query", ["frames=live,colour", "once=yes"])
async def test_what_events_cannot_be_asked_is_refused(desk: Desk, query: str) -> None:
    answer = await desk.get(f"/events?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")


async def test_head_of_events_ends(desk: Desk) -> None:
    assert (await desk.client.head("/events", headers=desk.headers)).status_code == 200


async def test_a_request_is_counted_the_same_on_both_sides(desk: Desk) -> None:
    await desk.client.post("/v1/chat/completions", json=chat(), headers=app_key(desk))
    (state,) = frames_in(await desk.get("/events?once=1&frames=state"))
    assert (state.chain.tok_ledger, state.chain.tok_sent) == (3, 3)
    (live,) = frames_in(await desk.get("/events?once=1&frames=live"))
    assert live.ttft_p50_ms is not None
    assert desk.box.aboard == {}


def app_key(desk: Desk) -> dict[str, str]:
    return {"X-Api-Key": desk.box.keys.create("app", ["infer"])}


async def test_a_live_request_is_a_row_with_the_name_of_its_key(tmp_path: Path) -> None:
    desk = Desk(make_box(tmp_path, lambda submit: [60.0]))
    body = chat(metadata={"scenario": "reply"}, service_tier="flex", stream=True)
    call = asyncio.create_task(
        desk.client.post("/v1/chat/completions", json=body, headers=app_key(desk))
    )
    while not desk.box.supervisor.tickets:
        await asyncio.sleep(0)
    (rows,) = frames_in(await desk.get("/events?once=1&frames=rows"))
    (row,) = rows.requests
    assert (row.key, row.tenant, row.scenario, row.tier) == ("app", "default", "reply", "flex")
    assert (row.state, row.flags, rows.keys[0].wait) == ("waiting", ("stream",), 1)
    await desk.client.delete(f"/admin/requests/{row.id}", headers=desk.headers)
    await call


# -- who, past, log ------------------------------------------------------------------------------


async def test_a_key_is_told_who_it_is(desk: Desk) -> None:
    who = await desk.told("/admin/whoami", Who)
    assert (who.key_name, who.scopes, who.version) == ("alice", ["admin"], "0")
    assert who.boot_id == desk.watch.boot_id


async def test_the_past_is_told_as_lists_of_one_length(desk: Desk) -> None:
    assert (await desk.told("/admin/past", Past)).last_ms == 0
    desk.watch.look(10.0, 1_800_000_000.0)
    past = await desk.told("/admin/past", Past)
    assert past.last_ms == 1_800_000_000_000
    assert {len(values) for values in past.values.values()} == {1}


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """An empty ring, and what writes to it."""
    fresh = Ring()
    monkeypatch.setattr("appliance.api.console.RECENT", fresh)

    def say(text: str, level: int = logging.INFO) -> None:
        fresh.handle(logging.LogRecord("appliance.tls", level, "f", 1, text, (), None))

    return say


async def test_log_lines_are_told_by_level_and_part(desk: Desk, ring: Any) -> None:
    ring("one", logging.DEBUG)
    ring("two\nlines")
    ring("three", logging.ERROR)
    log = await desk.told("/admin/log", Log)
    assert [(line.level, line.text) for line in log.lines] == [
        ("info", "two\\nlines"), ("error", "three"),
    ]  # fmt: skip
    assert log.next == 3
    for query, count in (("level=error", 1), ("filter=TLS", 2), ("filter=none", 0), ("limit=1", 1)):
        assert len((await desk.told(f"/admin/log?{query}", Log)).lines) == count, query


async def test_a_log_is_followed_without_gap_or_repetition(desk: Desk, ring: Any) -> None:
    seen: list[str] = []
    after = (await desk.told("/admin/log", Log)).next
    for number in range(7):
        ring(f"line {number}")
    for _ in range(4):
        page = await desk.told(f"/admin/log?after={after}&limit=3", Log)
        seen += [line.text for line in page.lines]
        after = page.next
    assert seen == [f"line {number}" for number in range(7)]


@pytest.mark.parametrize("query", ["level=loud", "after=x", "limit=-1"])
async def test_what_the_log_cannot_be_asked_is_refused(desk: Desk, query: str) -> None:
    assert (await desk.get(f"/admin/log?{query}")).status_code == 400


def test_the_log_keeps_the_newest_lines_and_tracebacks() -> None:
    ring = Ring(kept=5)
    record = logging.LogRecord("a", logging.ERROR, "f", 1, "it failed", (), None)
    record.exc_text = "Traceback\nValueError"
    for _ in range(9):
        ring.handle(record)
    lines, newest = ring.lines(level=0)
    assert ([line.seq for line in lines], newest) == ([5, 6, 7, 8, 9], 9)
    assert lines[0].text == "it failed\\nTraceback\\nValueError"
    assert RECENT is not ring


# -- alarms --------------------------------------------------------------------------------------


async def test_an_alarm_is_marked_as_seen_by_name(desk: Desk) -> None:
    desk.raise_alarm()
    done = msgspec.json.decode(
        (await desk.post("/admin/alarms/disk_low/seen")).content, type=AlarmDone
    )
    assert (done.status, done.alarm.seen, done.recorded) == ("seen", True, True)
    (action,) = actions(desk)
    assert (action.action, action.target) == ("alarm.seen", "disk_low")
    assert (action.key_name, action.operator) == ("alice", "bob")
    assert (await desk.told("/admin/alarms", AlarmList)).alarms[0].seen


async def test_a_snooze_is_kept_with_its_reason(desk: Desk) -> None:
    desk.raise_alarm("key_expires:k_1")
    body = {"minutes": 30, "reason": "a stick is on its way"}
    answer = await desk.post("/admin/alarms/key_expires:k_1/snooze", body)
    done = msgspec.json.decode(answer.content, type=AlarmDone)
    assert done.status == "snoozed"
    assert done.alarm.snooze_ms > 0
    (action,) = actions(desk)
    assert (action.action, action.target, dict(action.detail)) == (
        "alarm.snooze", "key_expires:k_1", body,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"minutes": 481, "reason": "x"},
        {"minutes": 5, "reason": ""},
        {"minutes": 0, "reason": "x"},
    ],
)
async def test_a_snooze_needs_a_reason_and_ends_within_eight_hours(desk: Desk, body: Any) -> None:
    desk.raise_alarm()
    assert (await desk.post("/admin/alarms/disk_low/snooze", body)).status_code == 400
    assert actions(desk) == []


@pytest.mark.parametrize("what", ["seen", "snooze"])
async def test_an_alarm_that_is_over_is_not_found(desk: Desk, what: str) -> None:
    answer = await desk.post(f"/admin/alarms/disk_low/{what}", {"minutes": 5, "reason": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "alarm_not_found")


async def test_alarms_of_the_past_are_listed_newest_first(desk: Desk) -> None:
    for number, id in enumerate(("first", "second")):
        desk.raise_alarm(id)
        desk.watch.alarms.update([], 200.0 + 100 * number, 2_000_000 + number)
    listed = await desk.told("/admin/alarms", AlarmList)
    assert [over.alarm.id for over in listed.past] == ["second", "first"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/whoami"), ("GET", "/admin/past"), ("GET", "/admin/log"),
        ("GET", "/admin/alarms"), ("POST", "/admin/alarms/x/seen"),
        ("POST", "/admin/alarms/x/snooze"), ("GET", "/admin/requests/x/tokens"),
        ("GET", VERIFY), ("POST", VERIFY),
    ],
)  # fmt: skip
async def test_all_else_is_for_operators_alone(desk: Desk, method: str, path: str) -> None:
    key = {"X-Api-Key": desk.box.keys.create("watcher", ["metrics", "infer"])}
    assert (await desk.client.request(method, path, headers=key)).status_code == 403
