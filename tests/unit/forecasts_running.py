"""Forecasts as a daemon has them, their thread running, and how answers come to their end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from appliance import forecasts as module
from appliance.engine.reports import Finished
from appliance.forecasts import Forecasts
from appliance.ledger.entry import request_row
from appliance.ledger.rows import ChoiceRow, RequestRow
from tests.unit.forecast_parts import Teller
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


def ended(length: int, choice: int = 0) -> Finished:
    return Finished("r", choice, "stop", "eos", "", counts(length))
