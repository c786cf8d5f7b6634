"""Dry runs, consoles and metrics of forecasts, with a scripted forecaster."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.api.box import Aboard, Box
from appliance.api.feed import Feed
from appliance.api.watch import Watch
from appliance.config import CostConfig, EngineConfig
from appliance.engine.commands import Submit
from appliance.engine.reports import Finished, Signals, SlotState, Started, Stats
from appliance.forecast.told import ForecasterSnapshot
from appliance.forecasts import Forecasts
from appliance.observe.metrics import Metrics
from appliance.outlook import Outlook
from tests.unit.api_box import (
    Step,
    chat,
    client_of,
    counts,
    ledger_of,
)
from tests.unit.forecast_parts import Teller, forecasting, long_answer, told

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"


# -- POST /v1/forecast -----------------------------------------------------------------------------


async def test_a_dry_run_tells_tokens_cost_and_time_and_generates_nothing(tmp_path: Path) -> None:
    cost = CostConfig(currency="EUR", device_price=31_557.6, device_life_years=1)
    async with forecasting(tmp_path, cost=cost) as box:
        box.forecasts.pace.add(
            prefill_ns=10**9, prefill_tokens=1000, decode_ns=10**9, completion_tokens=100
        )
        answer = await client_of(box).post("/v1/forecast", json=chat(max_tokens=400))
    assert answer.status_code == 200
    found = answer.json()
    rates = 0.001 / 1  # EUR a second of device time; utilisation adds idle time
    assert found["cost"].pop("currency") == "EUR"
    low, mid, high = found.pop("cost").values()
    assert 0 < low < mid < high
    assert mid >= rates * 1.0
    assert found == {
        "prompt_tokens": 2,
        "output_tokens": {"p10": 20, "p50": 100, "p90": 300, "p99": 450, "mean": 120},
        "confidence": 0.5,
        "claim": "confidence",
        "kv_tokens": 302,
        "queue_position": 0,
        "eta_ms": None,
        "forecaster": {"version": "v7", "state": "ok"},
    }
    assert ledger_of(box).rows == []
    supervisor: Any = box.supervisor
    assert supervisor.tickets == {}


async def test_a_dry_run_without_prices_costs_nothing_and_without_a_pace_is_unknown(
    tmp_path: Path,
) -> None:
    async with forecasting(tmp_path) as box:
        found = (await client_of(box).post("/v1/forecast", json=chat())).json()
        assert found["cost"] == {"low": 0.0, "mid": 0.0, "high": 0.0, "currency": "USD"}
    async with forecasting(tmp_path, cost=CostConfig(overhead_per_month=9)) as box:
        found = (await client_of(box).post("/v1/forecast", json=chat())).json()
        assert found["cost"] == {"low": None, "mid": None, "high": None, "currency": "USD"}


async def test_a_dry_run_of_completions_counts_every_prompt_and_choice(tmp_path: Path) -> None:
    async with forecasting(tmp_path) as box:
        body = {"prompt": ["abc", "de"], "n": 2}
        found = (await client_of(box).post("/v1/forecast", json=body)).json()
    assert found["prompt_tokens"] == 5
    assert found["kv_tokens"] == 5 + 4 * 300
    assert found["output_tokens"]["mean"] == 480
    assert found["confidence"] is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "x", **chat()}, "prompt"),
        (chat(max_tokns=3), "max_tokns"),
        (chat(n=99), "n"),
        ({"prompt": "x" * 600}, "prompt"),
        (chat(model="gpt-9"), "model"),
    ],
)
async def test_a_dry_run_refuses_what_the_request_itself_would_be_refused_for(
    tmp_path: Path, body: dict[str, Any], param: str
) -> None:
    async with forecasting(tmp_path) as box:
        answer = await client_of(box).post("/v1/forecast", json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


async def test_a_dry_run_tells_its_place_and_when_it_would_be_done(tmp_path: Path) -> None:
    async with forecasting(tmp_path, engine=EngineConfig(max_sequences=2)) as box:
        supervisor: Any = box.supervisor
        stats = Stats(
            prompt_tokens=100, prompt_seconds=1.0, predicted_tokens=100, predicted_seconds=2.0
        )
        supervisor.snapshot = msgspec.structs.replace(supervisor.snapshot, stats=stats)
        ask = client_of(box).post
        found = (await ask("/v1/forecast", json=chat())).json()
        assert found["eta_ms"] == 2 * 10 + 100 * 20  # prefill and decode, nobody before it
        first, _ = (submitted(box, name, started=True) for name in ("first", "second"))
        first.outlook.event(Finished("first", 0, "stop", "eos", "", counts(3, 9)))
        submitted(box, "waits", started=False)
        submitted(box, "batch", started=False, priority=1)
        found = (await ask("/v1/forecast", json=chat())).json()
        assert found["queue_position"] == 1
        # "waits" takes the first one's place at once, then ours is that of the second.
        assert found["eta_ms"] == 100 * 20 + 2 * 10 + 100 * 20


def submitted(box: Box, id: str, *, started: bool, priority: int = 0) -> Any:
    """A request in the queue, or one that runs."""
    supervisor: Any = box.supervisor
    ticket = supervisor.submit(Submit(id=id, prompt=(1, 2, 3), max_tokens=512, priority=priority))
    ticket.started_at = time.monotonic() if started else None
    outlook = Outlook(told())
    box.aboard[id] = Aboard("k", "t", "", "default", outlook)
    queue = supervisor.queue
    runs, waits = queue.running + started, queue.waiting + (not started)
    supervisor.queue = msgspec.structs.replace(queue, running=runs, waiting=waits)
    return box.aboard[id]


# -- consoles and metrics --------------------------------------------------------------------------


async def test_slots_and_rows_tell_what_is_expected_by_now(tmp_path: Path) -> None:
    def script(submit: Submit) -> Sequence[Step]:
        started = Started(submit.id, time.monotonic(), 0)
        return [started, Signals(submit.id, 0, 304, -3.0, 1.0, -1.0), 30.0]

    async with forecasting(tmp_path, script=script, cost=CostConfig(overhead_per_month=9)) as box:
        asking = asyncio.create_task(client_of(box).post(CHAT, json=chat(stream=True)))
        supervisor: Any = box.supervisor
        async with asyncio.timeout(30):
            while not any(one.outlook and one.outlook.generated for one in box.aboard.values()):
                await asyncio.sleep(0.001)
        id = next(iter(box.aboard))
        slot = SlotState(0, id, 0, "decode", 2, 2, 0, 304, 500)
        supervisor.snapshot = msgspec.structs.replace(supervisor.snapshot, slots=(slot,))
        found = (await client_of(box).get("/slots")).json()[0]["forecast"]
        assert 304 < found["p10"] <= found["p50"] <= found["p90"]
        assert (found["first_p50"], found["version"]) == (100, "v7")
        watch = Watch(box)
        (row,) = watch.rows(time.monotonic(), time.time()).requests
        assert (row.p50_tok, row.first_p50_tok, row.fc) == (found["p50"], 100, "net")
        assert row.cost is None  # nothing has ended yet: no pace
        supervisor.last.cancel()
        await asking
        await Feed(watch).close()


async def test_consoles_are_told_which_forecaster_it_is_and_how_it_does(tmp_path: Path) -> None:
    teller = Teller()
    teller.told = ForecasterSnapshot(
        version="v7",
        state="uncalibrated",
        provider="CPUExecutionProvider",
        precision="int8",
        encoder="token-mean",
        skill=0.61,
        coverage=0.8,
        pinball=12.345,
        bias=0.1,
        encode_ms=(0.1, 0.2),
        answer_ms=(0.3, 0.4),
        answered=5,
        observed=5,
        problem="bounds held for 80 % only: steelyard calibrate",
    )
    async with forecasting(tmp_path, teller) as box:
        watch = Watch(box)
        now, wall = time.monotonic(), time.time()
        for later in (0, 10):
            watch.look(now + later, wall + later)
        live, state = watch.live(now, wall), watch.state(now, wall)
        assert (live.forecaster, live.forecast_state, live.coverage_pct) == (
            "v7 CPU INT8",
            "uncalibrated",
            80.0,
        )
        assert "forecast" in live.degraded.split(",")
        assert state.forecaster is not None
        assert (state.forecaster.skill, state.forecaster.answer_p99_ms) == (0.61, 0.4)
        (alarm,) = [alarm for alarm in state.alarms if alarm.id == "degraded:forecast"]
        assert (alarm.screen, alarm.prio) == (3, 2)
        assert "steelyard calibrate" in alarm.text
        step = next(step for step in state.setup if step.step == "forecaster")
        assert step.state == "todo"
        await Feed(watch).close()


async def test_metrics_tell_loss_coverage_bias_and_version(tmp_path: Path) -> None:
    teller = Teller(told(p10=10, p50=20, p90=30, p99=40))
    teller.told = ForecasterSnapshot(version="v7", state="ok", coverage=0.91, bias=0.05, observed=9)
    async with forecasting(tmp_path, teller, long_answer) as box:
        metrics = Metrics(version="0", llama_commit="c", model="m", forecasts=box.forecasts)
        await client_of(box).post(CHAT, json=chat())
        text = metrics.text().decode()
    assert 'steelyard_forecast_info{encoder="",precision="",provider="",state="ok"' in text
    assert 'version="v7"} 1.0' in text
    assert 'steelyard_forecast_pinball_loss{quantile="0.5"} 2.0' in text
    assert 'steelyard_forecast_pinball_loss{quantile="0.1"} 0.6' in text
    assert "steelyard_forecast_coverage_ratio 0.91" in text
    assert "steelyard_forecast_bias_ratio 0.05" in text
    assert "steelyard_forecast_failures_total 0.0" in text
    assert "steelyard_forecast_seconds_count 1.0" in text


async def test_there_are_no_metrics_of_forecasts_while_they_are_off() -> None:
    metrics = Metrics(version="0", llama_commit="c", model="m", forecasts=Forecasts())
    assert "steelyard_forecast" not in metrics.text().decode()
