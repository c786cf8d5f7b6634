"""The supervisor over scripted children: an ordinary life, its start and its end."""

import logging

import pytest
from msgspec.structs import replace

from appliance.engine.commands import Cancel, Pause, Shutdown
from appliance.engine.reports import Delta, Fatal, Finished, Started, Stats
from appliance.errors import Unavailable
from appliance.supervisor import EngineCannotStart, Supervisor
from tests.unit.engine_parts import make_submit
from tests.unit.supervisor_parts import (
    LOAD,
    MB,
    READY,
    FakeChild,
    Nursery,
    fate,
    finished,
    make_supervisor,
    next_child,
    nursery,
    running,
    until,
)

__all__ = ["nursery", "running"]
"""Fixtures."""


# An ordinary life


async def test_child_gets_its_load_first_and_requests_once_ready(
    nursery: Nursery, running: Supervisor
) -> None:
    assert nursery.child.heard[0] == LOAD
    assert running.snapshot.state == "ready"
    assert running.snapshot.ready == READY
    running.submit(make_submit("a"))
    assert nursery.child.submitted() == ["a"]


async def test_events_reach_their_ticket_and_ended_requests_are_forgotten(
    nursery: Nursery, running: Supervisor
) -> None:
    ticket, other = running.submit(make_submit("a")), running.submit(make_submit("b"))
    nursery.child.tell(Started("a", 1.0, 0), Delta("a", 0, "hi", (1,)), finished(ticket))
    assert await fate(ticket) == finished(ticket)
    assert list(running.tickets) == ["b"]
    assert other.position == 0
    assert running.queue.waiting == 1


async def test_events_of_unknown_requests_are_ignored(
    nursery: Nursery, running: Supervisor
) -> None:
    nursery.child.tell(Delta("gone", 0, "hi", (1,)))
    ticket = running.submit(make_submit("a"))
    nursery.child.tell(finished(ticket))
    assert isinstance(await fate(ticket), Finished)


async def test_queue_tells_who_waits_and_who_is_ahead(
    nursery: Nursery, running: Supervisor
) -> None:
    tickets = [running.submit(make_submit(name, range(10))) for name in "abc"]
    urgent = running.submit(make_submit("urgent", priority=-1))
    assert [ticket.position for ticket in tickets] == [1, 2, 3]
    assert urgent.position == 0
    nursery.child.start(tickets[0])
    await until(lambda: tickets[0].started_at)
    queue = running.queue
    assert (queue.running, queue.waiting, queue.waiting_tokens) == (1, 3, 23)
    assert queue.oldest_wait_s >= 0
    assert [ticket.position for ticket in tickets] == [0, 1, 2]


async def test_pongs_keep_the_snapshot_fresh(nursery: Nursery, running: Supervisor) -> None:
    nursery.child.stats = Stats(steps=5, running=1)
    before = running.snapshot.last_progress
    await until(lambda: running.snapshot.stats.steps == 5)
    assert running.snapshot.last_progress > before
    assert running.snapshot.slots[0].request == "r"
    assert running.snapshot.rss_bytes == 2 * MB


async def test_pause_is_passed_on_and_kept_over_a_restart(
    nursery: Nursery, running: Supervisor
) -> None:
    running.pause(True)
    assert running.snapshot.paused
    assert Pause(True) in nursery.child.heard
    nursery.child.die(-11)
    child = await next_child(nursery, running)
    assert Pause(True) in child.heard
    running.pause(False)
    assert Pause(False) in child.heard


# The first start


@pytest.mark.parametrize("silent", [True, False])
async def test_first_start_that_fails_says_why(nursery: Nursery, silent: bool) -> None:
    def prepare(child: FakeChild) -> None:
        child.ready = None
        if not silent:
            child.say(Fatal("llama.cpp cannot load the model file"))
            child.die(3)

    nursery.prepare = prepare
    with pytest.raises(EngineCannotStart, match="not ready" if silent else "cannot load"):
        await make_supervisor(start_timeout_s=0.02).start()
    assert nursery.child.status is not None


