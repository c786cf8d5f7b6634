"""Forecasts on the generating routes, with a scripted forecaster."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from appliance.api import flight
from appliance.engine.commands import Submit
from appliance.engine.reports import Signals
from tests.unit.api_box import (
    Step,
    chat,
    client_of,
    events_of,
    ledger_of,
    make_box,
)
from tests.unit.forecast_parts import Teller, forecasting, long_answer, told

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecasts are in time, however slow the machine is."""
    monkeypatch.setattr(flight, "HEADER_WAIT_S", 10.0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, chat()), (TEXT, {"prompt": "hi"}), (NATIVE, {"prompt": "hi"})]
)
async def test_every_generating_route_tells_the_forecast_in_its_headers(
    tmp_path: Path, path: str, body: dict[str, Any], stream: bool
) -> None:
    async with forecasting(tmp_path) as box:
        answer = await client_of(box).post(path, json={**body, "stream": stream})
    assert answer.status_code == 200
    assert answer.headers["X-Forecast-Tokens"] == "100"
    assert answer.headers["X-Forecast-Range"] == "20-300"


async def test_a_forecaster_that_is_late_holds_up_nothing_and_a_header_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "HEADER_WAIT_S", 0.001)
    teller = Teller()
    teller.gate = threading.Event()
    async with forecasting(tmp_path, teller) as box:
        answer = await client_of(box).post(CHAT, json=chat())
        teller.gate.set()
    assert answer.status_code == 200
    assert int(answer.headers["X-Forecast-Tokens"]) > 0
    assert answer.headers["X-Forecast-Tokens"] != "100"


async def test_a_broken_forecaster_stops_no_answer(tmp_path: Path) -> None:
    teller = Teller()
    teller.fault = RuntimeError("NaN everywhere")
    async with forecasting(tmp_path, teller) as box:
        answer = await client_of(box).post(CHAT, json=chat())
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert ledger_of(box).requests[0].forecast is not None


async def test_several_choices_are_forecast_together_as_their_usage_is_told(tmp_path: Path) -> None:
    async with forecasting(tmp_path) as box:
        answer = await client_of(box).post(CHAT, json=chat(n=3))
    assert 3 * 100 < int(answer.headers["X-Forecast-Tokens"]) <= 3 * 120


async def test_the_question_has_what_a_forecast_is_made_from(tmp_path: Path) -> None:
    teller = Teller()
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "你好"}]
    more: dict[str, Any] = {"temperature": 0.1, "top_p": 0.5, "max_tokens": 33}
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    async with forecasting(tmp_path, teller) as box:
        ask = client_of(box).post
        await ask(CHAT, json={"messages": turns, **more, "response_format": form})
        await ask(TEXT, json={"prompt": "hello"})
        await ask(CHAT, json=chat(response_format={"type": "json_object"}))
        await ask(NATIVE, json={"prompt": "x", "grammar": "root ::= [a-z]"})
    first, second, third, fourth = teller.asked
    assert [(turn.role, turn.text) for turn in first.turns] == [
        ("system", "be brief"),
        ("user", "你好"),
    ]
    assert (first.route, first.max_tokens, first.temperature, first.top_p) == ("chat", 33, 0.1, 0.5)
    assert first.prompt == tuple("be brief你好".encode())
    assert (second.route, second.turns[0].text) == ("completion", "hello")
    assert [q.format for q in (first, second, third, fourth)] == [
        "schema",
        "text",
        "json",
        "grammar",
    ]


async def test_the_engine_has_the_request_before_its_forecast_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def noted(of: Any, name: str) -> None:
        real = getattr(of, name)

        def call(*args: Any) -> Any:
            order.append(name)
            return real(*args)

        monkeypatch.setattr(of, name, call)

    async with forecasting(tmp_path) as box:
        noted(box.supervisor, "submit")
        noted(box.forecasts, "begin")
        await client_of(box).post(TEXT, json={"prompt": ["a", "b"]})
    assert order == ["submit", "submit", "begin", "begin"]


# -- what is asked for -----------------------------------------------------------------------------


async def test_a_stream_tells_the_forecast_whenever_it_has_changed(tmp_path: Path) -> None:
    async with forecasting(tmp_path, Teller(told(p10=2, p50=3, p90=4)), long_answer) as box:
        body = chat(stream=True, return_forecast=True)
        answer = await client_of(box).post(CHAT, json=body)
    *found, _ = events_of(answer.text)
    told_ = [event["forecast"] for event in map(json.loads, found) if "forecast" in event]
    assert told_[0] == {"index": 0, "generated": 0, "p10": 2, "p50": 3, "p90": 4}
    assert [one["generated"] for one in told_] == [0, 8]
    assert told_[1]["p10"] > 8


