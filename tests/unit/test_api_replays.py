"""Replays of disputed answers over HTTP: accounted, bounded, told; and requests that run alone."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.api import audit_replay
from appliance.api.replays import MOST_FAILED, MOST_WAITING, SCENARIO
from appliance.errors import EngineFailed
from appliance.ledger.database import connect
from tests.unit.api_box import chat, client_of, make_box
from tests.unit.audit_parts import CHAT, RIGHT, WRONG, Desk, conflict_of


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.ledger.close()


# Replays


async def test_replay_is_accounted_as_a_request_of_the_one_who_asked(desk: Desk) -> None:
    key = desk.key("app", "infer")
    name = (await desk.ask(headers={**key, "X-Request-Id": "first"})).json()["id"]
    conflict_of(await desk.verify(name, headers={**key, "X-Request-Id": "first"}, digest=WRONG))
    assert desk.rows("request") == desk.rows("admitted") == 2
    db = connect(desk.path, read_only=True)
    row = db.execute(
        "SELECT scenario, key_id, route, json_extract(body, '$.completion_tokens')"
        " FROM entries WHERE kind = 'request' ORDER BY seq DESC LIMIT 1"
    ).fetchone()
    first = db.execute("SELECT key_id FROM entries WHERE kind = 'request'").fetchone()[0]
    db.close()
    assert row == (SCENARIO, first, "/v1/audit/{trace_id}/verify", 3)
    shown = await desk.show("first", headers=key)
    assert [told["request"]["id"] for told in shown["requests"]] == [name], "the replay is not one"


async def test_stored_report_is_shown_with_the_request(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    error = conflict_of(await desk.verify(name, digest=WRONG))
    assert (await desk.client.head(f"/v1/audit/{name}")).status_code == 200
    (told,) = (await desk.show(name))["requests"]
    assert told["digests"] == [RIGHT]
    assert told["request"]["prompt_tokens"] == 2
    assert [audit["kind"] for audit in told["audits"]] == ["conflict", "replay"]
    assert told["audits"][1]["report"] == error["report"]
    assert told["audits"][1]["seq"] == error["replay_seq"]
    assert told["replays_pending"] == []


async def test_dropped_tokens_and_another_model_make_a_replay_impossible(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    desk.change("UPDATE payloads SET tokens = NULL")
    error = conflict_of(await desk.verify(name, digest=WRONG))
    assert (error["replay"], error["report"]) == ("impossible", None)
    assert "retention" in error["said"]
    assert not desk.engine.replays
    other = (await desk.ask()).json()["id"]
    moved = replace(desk.box, model=replace(desk.box.model, sha256="ef" * 32))
    found = await client_of(moved).post(f"/v1/audit/{other}/verify", json={"digest": WRONG})
    error = conflict_of(found)
    assert error["replay"] == "impossible"
    assert "another" in error["said"] or "now runs" in error["said"]
    assert desk.rows("replay") == 0


async def test_a_replay_whose_turn_comes_under_another_model_is_not_run(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    gate = desk.hold_replays()
    asked = asyncio.create_task(desk.verify(name, digest=WRONG))
    while not desk.running:
        await asyncio.sleep(0.01)
    desk.box = replace(desk.box, model=replace(desk.box.model, sha256="ef" * 32))
    gate.set()
    error = conflict_of(await asked)
    assert (error["replay"], error["report"]) == ("busy", None)
    assert "another model" in error["said"]
    assert not desk.engine.replays
    assert desk.rows("replay") == 0, "that would stand for ever"


async def test_report_that_retention_dropped_is_not_made_again(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    conflict_of(await desk.verify(name, digest=WRONG))
    desk.change("UPDATE payloads SET report = NULL")
    error = conflict_of(await desk.verify(name, digest=WRONG))
    assert (error["replay"], error["report"]) == ("identical", None)
    assert len(desk.engine.replays) == 1


async def test_replay_that_takes_long_is_pending_and_there_when_it_is_done(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [(await desk.ask()).json()["id"] for _ in range(2)]
    monkeypatch.setattr(audit_replay, "WAIT_S", 0.0)
    gate = desk.hold_replays()
    for name in (*names, names[0]):
        error = conflict_of(await desk.verify(name, digest=WRONG))
        assert (error["replay"], error["report"]) == ("pending", None)
    assert desk.running == 1, "one at a time"
    assert (await desk.show(names[1]))["requests"][0]["replays_pending"] == [0]
    gate.set()
    while (await desk.show(names[1]))["requests"][0]["replays_pending"]:
        await asyncio.sleep(0)
    for name in names:
        error = conflict_of(await desk.verify(name, digest=WRONG))
        assert error["replay"] == "identical"
    assert len(desk.engine.replays) == 2


async def test_queue_of_replays_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_replay, "WAIT_S", 0.0)
    desk.hold_replays()
    states = []
    for _ in range(MOST_WAITING + 3):
        name = (await desk.ask()).json()["id"]
        states.append(conflict_of(await desk.verify(name, digest=WRONG))["replay"])
    assert states == ["pending"] * (MOST_WAITING + 1) + ["busy"] * 2
    await desk.app.state.replays.close()


async def test_failed_replay_is_told_and_may_be_tried_again_a_few_times(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    desk.engine.fault = EngineFailed("the engine crashed", code="engine_crashed")
    for _ in range(MOST_FAILED + 2):
        error = conflict_of(await desk.verify(name, digest=WRONG))
        assert error["replay"] == "failed"
        assert error["report"]["note"] == "the engine crashed"
    assert len(desk.engine.replays) == MOST_FAILED
    desk.engine.fault = None
    admin = desk.key("boss", "admin")
    again = await desk.client.post(
        f"/admin/audit/{name}/replay", json={"force": True}, headers=admin
    )
    assert again.json()["replay"] == "identical"


async def test_operator_replays_and_lists_conflicts(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    admin, app = desk.key("boss", "admin"), desk.key("app", "infer")
    path = f"/admin/audit/{name}/replay"
    assert (await desk.client.post(path, headers=app)).status_code == 403
    first = await desk.client.post(path, headers=admin)
    assert first.status_code == 200, first.text
    assert first.json()["replay"] == "identical"
    second = await desk.client.post(path, headers=admin)
    assert second.json() == first.json()
    forced = await desk.client.post(path, json={"force": True}, headers=admin)
    assert forced.json()["replay_seq"] > first.json()["replay_seq"]
    assert len(desk.engine.replays) == 2
    for number in range(3):
        await desk.verify(name, headers=admin, digest=f"{number:064x}")
    listed = await desk.client.get("/admin/audit/conflicts", headers=admin)
    found = listed.json()["conflicts"]
    assert [entry["claimed"][-1] for entry in found] == ["2", "1", "0"]
    last = found[1]["seq"]
    rest = await desk.client.get(f"/admin/audit/conflicts?before={last}", headers=admin)
    assert [entry["claimed"][-1] for entry in rest.json()["conflicts"]] == ["0"]
    bad = await desk.client.get("/admin/audit/conflicts?before=x", headers=admin)
    assert bad.status_code == 400


async def test_where_nothing_may_run_alone_a_replay_does_not_either(tmp_path: Path) -> None:
    desk = Desk(tmp_path, limits={"exclusive": False})
    desk.engine.exclusive = False
    name = (await desk.ask()).json()["id"]
    report = conflict_of(await desk.verify(name, digest=WRONG))["report"]
    assert not desk.engine.replays[0].exclusive
    assert any("replay itself" in reason for reason in report["facts"]["reasons"])
    desk.ledger.close()


# The option


async def test_exclusive_reaches_the_engine_on_every_route(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    supervisor: Any = box.supervisor
    for path, body in (
        (CHAT, chat()),
        ("/v1/completions", {"prompt": "hi"}),
        ("/completion", {"prompt": "hi"}),
    ):
        for exclusive in (True, False, None):
            await client_of(box).post(path, json={**body, "exclusive": exclusive})
            assert supervisor.last.request.exclusive is bool(exclusive)


async def test_operator_can_forbid_exclusive_requests(tmp_path: Path) -> None:
    box = make_box(tmp_path, limits={"exclusive": False})
    found = await client_of(box).post(CHAT, json=chat(exclusive=True))
    assert found.status_code == 403
    assert found.json()["error"]["code"] == "exclusive_not_allowed"
    assert (await client_of(box).post(CHAT, json=chat(exclusive=False))).status_code == 200
