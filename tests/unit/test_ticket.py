"""One request as the API sees it: its events in order, its end, its cancellation."""

import asyncio

import pytest

from appliance.engine.reports import Counts, Delta, Event, Finished, Signals, Started
from appliance.errors import EngineFailed
from appliance.ticket import CancelReason, Ticket
from tests.unit.engine_parts import make_submit

COUNTS = Counts(3, 0, 1, 0, 0, 0, 0.0, 0.0, 0.0, 1)


class Desk:
    """Makes tickets and notes what they ask the supervisor."""

    def __init__(self, ahead: int = 2) -> None:
        self.ahead = ahead
        self.cancelled: list[tuple[str, CancelReason]] = []

    def ticket(self, n: int = 1) -> Ticket:
        return Ticket(make_submit(n=n), 10.0, place=lambda ticket: self.ahead, cancel=self._cancel)

    def _cancel(self, ticket: Ticket, reason: CancelReason) -> None:
        self.cancelled.append((ticket.id, reason))


def finished(choice: int = 0) -> Finished:
    return Finished("r", choice, "stop", "eos", "", COUNTS)


async def read_all(ticket: Ticket) -> list[Event]:
    """Until the end, which must come."""
    events = []
    while True:
        try:
            event = await ticket.next()
        except StopAsyncIteration:
            return events
        assert event is not None
        events.append(event)


async def test_events_are_read_in_order_and_then_it_ends() -> None:
    ticket = Desk().ticket()
    sent = [Started("r", 11.0, 0), Delta("r", 0, "hi", (1, 2)), finished()]
    for event in sent:
        ticket.put(event)
    assert await read_all(ticket) == sent
    with pytest.raises(StopAsyncIteration):
        await ticket.next()


async def test_reader_that_waits_is_woken() -> None:
    ticket = Desk().ticket()
    reader = asyncio.create_task(read_all(ticket))
    await asyncio.sleep(0)
    ticket.put(Started("r", 11.0, 0))
    await asyncio.sleep(0)
    ticket.put(finished())
    assert len(await reader) == 2


async def test_nothing_within_the_time_is_none() -> None:
    ticket = Desk().ticket()
    assert await ticket.next(timeout=0) is None
    ticket.put(Started("r", 11.0, 0))
    assert await ticket.next(timeout=0) is not None


async def test_it_ends_with_the_last_choice() -> None:
    ticket = Desk().ticket(n=2)
    ticket.put(finished(1))
    assert not ticket.done
    ticket.put(finished(0))
    assert ticket.done
    assert [event.choice for event in await read_all(ticket) if isinstance(event, Finished)] == [
        1,
        0,
    ]


async def test_failure_comes_after_what_had_arrived() -> None:
    ticket = Desk().ticket()
    ticket.put(Delta("r", 0, "hi", (1,)))
    ticket.fail(EngineFailed("gone"))
    assert isinstance(await ticket.next(), Delta)
    for _ in range(2):
        with pytest.raises(EngineFailed):
            await ticket.next()


async def test_failure_wakes_a_reader_that_waits() -> None:
    ticket = Desk().ticket()
    reader = asyncio.create_task(ticket.next())
    await asyncio.sleep(0)
    ticket.fail(EngineFailed("gone"))
    with pytest.raises(EngineFailed):
        await reader


async def test_nothing_follows_the_end() -> None:
    ticket = Desk().ticket()
    ticket.put(finished())
    ticket.put(Delta("r", 0, "late", (1,)))
    ticket.fail(EngineFailed("late"))
    assert await read_all(ticket) == [finished()]
    assert ticket.generated == 0


async def test_position_is_what_is_ahead_until_it_starts() -> None:
    ticket = Desk(ahead=2).ticket()
    assert ticket.position == 2
    ticket.put(Started("r", 11.0, 0))
    assert (ticket.position, ticket.started_at) == (0, 11.0)


async def test_generated_tokens_of_all_choices_are_counted() -> None:
    ticket = Desk().ticket(n=2)
    ticket.put(Delta("r", 0, "", (1, 2)))
    ticket.put(Delta("r", 1, "", (3,)))
    assert ticket.generated == 3


async def test_cancelling_is_told_once() -> None:
    desk = Desk()
    ticket = desk.ticket()
    ticket.cancel("deadline")
    ticket.cancel()
    assert desk.cancelled == [("r", "deadline")]


async def test_ended_request_cannot_be_cancelled() -> None:
    desk = Desk()
    ticket = desk.ticket()
    ticket.put(finished())
    ticket.cancel()
    assert desk.cancelled == []


async def test_request_that_never_ran_ends_with_every_choice_and_no_tokens() -> None:
    ticket = Desk().ticket(n=2)
    ticket.end_unstarted("cancelled", now=12.0)
    events = await read_all(ticket)
    assert [type(event) for event in events] == [Finished, Finished]
    for event in events:
        assert isinstance(event, Finished)
        assert (event.reason, event.counts.completion_tokens) == ("cancelled", 0)
        assert event.counts.queue_ms == pytest.approx(2000)


async def test_signals_go_to_who_asked_for_them_and_wake_no_reader() -> None:
    ticket = Desk().ticket()
    heard: list[Signals] = []
    ticket.on_signal = heard.append
    signals = [Signals("r", 0, at, -5.0, 1.0, -0.5) for at in (8, 16)]
    reader = asyncio.create_task(ticket.next(60.0))
    await asyncio.sleep(0)
    for signal in signals:
        ticket.put(signal)
    await asyncio.sleep(0)
    assert heard == signals
    assert not reader.done()
    reader.cancel()


async def test_signals_that_nobody_asked_for_are_forgotten() -> None:
    ticket = Desk().ticket()
    ticket.put(Signals("r", 0, 8, -5.0, 1.0, -0.5))
    ticket.put(finished())
    assert await read_all(ticket) == [finished()]


async def test_account_hears_no_signals() -> None:
    heard: list[Event] = []

    class Account:
        def event(self, event: Event) -> None:
            heard.append(event)

        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    ticket = Desk().ticket()
    ticket.account = Account()  # type: ignore[assignment]
    ticket.put(Signals("r", 0, 8, -5.0, 1.0, -0.5))
    ticket.put(finished())
    assert heard == [finished()]
