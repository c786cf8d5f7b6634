"""The order in which a model gives way to another, and what becomes of each failure."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.errors import Farewell, Unavailable
from appliance.gguf import BadModel
from appliance.ledger.rows import Action
from appliance.models import ModelFile
from appliance.prepare.client import PrepareError
from appliance.snapshot import SwitchEnd
from appliance.supervisor import EngineCannotStart
from appliance.switching import Switch, Tell, Trial
from tests.unit.api_box import HEADER

OLD = ModelFile(Path("old.gguf"), HEADER, "aa" * 32, "old")
NEW = replace(OLD, path=Path("new.gguf"), sha256="bb" * 32, name="new")
BY = Action(wall_ns=1, action="", key_id="k_1", key_name="admin", operator="Ada")


class ScriptedStage:
    """Writes down what is asked of it; a step of that name raises what `fails` says."""

    def __init__(self, **fails: Exception) -> None:
        self.model = OLD
        self.fails = fails
        self.done: list[str] = []
        self.rows: list[Action] = []
        self.tested = Trial(load_s=1.0)
        self.held: dict[str, asyncio.Event] = {}
        self.refusals: list[str] = []
        self.switch: Switch | None = None

    async def _step(self, name: str) -> None:
        self.done.append(name)
        refusal = self.switch.refusal() if self.switch is not None else None
        self.refusals.append(name if refusal is not None else "")
        if name in self.held:
            await self.held[name].wait()
        if name in self.fails:
            raise self.fails[name]

    async def check(self, name: str, tell: Tell) -> ModelFile:
        tell(3, 10)
        await self._step("check")
        return replace(NEW, name=name)

    async def test(self, model: ModelFile) -> Trial:
        await self._step("test")
        return self.tested

    async def drain(self, farewell: Farewell) -> None:
        await self._step("drain")

    async def change(self, model: ModelFile, farewell: Farewell) -> None:
        self.model = model
        await self._step(f"change_{model.name}")

    async def choose(self, name: str) -> None:
        await self._step(f"choose_{name}")

    def planned(self, on: bool) -> None:
        self.done.append("away" if on else "back")

    def note(self, row: Action) -> None:
        self.rows.append(row)

    def give_up(self, reason: str) -> None:
        self.done.append("give_up")


def make_switch(**fails: Exception) -> tuple[Switch, ScriptedStage]:
    stage = ScriptedStage(**fails)
    stage.switch = Switch(stage)
    return stage.switch, stage


async def end_of(switch: Switch) -> SwitchEnd:
    async with asyncio.timeout(30):
        while switch.state.phase != "none":
            await asyncio.sleep(0)
    assert switch.state.last is not None
    return switch.state.last


async def until_at(switch: Switch, phase: str) -> None:
    async with asyncio.timeout(30):
        while switch.state.phase != phase:
            await asyncio.sleep(0)


async def test_choice_is_stored_after_the_new_model_serves() -> None:
    switch, stage = make_switch()
    assert switch.begin("new", BY)
    end = await end_of(switch)
    assert (end.result, end.source, end.target, end.why) == ("switched", "old", "new", "")
    assert stage.done == ["check", "test", "drain", "away", "change_new", "choose_new", "back"]
    assert stage.model.name == "new"


async def test_who_asks_is_turned_away_from_the_drain_to_the_end_and_not_before() -> None:
    switch, stage = make_switch()
    switch.begin("new", BY)
    await end_of(switch)
    assert stage.refusals == ["", "", "drain", "change_new", "choose_new"]
    assert switch.refusal() is None


async def test_refusal_says_when_to_come_again_by_the_time_that_loading_took() -> None:
    switch, stage = make_switch()
    stage.tested, stage.held = Trial(load_s=9.0), {"drain": asyncio.Event()}
    switch.begin("new", BY)
    await until_at(switch, "draining")
    refusal = switch.refusal()
    assert isinstance(refusal, Unavailable)
    assert (refusal.code, refusal.headers["Retry-After"]) == ("switching", "11")
    assert "from the model old to new" in refusal.message
    await switch.close()


@pytest.mark.parametrize("step", ["check", "test"])
async def test_model_that_cannot_be_served_takes_nothing_from_the_one_that_is(step: str) -> None:
    switch, stage = make_switch(**{step: BadModel("it is torn")})
    switch.begin("new", BY)
    end = await end_of(switch)
    assert (end.result, end.why, end.away_s) == ("kept", "it is torn", 0.0)
    assert stage.model is OLD
    assert not {"drain", "change_new"} & set(stage.done)


@pytest.mark.parametrize(
    "fails",
    [
        {"change_new": EngineCannotStart("the engine died")},
        {"change_new": PrepareError("no template")},
        {"choose_new": BadModel("the disk is full")},
        {"drain": RuntimeError("a bug")},
    ],
    ids=["engine", "prepare", "disk", "bug"],
)
async def test_former_model_comes_back_by_itself(fails: dict[str, Exception]) -> None:
    switch, stage = make_switch(**fails)
    switch.begin("new", BY)
    end = await end_of(switch)
    assert end.result == "returned"
    why = str(next(iter(fails.values())))
    assert end.why == (why if why != "a bug" else "the box failed on it (RuntimeError): its log "
                       "tells why")  # fmt: skip
    assert stage.model is OLD
    assert stage.done[-2:] == ["change_old", "back"]
    assert "choose_old" not in stage.done, "the selection is what it was"


async def test_box_gives_up_when_neither_model_comes() -> None:
    fails = {f"change_{name}": EngineCannotStart(f"no {name}") for name in ("new", "old")}
    switch, stage = make_switch(**fails)
    switch.begin("new", BY)
    end = await end_of(switch)
    assert end.result == "failed"
    assert "no new" in end.why
    assert "no old" in end.why
    assert stage.done[-1] == "give_up"


async def test_one_switch_at_a_time() -> None:
    switch, stage = make_switch()
    stage.held = {"test": asyncio.Event()}
    assert switch.begin("new", BY)
    assert not switch.begin("third", BY)
    await until_at(switch, "testing")
    stage.held["test"].set()
    assert (await end_of(switch)).target == "new"
    assert switch.begin("third", BY)
    assert (await end_of(switch)).source == "new"


@pytest.mark.parametrize("at", ["check", "test", "drain", "change_new", "choose_new"])
async def test_stop_of_the_box_ends_a_switch_wherever_it_is(at: str) -> None:
    switch, stage = make_switch()
    stage.held = {at: asyncio.Event()}
    switch.begin("new", BY)
    async with asyncio.timeout(30):
        while stage.done[-1:] != [at]:
            await asyncio.sleep(0)
    await switch.close()
    last = switch.state.last
    assert last is not None
    assert (switch.state.phase, last.result) == ("none", "stopped")
    assert "change_old" not in stage.done
    assert not switch.begin("new", BY), "nothing begins any more"


async def test_reading_a_large_file_ends_with_the_box() -> None:
    switch, stage = make_switch()
    tells: list[Tell] = []
    checked = stage.check

    async def check(name: str, tell: Tell) -> ModelFile:
        tells.append(tell)
        return await checked(name, tell)

    stage.check, stage.held = check, {"check": asyncio.Event()}  # type: ignore[method-assign]
    switch.begin("new", BY)
    async with asyncio.timeout(30):
        while not stage.done:
            await asyncio.sleep(0)
    state = switch.state
    assert (state.phase, state.done, state.total) == ("checking", 3, 10)
    await switch.close()
    with pytest.raises(BadModel, match="stops"):
        tells[0](4, 10)  # a thread cannot be cancelled, but it can be told


async def test_ledger_has_who_asked_and_how_it_ended() -> None:
    switch, stage = make_switch(test=EngineCannotStart("it died"))
    switch.begin("new", BY)
    await end_of(switch)
    asked, ended = stage.rows
    assert (asked.action, asked.target, asked.detail) == ("model.use", "new", {"from": "old"})
    assert (ended.action, ended.target) == ("model.kept", "new")
    assert (ended.detail["why"], ended.detail["sha256"]) == ("it died", OLD.sha256)
    for row in stage.rows:
        assert (row.key_name, row.operator) == ("admin", "Ada")


async def test_what_was_not_tried_beforehand_is_said() -> None:
    switch, stage = make_switch()
    stage.tested = Trial(note="it was not tried beforehand: no room")
    switch.begin("new", BY)
    end = await end_of(switch)
    assert (end.result, end.note) == ("switched", "it was not tried beforehand: no room")
