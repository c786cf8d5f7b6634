"""What systemd's watchdog is told, and when it is told nothing."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from appliance.config import Config
from appliance.snapshot import EngineSnapshot
from appliance.supervisor import NO_ROOM
from appliance.watchdogfeed import (
    MARGIN_S,
    Rule,
    WatchdogFeed,
    ask_for_start,
    asked_for,
)

EVERY, SILENCE, PATIENCE = 5.0, 90.0, 350.0
READY = EngineSnapshot(state="ready", pid=7, last_progress=100.0)


def fed(
    engine: EngineSnapshot, seconds: int, rule: Rule | None = None, begun: float = 100.0
) -> list[int]:
    """When systemd is told, of so many seconds in which the engine stays like that."""
    rule = rule or Rule(EVERY, SILENCE, PATIENCE)
    return [t for t in range(seconds) if rule.due(begun + t, engine)]


def test_progress_feeds_evenly() -> None:
    rule = Rule(EVERY, SILENCE, PATIENCE)
    turning = (replace(READY, last_progress=100.0 + t) for t in range(60))
    told = [t for t, engine in enumerate(turning) if rule.due(100.0 + t, engine)]
    assert told == list(range(0, 60, 5))


def test_engine_that_hangs_is_covered_till_the_supervisor_must_have_acted() -> None:
    assert fed(READY, 1000) == list(range(0, int(SILENCE) + 1, 5))


def test_progress_after_a_hang_feeds_again() -> None:
    rule = Rule(EVERY, SILENCE, PATIENCE)
    assert not rule.due(500.0, READY)
    assert rule.due(500.5, replace(READY, last_progress=500.4))


def test_each_step_of_replacing_the_engine_has_its_time() -> None:
    rule = Rule(EVERY, SILENCE, PATIENCE)
    dead = EngineSnapshot(state="backoff", pid=7, restarts=1)
    again = EngineSnapshot(state="starting", pid=8, restarts=1)
    assert max(fed(dead, 1000, rule)) == PATIENCE
    assert max(fed(again, 1000, rule, begun=1100.0)) == PATIENCE


def test_supervisor_that_is_stuck_is_not_fed_for_ever() -> None:
    """Nor by a state that comes back without anything having happened."""
    rule = Rule(EVERY, SILENCE, PATIENCE)
    stuck = EngineSnapshot(state="backoff", pid=7, restarts=3)
    fed(stuck, 1000, rule)
    assert fed(stuck, 1000, rule, begun=1100.0) == []


def test_full_disk_is_waited_out() -> None:
    """A restart of the daemon would make no room."""
    full = EngineSnapshot(state="backoff", pid=7, last_failure=NO_ROOM)
    assert len(fed(full, 5000)) == 1000


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "90000000"}, 90.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": str(os.getpid())}, 90.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_timeout_is_read_as_systemd_tells_it(environment: dict[str, str], seconds: float) -> None:
    assert asked_for(environment) == seconds


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield made


async def test_daemon_feeds_for_the_engine_that_is_in(systemd: socket.socket) -> None:
    """Asked anew each time: a switch of the model exchanges it."""
    asked = []

    def engine() -> EngineSnapshot:
        asked.append(time.monotonic())
        return replace(READY, last_progress=asked[-1])

    feed = WatchdogFeed(Config(), engine, {"WATCHDOG_USEC": "20000"})
    feed.start()
    feed.start()
    assert await heard(systemd) == "WATCHDOG=1"
    assert await heard(systemd) == "WATCHDOG=1"
    assert len(asked) >= 2
    await feed.stop()
    await feed.stop()


async def test_daemon_feeds_nobody_for_an_engine_that_hangs(systemd: socket.socket) -> None:
    limit = Config().engine.step_timeout_s + MARGIN_S
    looked = asyncio.Event()

    def engine() -> EngineSnapshot:
        looked.set()
        return replace(READY, last_progress=time.monotonic() - limit - 1)

    feed = WatchdogFeed(Config(), engine, {"WATCHDOG_USEC": "20000"})
    feed.start()
    for _ in range(3):
        looked.clear()
        await looked.wait()
    await feed.stop()
    told_nothing(systemd)


async def test_without_a_watchdog_nothing_is_told(systemd: socket.socket) -> None:
    feed = WatchdogFeed(Config(), lambda: READY, {})
    feed.start()
    await feed.stop()
    told_nothing(systemd)


async def test_start_is_asked_for_in_time(systemd: socket.socket) -> None:
    ask_for_start(Config())
    assert await heard(systemd) == "EXTEND_TIMEOUT_USEC=330000000"


async def heard(systemd: socket.socket) -> str:
    return (await asyncio.to_thread(systemd.recv, 200)).decode()


def told_nothing(systemd: socket.socket) -> None:
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(100)