@pytest.mark.parametrize(("asked", "offloaded"), [(0, 0), (2, 1)])
async def test_missing_gpu_is_an_error_where_one_is_required(
    nursery: Nursery, asked: int, offloaded: int
) -> None:
    nursery.prepare = lambda child: setattr(
        child, "ready", replace(READY, layers_asked=asked, layers_offloaded=offloaded)
    )
    with pytest.raises(EngineCannotStart, match="require_gpu"):
        await make_supervisor(require_gpu=True).start()


async def test_degraded_engine_serves_and_says_so(
    nursery: Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    nursery.prepare = lambda child: setattr(child, "ready", replace(READY, degraded=("no GPU",)))
    supervisor = make_supervisor()
    with caplog.at_level(logging.WARNING):
        await supervisor.start()
    assert "degraded: no GPU" in caplog.text
    await supervisor.stop()


# Cancellation and deadlines


async def test_cancellation_is_passed_to_the_child(nursery: Nursery, running: Supervisor) -> None:
    ticket = running.submit(make_submit("a"))
    ticket.cancel()
    assert Cancel("a") in nursery.child.heard
    assert not ticket.done


async def test_request_cancelled_while_the_child_is_down_ends_at_once(
    nursery: Nursery, running: Supervisor
) -> None:
    nursery.prepare = lambda child: setattr(child, "ready", None)
    nursery.child.die(-9)
    await until(lambda: running.snapshot.state == "starting")
    ticket = running.submit(make_submit("a"))
    ticket.cancel()
    end = await fate(ticket)
    assert isinstance(end, Finished)
    assert end.reason == "cancelled"
    nursery.child.say(READY)
    await next_child(nursery, running)
    assert nursery.child.submitted() == []


async def test_request_whose_cancellation_the_dead_child_never_answered_does_not_run(
    nursery: Nursery, running: Supervisor
) -> None:
    ticket = running.submit(make_submit("a"))
    ticket.cancel()
    nursery.child.die(-9)
    end = await fate(ticket)
    assert isinstance(end, Finished)
    assert end.reason == "cancelled"
    assert (await next_child(nursery, running)).submitted() == []


async def test_deadline_passes_while_the_child_is_down(
    nursery: Nursery, running: Supervisor
) -> None:
    nursery.prepare = lambda child: setattr(child, "ready", None)
    nursery.child.die(-9)
    await until(lambda: running.snapshot.state == "starting")
    late = running.submit(make_submit("late", deadline=1.0))
    patient = running.submit(make_submit("patient"))
    end = await fate(late)
    assert isinstance(end, Finished)
    assert end.reason == "deadline"
    assert not patient.done


# The end


async def test_stopping_fails_what_is_open_and_ends_the_child(nursery: Nursery) -> None:
    supervisor = make_supervisor()
    await supervisor.start()
    ticket = supervisor.submit(make_submit("a"))
    await supervisor.stop()
    error = await fate(ticket)
    assert isinstance(error, Unavailable)
    assert error.code == "shutting_down"
    assert Shutdown() in nursery.child.heard
    assert nursery.child.status == 0
    with pytest.raises(Unavailable):
        supervisor.submit(make_submit("b"))
    await supervisor.stop()


async def test_child_that_ignores_goodbye_is_killed(nursery: Nursery) -> None:
    supervisor = make_supervisor()
    await supervisor.start()
    nursery.child.send = lambda command: None  # type: ignore[method-assign]
    await supervisor.stop()
    assert nursery.child.status == -9


async def test_box_may_stop_while_the_child_is_down(nursery: Nursery) -> None:
    supervisor = make_supervisor()
    await supervisor.start()
    nursery.prepare = lambda child: setattr(child, "ready", None)
    nursery.child.die(-9)
    await until(lambda: supervisor.snapshot.state == "starting")
    await supervisor.stop()
    assert supervisor.snapshot.state == "stopping"
    assert nursery.child.status is not None
