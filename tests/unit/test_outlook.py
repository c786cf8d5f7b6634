"""What is told of one request while it runs, from its forecast and its own signals."""

import asyncio
from dataclasses import replace
from typing import Any

from appliance.engine.reports import Delta
from appliance.outlook import Band, Outlook, together
from tests.unit.forecast_parts import signals, told
from tests.unit.forecasts_running import ended


def test_one_answer_is_told_as_it_was_forecast_and_several_as_their_sum() -> None:
    one = Band(20, 100, 300, 450, 120)
    assert together([one]) == one
    many = together([one] * 4)
    assert many.mean == 480
    assert 4 * 20 < many.p10 < many.p50 < many.mean < many.p90 < 4 * 300
    assert many.p90 - many.mean == 2 * (300 - 120)


def test_a_running_answer_is_expected_to_go_on_and_an_ended_one_is_known() -> None:
    outlook = Outlook(told(), n=2)
    assert outlook.kind == "net"
    outlook.event(Delta("r", 0, "Hello. ", (1, 2)))
    outlook.signal(signals(304))
    found = outlook.at(0)
    assert found.generated == 304
    assert 304 < found.p10 <= found.p50 <= found.p90 <= 512
    assert outlook.at(1).p50 == 100
    assert outlook.left(0) == found.p50 - 304
    outlook.event(ended(310))
    outlook.event(ended(40, choice=1))
    assert outlook.now == Band.exactly(350)
    assert outlook.first.p50 == together([Band.of(told())] * 2).p50


def test_a_limit_is_never_exceeded_by_what_is_expected() -> None:
    outlook = Outlook(told(p10=3, p50=8, p90=10, p99=10, mean=7, most=10))
    outlook.signal(signals(8))
    assert outlook.at(0).p90 <= 10


def test_a_refinement_that_fails_leaves_the_forecast_and_the_request() -> None:
    outlook = Outlook(replace(told(), lengths=None))  # type: ignore[arg-type]
    outlook.signal(signals(8))
    outlook.signal(signals(16))
    assert outlook.at(0).p50 == 100
    assert outlook.generated == 16


def test_the_ledger_gets_the_forecast_and_how_it_was_refined() -> None:
    outlook = Outlook(told())
    for generated in range(8, 200, 8):
        outlook.signal(signals(generated))
        assert outlook.at(0).generated == generated, "somebody looks"
    kept = outlook.row()
    assert {name: kept[name] for name in ("version", "state", "p10_tok", "p50_tok", "p90_tok")} == {
        "version": "v7", "state": "ok", "p10_tok": 20, "p50_tok": 100, "p90_tok": 300,
    }  # fmt: skip
    assert (kept["p99_tok"], kept["mean_tok"], kept["confidence"]) == (450, 120, 0.5)
    assert [generated for generated, _ in kept["at_end"]] == [8, 16, 32, 64, 128]
    assert all(median > generated for generated, median in kept["at_end"])


def test_what_nobody_looked_at_was_not_refined_and_looking_late_tells_the_same() -> None:
    watched, unwatched = Outlook(told()), Outlook(told())
    for generated in range(8, 200, 8):
        for one in (watched, unwatched):
            one.signal(signals(generated))
        _ = watched.now
    assert unwatched.row()["at_end"] == []
    assert unwatched.at(0) == watched.at(0)


async def test_a_forecast_that_comes_late_is_still_taken() -> None:
    outlook = Outlook(replace(told(p50=60), state="global", version=""))
    coming: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    outlook.follow(coming)
    outlook.signal(signals(8))
    assert outlook.kind == "global"
    outlook.made = told(p50=90)
    coming.set_result(outlook.made)
    await outlook.within(1)
    assert (outlook.kind, outlook.first.p50) == ("net", 90)
    outlook.signal(signals(16))
    assert outlook.at(0).p50 > 16
