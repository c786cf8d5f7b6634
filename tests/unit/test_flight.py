"""Several tickets followed as one request."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from appliance.api.flight import Flight
from appliance.api.trace import Trace
from appliance.engine.commands import Submit
from appliance.engine.reports import Delta, Finished
from appliance.errors import EngineFailed
from appliance.ticket import Ticket
from appliance.tickets import Tickets
from tests.unit.api_box import counts, make_box


def flight_of(tmp_path: Path, prompts: int) -> tuple[Flight, list[Ticket]]:
    tickets = Tickets(lambda ticket, reason: True)
    made = [tickets.add(Submit(f"r{i}", (1, 2), 8), None) for i in range(prompts)]
    trace = Trace("req", "0" * 31 + "1", "1" * 16, "00", 0.0)
    return Flight(made, trace, make_box(tmp_path).metrics), made


def ended(ticket: Ticket) -> Finished:
    return Finished(ticket.id, 0, "stop", "eos", "", counts(2, 1))


async def waits(flight: Flight) -> "asyncio.Task[Any]":
    """Somebody reads the flight, and both of its tickets are asked."""
    reader = asyncio.create_task(flight.next())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reader.done()
    return reader


@pytest.mark.asyncio
async def test_an_error_that_comes_with_anothers_end_is_told_too(tmp_path: Path) -> None:
    flight, (first, second) = flight_of(tmp_path, 2)
    reader = await waits(flight)
    first.put(ended(first))
    second.fail(EngineFailed("the engine died", code="engine_crashed"))
    found = await reader
    assert found is not None
    assert found[0] == 0
    assert not flight.landed, "the second prompt has no answer, and nobody has said so"
    with pytest.raises(EngineFailed, match="died"):
        await flight.next()
    assert flight.landed


@pytest.mark.asyncio
async def test_what_came_before_an_error_is_read_before_it(tmp_path: Path) -> None:
    flight, (first, second) = flight_of(tmp_path, 2)
    reader = await waits(flight)
    second.put(Delta(second.id, 0, "a", (5,)))
    second.fail(EngineFailed("the engine died", code="engine_crashed"))
    found = await reader
    assert found is not None
    assert found[0] == 1
    with pytest.raises(EngineFailed):
        await flight.next()
    assert not flight.landed
    first.put(ended(first))
    assert (await flight.next()) is not None
    assert flight.landed
