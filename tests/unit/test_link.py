"""The thread that owns the line: it takes whatever the device does, and tells its caller."""

import os
import select
import socket
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.plug import Plug
from firmware_bridge.commands import Ping, Refusal, Stream
from firmware_bridge.events import BoardReset, Done, Event, Failed, Lost, Samples
from firmware_bridge.link import Link
from firmware_bridge.simulation import Simulation
from tests.unit.board_parts import PATIENCE, only


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def started(path: str) -> Iterator[Link]:
    link = Link(path)
    link.start()
    try:
        yield link
    finally:
        link.stop()


def ready(link: Link) -> bool:
    return link.telemetry.state == "ready"


def test_values_of_all_channels_are_published() -> None:
    with Simulation() as board, started(board.path) as link:
        until(lambda: ready(link))
        assert isinstance(link.send(Stream(True)), int)
        until(lambda: link.telemetry.values)
        values = link.telemetry.values
        assert len(values) == 16
        assert 11 < values["rail_12v"] < 13
        assert 40 < values["cpu_temperature"] < 50
        assert link.telemetry.problem is None


def test_outcome_of_a_command_comes_under_its_id() -> None:
    with Simulation() as board, started(board.path) as link:
        until(lambda: ready(link))
        sent = link.send(Ping(b"hello"))
        events: list[Event] = []

        def answered() -> bool:
            events.extend(link.take_events())
            return bool(only(events, Done))

        until(answered)
        (done,) = only(events, Done)
        assert (done.id, done.payload) == (sent, b"hello")


def test_missing_device_is_a_state_and_commands_are_refused(tmp_path: Path) -> None:
    with started(str(tmp_path / "none")) as link:
        until(lambda: link.telemetry.at)
        assert link.telemetry.state == "down"
        assert link.telemetry.problem == "there is no such device"
        assert isinstance(link.send(Ping()), Refusal)


def test_why_a_device_cannot_be_used_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"no port")
    found = {}
    for name in ("file", "."):
        with started(str(tmp_path / name)) as link:
            until(lambda link=link: link.telemetry.at)
            found[name] = link.telemetry.problem
    assert found == {"file": "it is no serial port", ".": "Is a directory"}
    with Simulation() as board, started(board.path) as first:
        until(lambda: ready(first))
        with started(board.path) as second:
            until(lambda: second.telemetry.at)
            assert second.telemetry.problem == "another program has it open"
        assert ready(first)


def test_board_that_is_unplugged_and_plugged_in_again_is_found(tmp_path: Path) -> None:
    path = tmp_path / "board"
    first = Simulation()
    path.symlink_to(first.path)
    with started(str(path)) as link:
        until(lambda: ready(link))
        link.send(Stream(True))
        until(lambda: link.telemetry.values)
        first.stop()
        until(lambda: link.telemetry.state == "down")
        path.unlink()
        with Simulation() as second:
            path.symlink_to(second.path)
            until(lambda: ready(link))
            assert link.telemetry.opened >= 2
            assert len(only(link.take_events(), BoardReset)) == 1


def test_a_cable_that_is_pulled_under_load_costs_just_what_was_said_meanwhile(
    tmp_path: Path,
) -> None:
    """The board goes on; the link finds it again, and every sample is accounted for."""
    with (
        Simulation() as board,
        Plug(board.path, tmp_path / "line") as plug,
        started(str(plug.path)) as link,
    ):
        events: list[Event] = []

        def streams() -> bool:
            link.send(Ping(b"load"))
            fresh = link.take_events()
            events.extend(fresh)
            return ready(link) and bool(only(fresh, Samples))

        until(lambda: ready(link))
        for opened in (1, 2, 3):
            until(lambda: ready(link) and isinstance(link.send(Stream(True)), int))
            until(streams)
            assert link.telemetry.opened == opened
            plug.pull()
            until(lambda: link.telemetry.state == "down")
            plug.plug()
        until(lambda: ready(link) and isinstance(link.send(Stream(True)), int))
        until(streams)
        link.stop()
        events.extend(link.take_events())
        samples = only(events, Samples)
        got = [e.first + row for e in samples for row in range(len(e.rows))]
        missing = max(got) - min(got) + 1 - len(set(got))
        assert len(got) == len(set(got))
        assert link.telemetry.counters.lost == missing > 0
        assert not only(events, BoardReset)
        assert all(count.count > 0 for count in only(events, Lost))


def relay(listener: socket.socket, path: str, stopping: threading.Event) -> None:
    """A serial server: one client, joined to the board's line."""
    client, _ = listener.accept()
    line = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    with client, suppress(ConnectionError):  # it may leave first
        while not stopping.is_set():
            readable = select.select([client.fileno(), line], [], [], 0.05)[0]
            for ready in readable:
                if ready != line:
                    os.write(line, client.recv(4096))
                else:
                    client.sendall(os.read(line, 4096))
    os.close(line)


def test_board_behind_a_serial_server_is_reached() -> None:
    stopping = threading.Event()
    with Simulation() as board, socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=relay, args=(listener, board.path, stopping))
        server.start()
        try:
            with started(f"socket://127.0.0.1:{listener.getsockname()[1]}") as link:
                until(lambda: ready(link))
                link.send(Stream(True))
                until(lambda: link.telemetry.counters.samples > 500 and link.telemetry.stats)
                lost, stats = link.telemetry.counters.lost, link.telemetry.stats
                assert lost == 0 or (stats is not None and stats.unsent > 0), "else the line lost"
                stopping.set()
        finally:
            stopping.set()
            server.join()


def test_device_of_another_kind_is_not_a_board() -> None:
    here, there = os.openpty()
    try:
        with started(os.ttyname(there)) as link:
            os.write(here, b"login: " * 100)
            until(lambda: link.telemetry.opened)
            assert not only(link.take_events(), Failed)
            assert not ready(link)
    finally:
        os.close(here)
        os.close(there)


def test_link_to_a_line_that_takes_nothing_stops_at_once() -> None:
    here, there = os.openpty()
    try:
        link = Link(os.ttyname(there))
        link.start()
        until(lambda: link._opened)
        begun = time.monotonic()
        link.stop()
        assert time.monotonic() - begun < PATIENCE
    finally:
        os.close(here)
        os.close(there)


def test_a_sensor_that_cannot_be_read_has_no_value() -> None:
    with Simulation({"STEELYARD_SIMULATED_BROKEN": "0"}) as board, started(board.path) as link:
        until(lambda: ready(link))
        link.send(Stream(True))
        until(lambda: "rail_12v" in link.telemetry.values)
        assert "cpu_temperature" not in link.telemetry.values
