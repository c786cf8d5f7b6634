"""Calibrating from the console: who may, what runs, what is recorded."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.accounts.keys import FILE_NAME
from appliance.api.app import create_app
from appliance.api.calibrating import Calibrating
from appliance.api.calibration_shapes import CalibrationDone, Forecasters, Scatter
from appliance.calibrate.status import Status, StatusFiles
from appliance.config import Config, ForecastConfig, ServerConfig
from appliance.frames import Job
from appliance.ledger.rows import Action
from appliance.ledger.writer import Ledger
from tests.unit.api_box import client_of, ledger_of, make_box
from tests.unit.ledger_parts import request

CHILD = """
import signal, sys, time
from pathlib import Path
from appliance.calibrate.status import Status, StatusFiles
files = StatusFiles(Path(sys.argv[1]))
with files.take():
    files.wish("go")
    files.write(Status(state="running", phase="generate", done=3, total=9, eta_ms=4000))
    while files.wished != "stop":
        time.sleep(0.01)
    files.write(Status(state="stopped", done=3, total=9))
"""
DIES = "import sys; sys.exit('the model is gone: put it back')"


class Desk:
    """An operator at a box whose calibration is a script."""

    def __init__(self, tmp_path: Path, program: str = CHILD, **changes: Any) -> None:
        self.box = make_box(tmp_path, **changes)
        self.app = create_app(self.box)
        self.client = client_of(self.box, self.app)
        self.headers = {"X-Api-Key": self.box.keys.create("alice", ["admin"]), "X-Operator": "bob"}
        command = (sys.executable, "-c", program, str(tmp_path))
        self.calibrating = self.app.state.feed.watch.calibrating
        self.calibrating._command = command
        self.files = StatusFiles(tmp_path)

    async def get(self, path: str) -> Any:
        return await self.client.get(path, headers=self.headers)

    async def act(self, action: str) -> Any:
        path = "/admin/calibration"
        return await self.client.post(path, json={"action": action}, headers=self.headers)

    async def until(self, state: str) -> Status:
        async with asyncio.timeout(20):
            while (found := self.files.read()).state != state or self.calibrating._task:
                if found.state == state == "running":
                    break
                await asyncio.sleep(0.01)
        return found


@asynccontextmanager
async def at_desk(tmp_path: Path, program: str = CHILD, **changes: Any) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, program, **changes)
    try:
        yield desk
    finally:
        await desk.app.state.feed.close()


def actions(desk: Desk) -> list[str]:
    return [row.action for row in ledger_of(desk.box).rows if isinstance(row, Action)]


async def test_a_calibration_is_started_held_resumed_and_stopped_and_each_is_recorded(
    tmp_path: Path,
) -> None:
    async with at_desk(tmp_path) as desk:
        answer = await desk.act("start")
        assert answer.status_code == 200, answer.text
        assert msgspec.json.decode(answer.content, type=CalibrationDone).status == "started"
        await desk.until("running")
        assert (await desk.act("start")).json()["error"]["code"] == "calibration_runs"
        for action, wished in (("hold", "hold"), ("resume", "go"), ("stop", "stop")):
            assert (await desk.act(action)).status_code == 200
            assert desk.files.wished == wished
        await desk.until("stopped")
        assert actions(desk)[-4:] == [
            "calibration.start", "calibration.hold", "calibration.resume", "calibration.stop",
        ]  # fmt: skip
        assert (await desk.get("/admin/calibration")).json()["state"] == "stopped"


async def test_what_runs_is_a_job_of_the_state_frame(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        await desk.act("start")
        await desk.until("running")
        desk.calibrating.look(0.0)
        assert desk.app.state.feed.watch.state(0.0, 0.0).jobs == (
            Job(kind="calibrate", phase="generate", done=3, total=9, eta_ms=4000),
        )


async def test_the_end_of_the_box_ends_what_it_began(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        await desk.act("start")
        await desk.until("running")
    assert not desk.files.running


async def test_one_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    async with at_desk(tmp_path, DIES) as desk:
        await desk.act("start")
        found = await desk.until("failed")
        assert found.problem == "the model is gone: put it back"


async def test_nothing_to_hold_is_a_clear_refusal(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        for action in ("hold", "resume", "stop"):
            answer = await desk.act(action)
            assert answer.status_code == 400
            assert "no calibration runs" in answer.json()["error"]["message"]
        assert (await desk.act("explode")).status_code == 400


async def test_only_an_operator_may(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        desk.headers = {"X-Api-Key": desk.box.keys.create("app", ["infer"])}
        assert (await desk.act("start")).status_code == 403
        assert (await desk.get("/admin/forecasters")).status_code == 403


async def test_a_box_without_forecasters_lists_none_and_names_the_remedy(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        found = await desk.get("/admin/forecasters")
        assert msgspec.json.decode(found.content, type=Forecasters) == Forecasters("", ())
        for path in ("v0001/report", "x/report"):
            answer = await desk.get(f"/admin/forecasters/{path}")
            assert answer.status_code == 404
            assert "GET /admin/forecasters lists them" in answer.json()["error"]["message"]


async def test_scatter_tells_what_came_of_forecasts_newest_first(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / FILE_NAME)
    for number, told in enumerate([{"p50_tok": 7}, None, {"p50_tok": "x"}, {"p50_tok": 4}], 1):
        ledger.record(request(number, forecast=told), None)
    assert ledger.flush(20)
    async with at_desk(tmp_path) as desk:
        object.__setattr__(desk.box, "ledger", ledger)
        found = await desk.get("/admin/forecasters/scatter")
        points = msgspec.json.decode(found.content, type=Scatter).points
        assert [(point.forecast, point.actual, point.cut) for point in points] == [
            (4, 5, 0), (7, 5, 0),
        ]  # fmt: skip
    ledger.close()


# -- by the clock --------------------------------------------------------------------------------


class Counting(Calibrating):
    def __init__(self, config: Config) -> None:
        super().__init__(config, "ab" * 32)
        self.begun = 0

    def start(self, by: str, *, unattended: bool = False) -> bool:
        assert unattended
        self.begun += 1
        return True


def at(day: int, hour: int, minute: int) -> float:
    return datetime(2026, 11, day, hour, minute).timestamp()


@pytest.mark.parametrize(
    ("moments", "begun"),
    [
        ([at(1, 2, 29)], 0),
        ([at(1, 2, 30), at(1, 2, 30), at(1, 2, 59)], 1),
        ([at(1, 3, 20)], 1),
        ([at(1, 5, 0)], 0),
        ([at(1, 2, 30), at(2, 2, 29), at(2, 2, 31)], 2),
    ],
)
async def test_it_begins_once_a_day_at_the_hour(
    tmp_path: Path, moments: list[float], begun: int
) -> None:
    config = Config(
        server=ServerConfig(state_dir=tmp_path), forecast=ForecastConfig(calibrate_at="02:30")
    )
    calibrating = Counting(config)
    for wall in moments:
        calibrating.look(wall)
    assert calibrating.begun == begun
    off = Counting(replace(config, forecast=ForecastConfig()))
    off.look(at(1, 2, 30))
    assert off.begun == 0


async def test_the_order_carries_the_box_s_own_settings(tmp_path: Path) -> None:
    forecast = ForecastConfig(calibrate_prompts="/p.jsonl", calibrate_minutes=7)
    config = Config(server=ServerConfig(state_dir=tmp_path, port=0), forecast=forecast)
    calibrating = Calibrating(config, "ab" * 32)
    calibrating.url = "http://127.0.0.1:4711"
    order = calibrating._order("clock", unattended=True)
    text = " ".join(order)
    assert "--url http://127.0.0.1:4711" in text
    assert "--prompts /p.jsonl" in text
    assert "--minutes 7 --min-new 200" in text
    file = Path(order[order.index("--config") + 1])
    assert "calibrate_minutes = 7" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


async def test_another_forecaster_in_use_is_gone_over_to_once(tmp_path: Path) -> None:
    told: list[int] = []
    config = Config(server=ServerConfig(state_dir=tmp_path))
    calibrating = Calibrating(config, "ab" * 32, lambda: told.append(1))
    calibrating.look(0.0)
    pointer = tmp_path / "forecasters" / ("ab" * 6) / "current"
    pointer.parent.mkdir(parents=True)
    pointer.write_text("v0001")
    calibrating.look(0.0)
    calibrating.look(0.0)
    assert told == [1]
    new = pointer.with_name("new")
    new.write_text("v0002")
    new.replace(pointer)
    calibrating.changed()
    calibrating.look(0.0)
    assert told == [1, 1]
