"""The thread of forecasts: what asks never waits for it, and what fails there stays there."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from appliance import forecasts as module
from appliance.forecast.forecaster import NO_FORECASTER
from appliance.forecasts import Forecasts
from appliance.ledger.lengths import Ended, Past
from appliance.outlook import Band
from appliance.rough import Rough
from tests.unit.forecast_parts import Teller, question, signals, told
from tests.unit.forecasts_running import row, running, settled


async def test_a_forecast_comes_from_the_thread() -> None:
    teller = Teller(told(p50=77))
    async with running(teller) as found:
        assert (await found.ask(question(max_tokens=9))).p50 == 77
    assert teller.asked[0].max_tokens == 9


async def test_a_request_has_a_rough_estimate_until_its_own_forecast_is_made() -> None:
    teller = Teller(told(p50=77))
    teller.gate = threading.Event()
    async with running(teller) as found:
        outlook = found.outlook(question(), 1)
        found.begin(outlook, question())
        await outlook.within(0.01)
        assert outlook.forecast.state == "global"
        assert 1 <= outlook.first.p10 <= outlook.first.p50 <= outlook.first.p90 <= 512
        teller.gate.set()
        await outlook.within(10)
        assert (outlook.forecast.version, outlook.first.p50) == ("v7", 77)


async def test_a_forecaster_that_raises_gives_the_rough_estimate_and_is_counted() -> None:
    teller = Teller()
    async with running(teller) as found:
        teller.fault = RuntimeError("no")
        assert (await found.ask(question())).state == "global"
        await settled(found)
        assert found.failed == 1
        teller.fault = None
        assert (await found.ask(question())).version == "v7"


async def test_a_forecaster_that_cannot_be_opened_degrades_the_box_and_forecasts_go_on() -> None:
    def make() -> Teller:
        raise OSError("no such file")

    found = Forecasts(make)
    found.start()
    assert await found.opened(10)
    assert (await found.ask(question())).state == "global"
    assert "could not be opened" in found.degraded
    await found.close()


def test_the_mean_of_a_rough_estimate_is_near_that_of_its_distribution() -> None:
    found = Rough()
    for length in (5, 30, 30, 80, 200, 700):
        found.observe(length, censored=False)
    for most in (1, 7, 64, 512, 4096):
        told_ = found.forecast(question(max_tokens=most), "ok")
        exact = told_.lengths.mean(most)
        assert told_.p10 <= most
        assert abs(told_.mean - exact) <= 1 + 0.03 * exact
    assert found.forecast(question(max_tokens=0), "ok").mean == 0


async def test_an_answer_that_must_not_end_is_forecast_at_its_limit_and_teaches_nothing() -> None:
    teller = Teller()
    async with running(teller) as found:
        asked = question(ignore_eos=True, max_tokens=40)
        outlook = found.outlook(asked, 1)
        found.begin(outlook, asked)
        await outlook.within(10)
        assert outlook.first == Band.exactly(40)
        outlook.signal(signals(8))
        assert (outlook.at(0).p10, outlook.at(0).p90) == (40, 40)
        found.ended(outlook, row(40, stop_type="limit"))
        await settled(found)
        assert (teller.asked, teller.taught, found.skipped) == ([], [], 0)


async def test_too_many_waiting_forecasts_are_skipped_and_counted() -> None:
    teller = Teller()
    teller.gate = threading.Event()
    async with running(teller) as found:
        asked = [found.ask(question()) for _ in range(module.MOST_WAITING + 3)]
        assert [future.done() for future in asked[-3:]] == [True, True, True]
        assert not asked[-4].done()
        assert found.skipped == 3
        teller.gate.set()
        await asyncio.gather(*asked)
        assert (await found.ask(question())).version == "v7"


async def test_forecasts_go_before_lessons_and_lessons_before_memories() -> None:
    teller = Teller()
    teller.gate = threading.Event()
    past = iter([Past(1, (Ended((1, 2), 9, False),), 0, 0, 0, 0)])
    async with running(teller, lambda: past) as found:
        outlook = found.outlook(question(), 1)
        blocked = found.ask(question())
        found.ended(outlook, row(5))
        last = found.ask(question())
        teller.gate.set()
        await asyncio.gather(blocked, last)
        await settled(found)
    answers = [n for n, what in enumerate(teller.order) if what == "answer"]
    assert max(answers) < teller.order.index("observe")
    assert teller.remembered == [((1, 2), 9, False)]


async def test_each_choice_is_a_lesson_censored_unless_the_model_ended_it() -> None:
    teller = Teller()
    async with running(teller) as found:
        for kind in ("eos", "limit", "word", "none"):
            outlook = found.outlook(question(), 2)
            found.begin(outlook, question())
            await outlook.within(10)
            found.ended(outlook, row(7, 11, stop_type=kind))
        await settled(found)
    lessons = [(length, censored) for _, length, censored in teller.taught]
    assert lessons == [(7, False), (11, False), *[(7, True), (11, True)] * 3]
    assert {forecast.version for forecast, _, _ in teller.taught} == {"v7"}


async def test_what_a_crash_cut_short_teaches_nothing() -> None:
    teller = Teller()
    async with running(teller) as found:
        found.ended(found.outlook(question(), 1), row(7, recovered=True))
        found.ended(found.outlook(question(), 1), row(7, exact=False))
        found.ended(found.outlook(question(), 1), row(0))
        await settled(found)
    assert teller.taught == []


async def test_scores_count_answers_that_came_to_their_end_or_their_limit() -> None:
    scored: list[int] = []
    async with running(Teller()) as found:
        found.on_end = lambda forecast, length: scored.append(length)
        for length, kind in ((5, "eos"), (6, "limit"), (7, "word"), (8, "none")):
            found.ended(found.outlook(question(), 1), row(length, stop_type=kind))
    assert scored == [5, 6]


async def test_the_rough_estimate_learns_from_the_ledger_and_from_what_ends() -> None:
    past = (Past(n, (Ended((1,), 900, False),), 10, 1, 1800, 900) for n in range(300))
    async with running(Teller(), lambda: past) as found:
        before = Rough().forecast(question(max_tokens=4096), "global").p50
        await settled(found)
        after = found.rough(question(max_tokens=4096)).p50
        assert before < 400 < after
        assert found.pace.decode(100) == 200


async def test_a_past_that_cannot_be_read_stops_nothing() -> None:
    def past() -> Iterator[Past]:
        yield Past(1, (Ended((1,), 3, False),), 0, 0, 0, 0)
        raise RuntimeError("the disk is gone")

    teller = Teller()
    async with running(teller, past) as found:
        await settled(found)
        assert (await found.ask(question())).version == "v7"
        assert found.failed == 1
    assert teller.remembered == [((1,), 3, False)]


async def test_what_runs_is_told_as_still_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_S", 0.001)
    teller = Teller()
    async with running(teller) as found:
        outlook = found.outlook(question(), 1)
        outlook.signal(signals(16))
        async with asyncio.timeout(30):
            while not teller.flights:
                await asyncio.sleep(0.001)
        assert teller.flights[0] == [(outlook.forecast, 16)]
        found.ended(outlook, row(20))
        async with asyncio.timeout(30):
            while teller.flights[-1]:
                await asyncio.sleep(0.001)


async def test_a_new_version_is_gone_over_to() -> None:
    teller = Teller()
    async with running(teller) as found:
        found.reload()
        await settled(found)
    assert teller.reloads == 1


async def test_nothing_is_forecast_while_forecasts_are_off() -> None:
    found = Forecasts()
    found.start()
    assert not found.enabled
    assert await found.opened(0)
    assert found.snapshot.state == "off"
    assert found.degraded == ""
    await found.close()


async def test_no_forecaster_for_a_model_is_no_fault_and_an_uncalibrated_one_is() -> None:
    teller = Teller()
    async with running(teller) as found:
        teller.told = replace(teller.told, version="", state="global", problem=NO_FORECASTER)
        assert found.degraded == ""
        teller.told = replace(teller.told, problem="the forecaster v0003 is not used: its hash")
        assert found.degraded == "the forecaster v0003 is not used: its hash"
        teller.told = replace(teller.told, version="v7", state="uncalibrated", problem="")
        assert "steelyard calibrate" in found.degraded
        teller.told = replace(teller.told, state="ok", degraded="runs on CPU, not TensorRT")
        assert found.degraded == "runs on CPU, not TensorRT"


async def test_lessons_wait_while_requests_run_unless_they_are_many() -> None:
    teller = Teller()
    async with running(teller) as found:
        runs = found.outlook(question(), 1)
        for _ in range(module.LESSONS - 1):
            found.ended(found.outlook(question(), 1), row(7))
        await settled(found)
        assert teller.taught == []
        found.ended(found.outlook(question(), 1), row(7))
        await settled(found)
        assert len(teller.taught) == module.LESSONS
        found.ended(runs, row(9))
        await settled(found)
    assert len(teller.taught) == module.LESSONS + 1
