"""What a switch asks of the box's parts: counters go on, nobody is left hanging, a request keeps
the model that it came for."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.api.app import create_app, put_in
from appliance.board.heartbeat import Rule, Wait
from appliance.board.planned import Planned
from appliance.config import ModelConfig
from appliance.engine.commands import Cancel
from appliance.engine.reports import Stats
from appliance.errors import ApiError, Unavailable, shutting_down
from appliance.ledger.rows import Action
from appliance.prepare.client import Preparer
from appliance.snapshot import EngineSnapshot, ModelSwitch, SwitchEnd
from appliance.supervisor import Supervisor
from appliance.watchdog import Policy, Tolerance
from firmware_bridge.commands import Inhibit
from tests.unit.api_box import chat, client_of, make_box
from tests.unit.engine_parts import make_submit
from tests.unit.supervisor_parts import LOAD, Nursery, fate, nursery, running
from tests.unit.test_admission import make_admission

__all__ = ["nursery", "running"]
"""Fixtures."""


class ScriptedSwitch:
    """Takes what it is asked for, unless one runs."""

    def __init__(self, phase: Any = "none") -> None:
        self.state = ModelSwitch(phase=phase, source="tiny", target="other")
        self.begun: list[tuple[str, Action]] = []

    def refusal(self) -> ApiError | None:
        return Unavailable("another model comes", code="switching") if self.state.away else None

    def begin(self, target: str, by: Action) -> bool:
        if self.state.phase != "none":
            return False
        self.begun.append((target, by))
        return True


# The engine's side


async def test_supervisor_goes_on_where_the_one_before_it_ended(nursery: Nursery) -> None:
    before = EngineSnapshot(
        state="stopping",
        pid=7,
        stats=Stats(steps=5, predicted_tokens=40, kv_total=99),
        restarts=2,
        paused=True,
        slowed=True,
    )
    follower = Supervisor(LOAD, Policy(Tolerance(60, 0), 60, 3, 300), before=before)
    now = follower.snapshot
    assert (now.state, now.pid, now.restarts) == ("starting", 0, 2)
    assert (now.stats.steps, now.stats.predicted_tokens) == (5, 40)
    assert now.stats.kv_total == 0, "of the engine before"
    nursery.prepare = lambda child: setattr(child, "stats", Stats(steps=3, predicted_tokens=2))
    await follower.start()
    assert follower.snapshot.paused, "a hold holds on"
    assert [type(one).__name__ for one in nursery.child.heard[1:3]] == ["Pause", "Slow"]
    async with asyncio.timeout(30):
        while follower.snapshot.stats.steps != 8:
            await asyncio.sleep(0.001)
    assert follower.snapshot.stats.predicted_tokens == 42
    await follower.stop()


async def test_those_that_wait_are_turned_away_and_those_that_run_are_not(
    nursery: Nursery, running: Supervisor
) -> None:
    runs, waits = running.submit(make_submit("a")), running.submit(make_submit("b"))
    nursery.child.start(runs)
    async with asyncio.timeout(30):
        while runs.started_at is None:
            await asyncio.sleep(0)
    error = Unavailable("another model comes", code="switching")
    running.turn_away(error)
    assert await fate(waits) is error
    assert list(running.tickets) == ["a"]
    assert nursery.child.heard[-1] == Cancel("b", "cancelled"), "it must not start any more"


async def test_who_comes_to_what_has_ended_hears_why(running: Supervisor) -> None:
    def farewell() -> ApiError:
        return Unavailable("another model comes", code="switching")

    await running.stop(farewell)
    preparer = Preparer("none.gguf")
    await preparer.stop(farewell)
    with pytest.raises(Unavailable, match="another model"):
        running.submit(make_submit("a"))
    with pytest.raises(Unavailable, match="another model"):
        await preparer.detokenize([1])


def test_gate_is_closed_for_as_long_as_there_is_a_reason() -> None:
    reasons: list[ApiError | None] = [shutting_down(), None]
    admission = make_admission()
    admission._closed = lambda: reasons.pop(0)
    with pytest.raises(Unavailable):
        admission.admit(1, 1, None)
    admission.admit(1, 1, None)


# The board's


def test_board_is_asked_to_wait_once_and_to_watch_again_when_the_engine_is_back() -> None:
    planned, rule = Planned(), Rule(timeout_s=30, restart_s=300)
    assert planned.due(inhibited=False) is None
    planned.ask(630.0)
    assert planned.due(inhibited=False) == Inhibit(630, 3)
    rule.waits()
    assert rule.due(1.0, EngineSnapshot(state="starting")) is None, "it waits already"
    assert planned.due(inhibited=True) is None
    planned.ask(0.0)
    assert planned.due(inhibited=True) == Inhibit(0, 3)
    started = EngineSnapshot(state="ready", last_progress=2.0)
    assert rule.due(3.0, started) is not None
    assert rule.due(4.0, EngineSnapshot(state="backoff")) == Wait(300, "restart")


def test_board_that_waits_for_an_operator_waits_on() -> None:
    planned = Planned()
    planned.ask(5000.0)
    assert planned.due(inhibited=True) == Inhibit(900, 3), "no more than it grants"
    planned.ask(0.0)
    assert planned.due(inhibited=True) is None


# HTTP's


async def test_requests_are_refused_while_no_model_is_in_and_all_else_answers(
    tmp_path: Path,
) -> None:
    for phase, away in (("testing", False), ("draining", True), ("loading", True)):
        switch = ScriptedSwitch(phase)
        box = dataclasses.replace(make_box(tmp_path), switch=switch)
        client = client_of(box)
        answer = await client.post("/v1/chat/completions", json=chat())
        assert answer.status_code == (503 if away else 200)
        if away:
            assert answer.json()["error"]["code"] == "switching"
            assert int(answer.headers["retry-after"]) >= 1
        ready = await client.get("/readyz")
        assert ready.json()["status"] == ("switching" if away else "ready")
        assert ready.json()["switch"] == phase
        for path in ("/health", "/metrics", "/v1/models", "/props"):
            assert (await client.get(path)).status_code == 200


async def test_request_keeps_the_model_that_it_was_prepared_for(tmp_path: Path) -> None:
    former = make_box(tmp_path)
    app = create_app(former)
    latter = dataclasses.replace(
        former,
        model=dataclasses.replace(former.model, name="other", sha256="ef" * 32),
        supervisor=make_box(tmp_path / "other").supervisor,
    )
    prepared, go_on = asyncio.Event(), asyncio.Event()
    prepare = former.preparer.chat

    async def slow(job: Any, key: str) -> Any:
        found = await prepare(job, key)
        prepared.set()
        await go_on.wait()
        return found

    former.preparer.chat = slow  # type: ignore[method-assign]
    client = client_of(former, app)
    early = asyncio.create_task(client.post("/v1/chat/completions", json=chat()))
    await prepared.wait()
    put_in(app, latter)
    go_on.set()
    answer = await early
    assert answer.json()["model"] == "tiny"
    assert answer.json()["system_fingerprint"] == former.fingerprint
    assert len(former.supervisor.tickets) == 1
    assert not latter.supervisor.tickets, "its tokens mean nothing to the other model"
    late = await client.post("/v1/chat/completions", json=chat())
    assert late.json()["model"] == "other"
    assert late.json()["system_fingerprint"] == latter.fingerprint
    await app.state.feed.close()


async def test_model_can_be_asked_for_and_another_be_chosen(tmp_path: Path) -> None:
    switch = ScriptedSwitch()
    box = dataclasses.replace(make_box(tmp_path), switch=switch)
    headers = {"X-Api-Key": box.keys.create("alice", ["admin"]), "X-Operator": "bob"}
    app = create_app(box)
    client = client_of(box, app)
    switch.state = ModelSwitch(last=SwitchEnd("kept", "tiny", "big", why="no room"))
    now = (await client.get("/admin/model", headers=headers)).json()
    assert (now["name"], now["selected"], now["fixed"]) == ("tiny", None, False)
    assert now["switch"]["last"]["why"] == "no room"
    packaged = "SmolLM2-135M-Instruct.Q4_1"
    answer = await client.post("/admin/model", json={"use": packaged}, headers=headers)
    assert (answer.status_code, answer.json()) == (
        202,
        {"status": "switching", "target": packaged},
    )
    ((target, by),) = switch.begun
    assert (target, by.key_name, by.operator) == (packaged, "alice", "bob")
    switch.state = msgspec.structs.replace(switch.state, phase="loading")
    again = await client.post("/admin/model", json={"use": packaged}, headers=headers)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "switch_under_way")
    await app.state.feed.close()


async def test_model_that_the_configuration_names_is_not_exchanged(tmp_path: Path) -> None:
    box = dataclasses.replace(
        make_box(tmp_path, model=ModelConfig(path="/m.gguf")), switch=ScriptedSwitch()
    )
    headers = {"X-Api-Key": box.keys.create("alice", ["admin"])}
    answer = await client_of(box).post("/admin/model", json={"use": "x"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "model_fixed")
    assert "model.path" in answer.json()["error"]["message"]


async def test_consoles_see_the_switch_as_a_job(tmp_path: Path) -> None:
    switch = ScriptedSwitch("checking")
    switch.state = msgspec.structs.replace(switch.state, done=3, total=9)
    box = dataclasses.replace(make_box(tmp_path), switch=switch)
    watch = create_app(box).state.feed.watch
    (job,) = watch.state(0.0, 0.0).jobs
    assert (job.kind, job.phase, job.done, job.total) == ("model", "checking", 3, 9)


async def test_engine_that_is_away_on_purpose_raises_no_alarm(tmp_path: Path) -> None:
    switch = ScriptedSwitch("loading")
    box = dataclasses.replace(make_box(tmp_path), switch=switch)
    supervisor: Any = box.supervisor
    supervisor.snapshot = EngineSnapshot(state="starting", restarts=2)
    watch = create_app(box).state.feed.watch

    def codes(now: float) -> set[str]:
        watch.look(now, 1.0)
        return {alarm.code for alarm in watch.state(now, 1.0).alarms}

    assert "engine_down" not in {code for now in range(30) for code in codes(float(now))}
    assert not watch.live(30.0, 1.0).ready
    switch.state = ModelSwitch()
    assert "engine_down" in {code for now in range(30, 60) for code in codes(float(now))}
