"""When the second forecast of a request is made: where it is of use, else once it has ended."""

from appliance.engine.reports import FirstLogits
from appliance.forecasts import Forecasts
from appliance.outlook import Outlook
from tests.unit.forecast_parts import Teller, question
from tests.unit.forecasts_running import row, running, settled
from tests.unit.test_sharpening import VALUES, sharp


async def read(found: Forecasts) -> Outlook:
    """A request whose first forecast is made, and whose prompt the model has read."""
    outlook = found.outlook(question(), 1)
    await found.ask(question(), outlook)
    outlook.signal(FirstLogits("r1", VALUES))
    return outlook


async def test_of_a_request_that_nobody_looks_at_no_second_forecast_is_made_while_it_runs() -> None:
    teller = sharp()
    async with running(teller) as found:
        outlook = await read(found)
        found._sharpen()
        await settled(found)
        assert outlook.forecast.before is None
        assert "sharpen" not in teller.order


async def test_looking_at_it_makes_one() -> None:
    async with running(sharp()) as found:
        outlook = await read(found)
        first = outlook.now.p50
        found._sharpen()
        await settled(found)
        assert outlook.forecast.before is not None
        assert outlook.now.p50 == first + 7


async def test_so_does_a_queue_and_the_engine_is_told() -> None:
    async with running(sharp()) as found:
        heard = []
        outlook = found.outlook(question(), 1)
        outlook.tell = heard.append
        await found.ask(question(), outlook)
        outlook.signal(FirstLogits("r1", VALUES))
        found.pressed = lambda: True
        found._sharpen()
        await settled(found)
        assert outlook.forecast.before is not None
        assert len(heard) == 2


async def test_what_ended_is_sharpened_all_at_once_before_anybody_hears_its_length() -> None:
    teller = sharp()
    lengths = []
    async with running(teller) as found:
        found.on_length = lambda forecast, length, cut: lengths.append((forecast, length, cut))
        for length in (5, 6, 7):
            found.ended(await read(found), row(length))
        found.ended(await read(found), row(8, stop_type="limit"))
        assert lengths == []
        await settled(found)
        await settled(found)
    assert [(length, cut) for _, length, cut in lengths] == [
        (5, False),
        (6, False),
        (7, False),
        (8, True),
    ]
    assert all(forecast.before is not None for forecast, _, _ in lengths)
    assert teller.order == ["answer"] * 4 + ["sharpen"] * 4 + ["observe"] * 4


async def test_without_a_second_network_lengths_are_heard_of_the_first_forecast() -> None:
    teller = Teller()
    lengths = []
    async with running(teller) as found:
        found.on_length = lambda forecast, length, cut: lengths.append((forecast, length, cut))
        found.ended(await read(found), row(5))
        await settled(found)
    assert lengths == [(teller.says, 5, False)]
