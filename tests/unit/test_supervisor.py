"""The supervisor over scripted children: deaths, hangs, growth, and every request's fate."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from appliance import deaths, watchdog
from appliance import supervisor as module
from appliance.deaths import Deaths
from appliance.engine.messages import (
    Batch,
    Cancel,
    Command,
    Counts,
    Delta,
    Event,
    Fatal,
    Finished,
    Load,
    Pause,
    Ping,
    Pong,
    Ready,
    Report,
    Shutdown,
    SlotState,
    Started,
    Stats,
    Submit,
)
from appliance.enginechild import EngineChild
from appliance.errors import EngineFailed, Unavailable
from appliance.supervisor import EngineCannotStart, Policy, Supervisor
from appliance.ticket import Ticket
from appliance.vitals import Vitals
from appliance.watchdog import Tolerance
from tests.unit.engine_parts import make_submit

LOAD = Load("model.gguf", 128, 4, 64, 64, 1, 1, 0, "off", "f16", 4, 0, 64)
READY = Ready("tiny", 1000, 4000, 256, 128, 512, 16, 2, 2, 0, 0, False, "CPU", 0.1)
COUNTS = Counts(3, 0, 1, 0, 0, 0, 0.0, 0.0, 0.0, 1)
MB = 1 << 20
FOREVER = 60.0


class FakeChild:
    """Answers Load and Ping as the engine does, unless told otherwise; the rest is up to the
    test."""

    def __init__(
        self, pid: int, on_report: Callable[[Report], None], on_end: Callable[[], None]
    ) -> None:
        self.pid = pid
        self.vitals = Vitals(stopped=False, rss_bytes=2 * MB, anonymous_bytes=MB)
        self.heard: list[Command] = []
        self.ready: Ready | None = READY
        self.answers = True
        self.stats = Stats()
        self.status: int | None = None
        self._on_report = on_report
        self._on_end = on_end

    def send(self, command: Command) -> None:
        if self.status is not None:
            return
        self.heard.append(command)
        if isinstance(command, Load) and self.ready is not None:
            self.say(self.ready)
        if isinstance(command, Ping) and self.answers:
            slot = SlotState(0, "r", 0, "decode", 3, 3, 0, 1, 8)
            self.say(Pong(command.at, self.stats, (slot,), ()))
        if isinstance(command, Shutdown):
            self.die(0)

    def say(self, report: Report) -> None:
        asyncio.get_running_loop().call_soon(lambda: self._on_report(report))

    def tell(self, *events: Event) -> None:
        self.say(Batch(events, self.stats))

    def start(self, ticket: Ticket) -> None:
        self.tell(Started(ticket.id, 1.0, 0))

    def die(self, status: int) -> None:
        if self.status is None:
            self.status = status
            asyncio.get_running_loop().call_soon(lambda: self._on_end())

    def mute(self) -> None:
        self._on_report = lambda report: None
        self._on_end = lambda: None

    def kill(self) -> None:
        self.die(-9)

    async def reap(self, timeout: float = 5.0) -> int:
        await asyncio.sleep(0)
        self.die(-9)
        assert self.status is not None
        return self.status

    def submitted(self) -> list[str]:
        return [command.id for command in self.heard if isinstance(command, Submit)]


class Nursery:
    """Every child that was launched, and how the next ones will be."""

    def __init__(self) -> None:
        self.children: list[FakeChild] = []
        self.prepare: Callable[[FakeChild], None] = lambda child: None
        self.fails: Exception | None = None

    async def launch(
        self, log_level: str, on_report: Callable[[Report], None], on_end: Callable[[], None]
    ) -> FakeChild:
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        child = FakeChild(1000 + len(self.children), on_report, on_end)
        self.prepare(child)
        self.children.append(child)
        return child

    @property
    def child(self) -> FakeChild:
        return self.children[-1]

    def vitals(self, pid: int) -> Vitals | None:
        child = self.children[pid - 1000]
        return child.vitals if child.status is None else None


@pytest.fixture
def nursery(monkeypatch: pytest.MonkeyPatch) -> Nursery:
    made = Nursery()
    monkeypatch.setattr(EngineChild, "launch", made.launch)
    monkeypatch.setattr(module, "read_vitals", made.vitals)
    monkeypatch.setattr(module, "WATCH_S", 0.002)
    monkeypatch.setattr(deaths, "BACKOFF_S", 0.001)
    monkeypatch.setattr(watchdog, "STOPPED_S", 0.01)
    return made


def make_supervisor(
    *,
    step_timeout_s: float = FOREVER,
    start_timeout_s: float = FOREVER,
    growth: int = 0,
    deaths: int = 3,
    require_gpu: bool = False,
) -> Supervisor:
    tolerance = Tolerance(step_timeout_s, growth)
    return Supervisor(LOAD, Policy(tolerance, start_timeout_s, deaths, 300.0, require_gpu))


@pytest_asyncio.fixture
async def running(nursery: Nursery) -> AsyncIterator[Supervisor]:
    made = make_supervisor()
    await made.start()
    yield made
    await made.stop()


async def until(condition: Callable[[], Any]) -> None:
    """Lets the supervisor turn until it is so; fails the test when it never is."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def next_child(nursery: Nursery, supervisor: Supervisor, number: int = 2) -> FakeChild:
    """Waits until child `number` (counted from one) is ready."""
    await until(lambda: len(nursery.children) == number and supervisor.snapshot.state == "ready")
    return nursery.child


async def fate(ticket: Ticket) -> Finished | Exception:
    """How the request ends."""
    async with asyncio.timeout(5):
        while True:
            try:
                event = await ticket.next()
            except (EngineFailed, Unavailable) as error:
                return error
            if isinstance(event, Finished):
                return event


def finished(ticket: Ticket) -> Finished:
    return Finished(ticket.id, 0, "stop", "eos", "", COUNTS)


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
