"""The supervisor over scripted children: deaths, hangs, growth, and every request's fate."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from appliance import supervisor as module
from appliance.deaths import Deaths
from appliance.engine.reports import Delta, Fatal, Finished, Started, Stats
from appliance.errors import EngineFailed, Unavailable
from appliance.supervisor import Supervisor
from appliance.vitals import Vitals
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


# Death


async def test_started_requests_fail_and_waiting_ones_are_sent_again(
    nursery: Nursery, running: Supervisor
) -> None:
    started, waiting = running.submit(make_submit("a")), running.submit(make_submit("b"))
    first = nursery.child
    first.start(started)
    await until(lambda: started.started_at)
    first.die(-11)
    error = await fate(started)
    assert isinstance(error, EngineFailed)
    assert error.code == "engine_crashed"
    assert "SIGSEGV" in error.message
    child = await next_child(nursery, running)
    assert child.submitted() == ["b"]
    child.tell(Started("b", 2.0, 0), finished(waiting))
    assert isinstance(await fate(waiting), Finished)
    assert running.snapshot.restarts == 1
    assert "SIGSEGV" in running.snapshot.last_failure


async def test_what_a_dead_child_still_says_is_not_heard(
    nursery: Nursery, running: Supervisor
) -> None:
    ticket = running.submit(make_submit("a"))
    first = nursery.child
    await running.restart("test")
    await next_child(nursery, running)
    first.stats = Stats(steps=100)
    first.tell(Started("a", 1.0, 0), Delta("a", 0, "old", (1,)))
    nursery.child.stats = Stats(running=1)
    await until(lambda: running.snapshot.stats.running == 1)
    assert ticket.started_at is None
    assert ticket.generated == 0
    assert running.snapshot.stats.steps == 0


async def test_fatal_words_of_the_child_are_the_cause(
    nursery: Nursery, running: Supervisor
) -> None:
    ticket = running.submit(make_submit("a"))
    nursery.child.start(ticket)
    nursery.child.say(Fatal("llama_decode failed"))
    await until(lambda: ticket.started_at)
    nursery.child.die(1)
    error = await fate(ticket)
    assert isinstance(error, EngineFailed)
    assert "llama_decode failed" in error.message


async def test_request_made_while_the_child_is_down_waits_for_the_next(
    nursery: Nursery, running: Supervisor
) -> None:
    nursery.prepare = lambda child: setattr(child, "ready", None)
    nursery.child.die(-6)
    await until(lambda: running.snapshot.state == "starting" and len(nursery.children) == 2)
    ticket = running.submit(make_submit("a"))
    assert nursery.child.submitted() == []
    nursery.child.say(READY)
    await until(lambda: nursery.child.submitted() == ["a"])
    nursery.child.tell(finished(ticket))
    assert isinstance(await fate(ticket), Finished)


async def test_counters_never_go_back_and_states_do(nursery: Nursery, running: Supervisor) -> None:
    nursery.child.stats = Stats(steps=10, predicted_tokens=100, running=2, tokens_max=50)
    await until(lambda: running.snapshot.stats.steps == 10)
    nursery.child.die(-9)
    await until(lambda: running.snapshot.state != "ready")
    stats = running.snapshot.stats
    assert (stats.steps, stats.predicted_tokens, stats.running) == (10, 100, 0)
    child = await next_child(nursery, running)
    child.stats = Stats(steps=3, predicted_tokens=7, running=1, tokens_max=20)
    await until(lambda: running.snapshot.stats.running == 1)
    stats = running.snapshot.stats
    assert (stats.steps, stats.predicted_tokens, stats.tokens_max) == (13, 107, 50)


async def test_child_that_cannot_be_launched_counts_as_a_death(nursery: Nursery) -> None:
    supervisor = make_supervisor(deaths=3)
    reasons: list[str] = []
    supervisor.on_give_up = reasons.append
    await supervisor.start()
    nursery.fails = OSError("no memory")
    nursery.child.die(-9)
    await until(lambda: reasons)
    assert supervisor.snapshot.state == "failed"
    assert "no memory" in reasons[0]
    await supervisor.stop()


# Giving up


async def test_too_many_deaths_end_it_once_and_for_all(nursery: Nursery) -> None:
    supervisor = make_supervisor(deaths=3)
    reasons: list[str] = []
    supervisor.on_give_up = reasons.append
    await supervisor.start()
    waiting = supervisor.submit(make_submit("a"))
    for number in (1, 2, 3):
        (await next_child(nursery, supervisor, number)).die(-11)
    error = await fate(waiting)
    assert isinstance(error, EngineFailed)
    assert error.code == "engine_failed"
    assert "3 times" in error.message
    assert supervisor.snapshot.state == "failed"
    with pytest.raises(Unavailable):
        supervisor.submit(make_submit("b"))
    await supervisor.stop()
    assert len(reasons) == 1
    assert "SIGSEGV" in reasons[0]


def test_old_deaths_are_forgotten() -> None:
    counted = Deaths(most=2, window_s=10.0)
    counted.add(100.0)
    counted.add(109.0)
    assert counted.too_many(109.0)
    assert not counted.too_many(110.0)
    assert counted.count(200.0) == 0


def test_every_death_doubles_the_wait_up_to_a_bound() -> None:
    counted = Deaths(most=100, window_s=1000.0)
    waits = []
    for second in range(10):
        waits.append(counted.backoff(second))
        counted.add(second)
    assert waits == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_planned_restart_is_no_death(nursery: Nursery) -> None:
    supervisor = make_supervisor(deaths=1)
    await supervisor.start()
    started, waiting = supervisor.submit(make_submit("a")), supervisor.submit(make_submit("b"))
    nursery.child.start(started)
    await until(lambda: started.started_at)
    for number in (2, 3, 4):
        await supervisor.restart("new model")
        await next_child(nursery, supervisor, number)
    error = await fate(started)
    assert isinstance(error, EngineFailed)
    assert error.code == "engine_restarted"
    assert not waiting.done
    assert nursery.child.submitted() == ["b"]
    await supervisor.stop()


async def test_engine_that_is_down_cannot_be_restarted(
    nursery: Nursery, running: Supervisor
) -> None:
    nursery.prepare = lambda child: setattr(child, "ready", None)
    nursery.child.die(-9)
    await until(lambda: running.snapshot.state == "starting")
    with pytest.raises(Unavailable):
        await running.restart("why not")


# Hangs and leaks


async def lost(
    nursery: Nursery, supervisor: Supervisor, harm: Callable[[FakeChild], None]
) -> EngineFailed:
    """The error of a request that runs when its child comes to harm."""
    await supervisor.start()
    first = nursery.child
    ticket = supervisor.submit(make_submit("a"))
    first.start(ticket)
    await until(lambda: ticket.started_at)
    harm(first)
    error = await fate(ticket)
    assert isinstance(error, EngineFailed)
    await next_child(nursery, supervisor)
    assert first.status == -9
    await supervisor.stop()
    return error


async def test_silent_child_is_killed_as_hung(nursery: Nursery) -> None:
    def harm(child: FakeChild) -> None:
        child.answers = False

    error = await lost(nursery, make_supervisor(step_timeout_s=0.05), harm)
    assert error.code == "engine_hung"


async def test_child_stopped_by_a_signal_is_killed(nursery: Nursery) -> None:
    def harm(child: FakeChild) -> None:
        child.vitals = Vitals(stopped=True, rss_bytes=MB, anonymous_bytes=MB)

    error = await lost(nursery, make_supervisor(), harm)
    assert error.code == "engine_hung"
    assert "SIGSTOP" in error.message


async def test_child_that_grows_is_killed(nursery: Nursery) -> None:
    def harm(child: FakeChild) -> None:
        child.vitals = Vitals(stopped=False, rss_bytes=MB, anonymous_bytes=12 * MB)

    error = await lost(nursery, make_supervisor(growth=10 * MB), harm)
    assert error.code == "engine_memory"
    assert "11 MiB" in error.message


async def test_child_that_is_never_ready_is_given_up(nursery: Nursery) -> None:
    supervisor = make_supervisor(start_timeout_s=0.02)
    await supervisor.start()
    nursery.prepare = lambda child: setattr(child, "ready", None)
    nursery.child.die(-9)
    await until(lambda: len(nursery.children) == 3)
    assert nursery.children[1].status == -9
    assert "not ready" in supervisor.snapshot.last_failure
    await supervisor.stop()


# A full disk


async def test_full_disk_is_waited_for_and_counts_as_no_death(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = True
    monkeypatch.setattr(module, "has_room", lambda directory: room)
    supervisor = Supervisor(replace(LOAD, journal_dir="/journal"), make_supervisor()._policy)
    await supervisor.start()
    waiting = supervisor.submit(make_submit("a"))
    room = False
    nursery.child.die(-9)
    await until(lambda: "disk space" in supervisor.snapshot.last_failure)
    assert len(nursery.children) == 1, "no engine is started that could only die"
    room = True
    child = await next_child(nursery, supervisor)
    assert child.submitted() == ["a"]
    assert "SIGKILL" in supervisor.snapshot.last_failure
    waiting.cancel()
    await supervisor.stop()
