"""The second forecast of each request, once the model has read the prompt: when it is made, who is
told, and what is kept of the first one."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance import forecasts as module
from appliance.engine.commands import Sampling, Submit
from appliance.engine.reports import FIRST_LOGITS, FirstLogits
from appliance.engine.rows import first_tokens
from appliance.expected import Table
from appliance.outlook import Outlook
from tests.unit.api_box import Step, chat, client_of, ledger_of
from tests.unit.forecast_parts import Teller, forecasting, long_answer, question, signals
from tests.unit.forecasts_running import ended, row, running, settled
from tests.unit.step_parts import Loop
from tests.unit.test_signals import soft, soft_loop

CHAT = "/v1/chat/completions"
VALUES = np.linspace(-30, -1, FIRST_LOGITS).astype("<f4").tobytes()


def sharp() -> Teller:
    teller = Teller()
    teller.told = replace(teller.told, sharpens=True)
    return teller


# -- the engine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_first_logits_come_once_with_the_first_token(stream: bool) -> None:
    loop = soft_loop()
    loop.submit(max_tokens=20, sampling=Sampling(temperature=0.0, ignore_eos=True), stream=stream)
    loop.run()
    (event,) = loop.of(FirstLogits)
    row, tokens = soft(0), first_tokens(len(soft(0)))
    np.testing.assert_allclose(np.frombuffer(event.values, "<f4"), row[tokens] - row.max())
    assert (tokens[0], tokens[-1], len(tokens)) == (0, len(row) - 1, FIRST_LOGITS)


def test_choices_of_one_prompt_have_them_once_and_who_wants_no_signals_has_none() -> None:
    loop = Loop()
    loop.submit("many", n=3, max_tokens=9)
    loop.submit("none", max_tokens=9, signals=False)
    loop.run()
    assert [e.id for e in loop.events if isinstance(e, FirstLogits)] == ["many"]


# -- the daemon ----------------------------------------------------------------------------------


async def until(done: Any) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.001)


async def test_what_runs_is_forecast_anew_and_the_engine_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PENDING_S", 0.001)
    tables: list[Table] = []
    async with running(sharp()) as found:
        found.pressed = lambda: True
        outlook = found.outlook(question(), 1)
        found.begin(outlook, question(), tables.append)
        await until(lambda: tables)
        outlook.signal(FirstLogits("r", VALUES))
        await until(lambda: len(tables) == 2)
        assert (outlook.forecast.stage, outlook.forecast.p50) == (1, 107)
        assert outlook.now.p50 == 107
        assert outlook.first.p50 == 100, "what was told before it ran stays what it was"
        found.ended(outlook, row(20))


async def test_a_short_answer_gets_its_second_forecast_when_it_is_learned_from() -> None:
    teller = sharp()
    corrected: list[int] = []
    async with running(teller) as found:
        found.on_length = lambda told, length, cut: corrected.append(told.stage)
        outlook = found.outlook(question(), 1)
        found.begin(outlook, question())
        await settled(found)
        outlook.signal(FirstLogits("r", VALUES))
        outlook.event(ended(3))
        found.ended(outlook, row(3))
        await settled(found)
        await until(lambda: corrected)
    assert corrected == [1]
    ((forecast, length, censored),) = teller.taught
    assert (forecast.stage, forecast.at_first.p50, length, censored) == (1, 100, 3, False)
    assert teller.order == ["answer", "sharpen", "observe"]


async def test_a_forecaster_without_a_second_network_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PENDING_S", 0.001)
    teller = Teller()
    async with running(teller) as found:
        outlook = found.outlook(question(), 1)
        found.begin(outlook, question())
        outlook.signal(signals(8))
        outlook.signal(FirstLogits("r", VALUES))
        await until(lambda: teller.flights)
        assert "sharpen" not in teller.order
        found.ended(outlook, row(20))


async def test_scores_are_of_what_was_told_before_and_corrections_of_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PENDING_S", 0.001)
    scored: list[int] = []
    corrected: list[tuple[int, int]] = []
    async with running(sharp()) as found:
        found.on_end = lambda forecast, length: scored.append(forecast.stage)
        found.on_length = lambda told, length, cut: corrected.append(
            (told.stage, told.at_first.stage)
        )
        outlook = found.outlook(question(), 1)
        found.begin(outlook, question())
        await settled(found)
        outlook.signal(FirstLogits("r", VALUES))
        assert outlook.now.p50 == 100
        await until(lambda: outlook.forecast.stage)
        found.ended(outlook, row(20))
        await until(lambda: corrected)
    assert (scored, corrected) == ([0], [(1, 0)])


def test_a_refinement_goes_on_from_the_sharper_forecast() -> None:
    outlook = Outlook(Teller().says, n=1)
    outlook.made = Teller().says
    outlook.signal(signals(8))
    before = outlook.at(0)
    outlook.made = Teller().sharpen(outlook.made, VALUES)
    outlook.signal(signals(16))
    assert outlook.at(0).generated == 16 > before.generated


# -- clients -------------------------------------------------------------------------------------


def knowing(submit: Submit) -> list[Step]:
    begun, *rest = long_answer(submit)
    return [begun, FirstLogits(submit.id, VALUES), *rest]


@pytest.mark.parametrize("n", [1, 2])
async def test_who_asks_for_signals_gets_the_first_logits_with_the_first_choice(
    tmp_path: Path, n: int
) -> None:
    async with forecasting(tmp_path, sharp(), knowing) as box:
        asked = chat(n=n, return_signals=True)
        answer = (await client_of(box).post(CHAT, json=asked)).json()
        plain = await client_of(box).post(CHAT, json=chat())
    first, *others = answer["choices"]
    assert len(first["first_logits"]) == FIRST_LOGITS
    assert (first["first_logits"][0], first["first_logits"][-1]) == (-30.0, -1.0)
    assert not any("first_logits" in other for other in others)
    assert "first_logits" not in json.dumps(plain.json())


async def test_the_ledger_keeps_what_was_told_before_it_ran(tmp_path: Path) -> None:
    async with forecasting(tmp_path, sharp(), knowing) as box:
        await client_of(box).post(CHAT, json=chat())
    (entry,) = ledger_of(box).requests
    assert entry.forecast is not None
    assert entry.forecast["p50_tok"] == 100
