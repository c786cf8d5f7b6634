"""Scripted engine children, and a supervisor over them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from appliance import deaths, watchdog
from appliance import supervisor as module
from appliance.engine.commands import Command, Load, Ping, Shutdown, Submit
from appliance.engine.reports import (
    Batch,
    Counts,
    Event,
    Finished,
    Pong,
    Ready,
    Report,
    SlotState,
    Started,
    Stats,
)
from appliance.enginechild import EngineChild
from appliance.errors import EngineFailed, Unavailable
from appliance.supervisor import Supervisor
from appliance.ticket import Ticket
from appliance.vitals import Vitals
from appliance.watchdog import Policy, Tolerance

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

    async def dead(self, timeout: float) -> None:
        """Scripted children die at once."""

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
        self.niceness = 0

    async def launch(
        self,
        log_level: str,
        on_report: Callable[[Report], None],
        on_end: Callable[[], None],
        niceness: int,
    ) -> FakeChild:
        self.niceness = niceness
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
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


async def next_child(nursery: Nursery, supervisor: Supervisor, number: int = 2) -> FakeChild:
    """Waits until child `number` (counted from one) is ready."""
    await until(lambda: len(nursery.children) == number and supervisor.snapshot.state == "ready")
    return nursery.child


async def fate(ticket: Ticket) -> Finished | Exception:
    """How the request ends."""
    async with asyncio.timeout(30):
        while True:
            try:
                event = await ticket.next()
            except (EngineFailed, Unavailable) as error:
                return error
            if isinstance(event, Finished):
                return event


def finished(ticket: Ticket) -> Finished:
    return Finished(ticket.id, 0, "stop", "eos", "", COUNTS)
