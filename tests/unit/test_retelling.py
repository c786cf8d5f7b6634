"""What the engine is told again while an answer runs: what moved far, and where it helps."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.engine.reports import Counts, Finished, Signals
from appliance.expected import Table, table_of
from appliance.forecast.hazard import Lengths
from appliance.forecasts import Forecasts
from appliance.outlook import RETOLD, Outlook
from tests.unit.forecast_parts import EVEN, Teller, question, told

COUNTS = Counts(3, 0, 64, 0, 0, 0, 0.0, 0.0, 0.0, 1)


class Heard:
    """An outlook of which the engine knows, and what it is told."""

    def __init__(self, n: int = 1) -> None:
        self.outlook = Outlook(told(p50=100, p90=300), n=n)
        self.tables: list[Table] = []
        self.outlook.tell = self.tables.append
        table = table_of(EVEN)
        assert table is not None
        self.outlook.told(table)

    def run(self, tokens: int) -> "Heard":
        """The answer goes on, with nothing in it that points to its end."""
        for at in range(8, tokens + 1, 8):
            self.outlook.signal(Signals("r", 0, at, -9.0, 1.0, -1.0))
        self.outlook.retell()
        return self


def test_engine_learns_that_an_answer_outlives_its_forecast() -> None:
    heard = Heard().run(400)
    assert len(heard.tables) == 2
    assert heard.tables[1].tokens[0] == 400
    assert heard.tables[1].survival[0] == 1.0


def test_what_has_hardly_moved_is_not_told_again() -> None:
    heard = Heard().run(400)
    heard.outlook.retell()
    heard.run(408)
    assert len(heard.tables) == 2


def test_few_signals_are_not_worth_a_look() -> None:
    heard = Heard().run(8 * (RETOLD - 1))
    assert len(heard.tables) == 1
    assert heard.outlook._choices[0].unread, "they wait for somebody to look"


def test_answers_of_several_choices_are_told_once() -> None:
    assert len(Heard(n=2).run(400).tables) == 1


def test_answer_that_has_ended_is_told_no_more() -> None:
    heard = Heard()
    for at in range(8, 401, 8):
        heard.outlook.signal(Signals("r", 0, at, -9.0, 1.0, -1.0))
    heard.outlook.event(Finished("r", 0, "stop", "eos", "", COUNTS))
    heard.outlook.retell()
    assert len(heard.tables) == 1


async def begun(teller: Teller) -> tuple[Forecasts, list[Table], Outlook]:
    found = Forecasts(lambda: teller)
    found.start()
    assert await found.opened(10)
    tables: list[Table] = []
    outlook = found.outlook(question(), 1)
    found.begin(outlook, question(), tables.append)
    await outlook.within(10)
    return found, tables, outlook


async def test_forecast_is_told_once_it_is_made() -> None:
    found, tables, _ = await begun(Teller())
    async with asyncio.timeout(10):
        while not tables:
            await asyncio.sleep(0.001)
    assert tables == [table_of(EVEN)]
    await found.close()


async def test_forecast_of_all_requests_alike_is_not_told_of_each() -> None:
    found, tables, _ = await begun(Teller(told(state="global")))
    await asyncio.sleep(0)
    await found.close()
    assert tables == []
    assert found.usual.tokens


async def test_forecast_that_is_none_is_counted_and_not_told() -> None:
    broken = replace(told(), lengths=Lengths(np.full(24, math.nan)))
    found, tables, outlook = await begun(Teller(broken))
    await found.close()
    assert tables == []
    assert math.isfinite(found.last_nan)
    assert outlook.forecast is broken


@pytest.mark.parametrize("pressed", [True, False])
async def test_engine_is_told_again_only_while_requests_wait(pressed: bool) -> None:
    found: Any = Forecasts()
    found.pressed = lambda: pressed
    heard = Heard()
    for at in range(8, 401, 8):
        heard.outlook.signal(Signals("r", 0, at, -9.0, 1.0, -1.0))
    found._live.add(heard.outlook)
    found._retell()
    assert len(heard.tables) == 1 + pressed
