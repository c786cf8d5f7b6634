"""The thread of forecasts: what asks never waits for it, and what fails there stays there."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from appliance import forecasts as module
from appliance.accounts.pace import MEMORY_TOKENS, Pace
from appliance.engine.reports import Delta, Finished, Signals
from appliance.eta import starts_in
from appliance.forecast.forecaster import NO_FORECASTER
from appliance.forecasts import Forecasts
from appliance.ledger.entry import request_row
from appliance.ledger.lengths import Ended, Past
from appliance.ledger.rows import ChoiceRow, RequestRow
from appliance.outlook import Band, Outlook, together
from appliance.rough import Rough
from tests.unit.forecast_parts import Teller, question, told
from tests.unit.test_entry import admitted, counts


@asynccontextmanager
async def running(teller: Teller, past: Any = lambda: iter(())) -> AsyncIterator[Forecasts]:
    found = Forecasts(lambda: teller, past)
    found.start()
    assert await found.opened(10)
    yield found
    await found.close()


async def settled(found: Forecasts) -> None:
    """Everything that was put before this is done, lessons too."""
    found._teach()
    done = asyncio.get_running_loop().create_future()
    errands = found._errands
    errands.put(module._REMEMBER + 1, lambda: errands.tell(lambda: done.set_result(None)))
    await asyncio.wait_for(done, 30)


def row(*lengths: int, stop_type: str = "eos", **changes: Any) -> RequestRow:
    choices = tuple(
        ChoiceRow(
            outcome="stop",
            stop_type=stop_type,
            completion_tokens=length,
            hidden_tokens=1,
            digest="",
        )
        for length in lengths
    )
    made = request_row(
        admitted(n=len(lengths)),
        outcome="stop",
        status=200,
        code="",
        choices=choices,
        submitted_ns=1,
        counts=[counts(length) for length in lengths],
    )
    return RequestRow(
        **{**{name: getattr(made, name) for name in made.__struct_fields__}, **changes}
    )


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


# -- one request ---------------------------------------------------------------------------------


def signals(generated: int, choice: int = 0, margin: float = -9.0) -> Signals:
    return Signals("r", choice, generated, margin, 1.0, -0.5)


def ended(length: int, choice: int = 0) -> Finished:
    return Finished("r", choice, "stop", "eos", "", counts(length))


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


# -- pace and queue ------------------------------------------------------------------------------


def test_a_pace_is_device_time_over_tokens() -> None:
    pace = Pace()
    assert not pace.known
    pace.add(prefill_ns=1000, prefill_tokens=10, decode_ns=4000, completion_tokens=8)
    pace.add(prefill_ns=0, prefill_tokens=5, decode_ns=0, completion_tokens=5)
    assert pace.known
    assert (pace.prefill(3), pace.decode(2)) == (300, 1000)


def test_a_pace_forgets_how_the_box_once_was() -> None:
    pace = Pace()
    old = {"prefill_ns": MEMORY_TOKENS, "prefill_tokens": MEMORY_TOKENS, "decode_ns": 1}
    pace.add(**old, completion_tokens=1)
    for _ in range(20):
        new = {"prefill_ns": 3 * MEMORY_TOKENS, "prefill_tokens": MEMORY_TOKENS, "decode_ns": 1}
        pace.add(**new, completion_tokens=1)
    assert pace.prefill(100) == 300


@pytest.mark.parametrize(
    ("running_left", "ahead", "places", "wait"),
    [
        ((), (), 2, 0.0),
        ((5.0,), (), 2, 0.0),
        ((5.0, 3.0), (), 2, 3.0),
        ((5.0, 3.0), (1.0,), 2, 4.0),
        ((5.0, 3.0), (9.0, 9.0), 2, 12.0),
        ((5.0, 3.0, 1.0), (), 2, 3.0),
    ],
)
def test_a_newcomer_starts_when_those_ahead_have_their_places_and_one_is_left(
    running_left: tuple[float, ...], ahead: tuple[float, ...], places: int, wait: float
) -> None:
    assert starts_in(running_left, ahead, places) == wait