async def test_a_stream_without_the_wish_tells_no_forecast(tmp_path: Path) -> None:
    async with forecasting(tmp_path, script=long_answer) as box:
        answer = await client_of(box).post(CHAT, json=chat(stream=True))
    assert "forecast" not in answer.text
    assert "signals" not in answer.text


@pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (TEXT, {"prompt": "hi"})])
async def test_a_whole_answer_tells_what_was_forecast_and_what_it_came_to(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    async with forecasting(tmp_path, script=long_answer) as box:
        answer = await client_of(box).post(path, json={**body, "return_forecast": True})
    assert answer.json()["forecast"] == {"generated": 16, "p10": 20, "p50": 100, "p90": 300}


@pytest.mark.parametrize("forecasts", [True, False])
async def test_signals_come_with_each_choice_when_asked_for(
    tmp_path: Path, forecasts: bool
) -> None:
    async with forecasting(tmp_path, script=long_answer) as box:
        if not forecasts:
            box = make_box(tmp_path, long_answer)
        ask = client_of(box).post
        whole = (await ask(CHAT, json=chat(n=2, return_signals=True))).json()
        text = (await ask(TEXT, json={"prompt": "hi", "return_signals": True})).json()
        native = (await ask(NATIVE, json={"prompt": "hi", "return_signals": True})).json()
        streamed = await ask(CHAT, json=chat(stream=True, return_signals=True))
    wanted = [[8, -7.0, 1.5, -0.25], [16, -15.0, 1.5, -0.25]]
    assert [choice["signals"] for choice in whole["choices"]] == [wanted, wanted]
    assert text["choices"][0]["signals"] == native["signals"] == wanted
    (last,) = [e for e in map(json.loads, events_of(streamed.text)[:-1]) if "signals" in str(e)]
    assert last["choices"][0]["signals"] == wanted
    assert last["choices"][0]["finish_reason"] == "stop"


async def test_the_engine_sends_no_signals_that_nobody_hears(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    await client_of(box).post(CHAT, json=chat())
    supervisor: Any = box.supervisor
    assert supervisor.last.request.signals is False


async def test_a_signal_without_an_end_token_can_be_said_in_json(tmp_path: Path) -> None:
    def script(submit: Submit) -> Sequence[Step]:
        begun, *rest = long_answer(submit)
        return [begun, Signals(submit.id, 0, 8, -float("inf"), 0.0, 0.0), *rest]

    async with forecasting(tmp_path, script=script) as box:
        answer = await client_of(box).post(CHAT, json=chat(return_signals=True))
    assert answer.json()["choices"][0]["signals"][0] == [8, -9999.0, 0.0, 0.0]


# -- the ledger, and what is learned ---------------------------------------------------------------


async def test_the_final_row_has_the_forecast_beside_what_it_came_to(tmp_path: Path) -> None:
    teller = Teller()
    async with forecasting(tmp_path, teller, long_answer) as box:
        await client_of(box).post(CHAT, json=chat())
    (row,) = ledger_of(box).requests
    assert row.forecast is not None
    assert row.forecast["version"] == "v7"
    assert (row.forecast["p10_tok"], row.forecast["p50_tok"], row.forecast["p90_tok"]) == (
        20,
        100,
        300,
    )
    assert row.forecast["at_end"] == [], "nobody looked"
    assert row.completion_tokens == 16


async def test_a_refused_request_is_neither_forecast_nor_learned_from(tmp_path: Path) -> None:
    teller = Teller()
    async with forecasting(tmp_path, teller) as box:
        answer = await client_of(box).post(CHAT, json=chat(n=99))
        assert answer.status_code == 400
    assert (teller.asked, teller.taught) == ([], [])


# -- off -------------------------------------------------------------------------------------------


async def test_while_forecasts_are_off_all_else_works(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    ask = client_of(box).post
    answer = await ask(CHAT, json=chat())
    assert answer.status_code == 200
    assert "X-Forecast-Tokens" not in answer.headers
    assert ledger_of(box).requests[0].forecast is None
    refused = await ask("/v1/forecast", json=chat())
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "forecast_off")
    assert "forecast.enabled" in refused.json()["error"]["message"]
    wish = await ask(CHAT, json=chat(return_forecast=True))
    assert (wish.status_code, wish.json()["error"]["param"]) == (400, "return_forecast")
