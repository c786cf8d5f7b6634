"""The real firmware, under MicroPython on a pseudo-terminal."""

import os
import struct
import time
from pathlib import Path

from firmware_bridge import messages as m
from firmware_bridge.commands import ConfigureWatchdog, Heartbeat, Inhibit, Output, Ping, Stream
from firmware_bridge.events import Done, Failed, Fed, Happened, Ready, Samples
from firmware_bridge.firmware import schema
from firmware_bridge.simulation import Simulation
from firmware_bridge.wire import Decoder, encode
from tests.unit.board_parts import PATIENCE, Host, board_and_host, only


def kinds(host: Host) -> list[int]:
    return [event.kind for event in only(host.events, Happened)]


def newest(host: Host, channel: int) -> int:
    return only(host.events, Samples)[-1].rows[-1][channel]


def stream(host: Host) -> None:
    assert isinstance(host.obeyed(Stream(True)), Done)
    host.until(lambda: only(host.events, Samples))


def ticks_of(host: Host, kind: int) -> float:
    """Milliseconds of the board."""
    return next(e.ticks / 1000 for e in only(host.events, Happened) if e.kind == kind)


def test_samples_arrive_with_exact_indices_and_references() -> None:
    with board_and_host() as (_, host):
        stream(host)
        host.idle(1.0)
        samples = only(host.events, Samples)
        got = [e.first + row for e in samples for row in range(len(e.rows))]
        missing = got[-1] - got[0] + 1 - len(got)
        assert got == sorted(set(got))
        assert host.session.counters.lost == missing
        assert len(got) + missing > 500
        assert {len(row) for e in samples for row in e.rows} == {len(schema.CHANNELS)}
        truths = [r for e in samples for r in e.references]
        assert len(truths) == len(got)
        assert {(r.channel, r.value) for r in truths} == {(schema.REFERENCE, 10_000)}


def test_watchdog_warns_and_cuts_the_power_when_it_is_not_fed() -> None:
    with board_and_host(off_ms="200") as (_, host):
        stream(host)
        host.obeyed(Heartbeat())
        host.obeyed(ConfigureWatchdog(600, 400))
        host.until(lambda: m.EV_CYCLE in kinds(host))
        warned, cut = ticks_of(host, m.EV_PRETIMEOUT), ticks_of(host, m.EV_CYCLE)
        assert 0 < cut - warned < 1000 * PATIENCE  # to the turn: test_board_logic.py
        host.until(lambda: newest(host, schema.RELAY) == 0)
        host.until(lambda: newest(host, schema.RELAY) == 1)


def test_a_heartbeat_that_is_replayed_from_a_buffer_does_not_feed() -> None:
    with board_and_host(off_ms="200") as (_, host):
        host.obeyed(Heartbeat())
        host.obeyed(ConfigureWatchdog(900, 600))
        sent = host.session.send(Heartbeat(), time.monotonic())
        assert isinstance(sent, int)
        buffer = host.session.outgoing()
        (frame,) = Decoder().feed(buffer)
        os.write(host.line, buffer)
        begun, number = time.monotonic(), frame.seq
        while m.EV_CYCLE not in kinds(host):
            number += 1  # the same bytes, and the same heartbeat under a new number
            os.write(host.line, buffer + encode(1, m.HEARTBEAT, number, 0, frame.payload))
            host.silent = True
            host.idle(0.05)
            assert time.monotonic() - begun < PATIENCE
        cut = next(e for e in only(host.events, Happened) if e.kind == m.EV_CYCLE)
        assert cut.argument == 1


def test_watchdog_stays_quiet_while_it_is_fed() -> None:
    with board_and_host() as (_, host):
        host.obeyed(Heartbeat())
        host.obeyed(ConfigureWatchdog(2000, 1000))
        begun = time.monotonic()
        while time.monotonic() < begun + 2.5:
            host.obeyed(Heartbeat())
            host.idle(0.05)
        assert m.EV_CYCLE not in kinds(host)
        assert all(fed.fed for fed in only(host.events, Fed))


def test_planned_restart_is_not_punished() -> None:
    with board_and_host() as (_, host):
        host.obeyed(Heartbeat())
        host.obeyed(ConfigureWatchdog(1500, 1000))
        assert isinstance(host.obeyed(Inhibit(2)), Done)
        assert isinstance(host.obeyed(Inhibit(2)), Failed)  # once between two heartbeats
        host.until(lambda: m.EV_CYCLE in kinds(host))
        armed = ticks_of(host, m.EV_CYCLE) - ticks_of(host, m.EV_BOOT)
        assert armed > 3400


def test_output_returns_to_its_safe_value_when_the_host_is_silent() -> None:
    with board_and_host() as (_, host):
        stream(host)
        host.obeyed(Output(schema.FAN0, 950, 2000))
        host.until(lambda: newest(host, schema.FAN0_DUTY) == 950)
        host.until(lambda: newest(host, schema.FAN0_DUTY) == 700)
        assert m.EV_DEADMAN in kinds(host)


def test_fan_follows_the_temperature_while_the_host_is_silent() -> None:
    with board_and_host(temperature="0:40,4:40,4.5:78,60:78") as (_, host):
        stream(host)
        host.until(lambda: newest(host, schema.FAN0_DUTY) == 250)
        host.silent = True
        host.until(lambda: newest(host, schema.FAN0_DUTY) > 900)


def raw_events(simulation: Simulation) -> list[bytes]:
    """Events as they come to a host that acknowledges nothing."""
    line = os.open(simulation.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    decoder = Decoder()
    payloads: list[bytes] = []
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and len(payloads) < 3:
        try:
            frames = decoder.feed(os.read(line, 4096))
        except BlockingIOError:
            continue
        payloads += [frame.payload for frame in frames if frame.type == m.EVENT]
    os.close(line)
    return payloads[:3]  # one read may bring several


def test_events_survive_a_reset_of_the_board_until_they_are_acknowledged(tmp_path: Path) -> None:
    flash = {"STEELYARD_SIMULATED_STATE": str(tmp_path / "flash.json")}
    with Simulation(flash) as simulation:
        first, second, third = raw_events(simulation)
        assert first == second == third
    with board_and_host(state=flash["STEELYARD_SIMULATED_STATE"]) as (_, host):
        host.until(lambda: len(only(host.events, Happened)) == 2)
        boots = only(host.events, Happened)
        assert [e.kind for e in boots] == [m.EV_BOOT, m.EV_BOOT]
        assert boots[1].number == boots[0].number + 1
        assert [e.argument for e in boots] == [m.RESET_POWER, m.RESET_OTHER]
        host.obeyed(Ping())
        host.idle(0.5)
        assert len(only(host.events, Happened)) == 2
    with board_and_host(state=flash["STEELYARD_SIMULATED_STATE"]) as (_, host):
        host.until(lambda: only(host.events, Happened))
        host.idle(0.3)
        assert [e.number for e in only(host.events, Happened)] == [boots[1].number + 1]


def test_button_is_told() -> None:
    with board_and_host(button="0.5:1.5") as (_, host):
        host.until(lambda: m.BUTTON in kinds(host))


def test_overheating_is_told_and_turns_the_fans_up() -> None:
    with board_and_host(temperature="0:60,0.3:60,0.4:97") as (_, host):
        stream(host)
        host.until(lambda: m.EV_OVERTEMPERATURE in kinds(host))
        host.until(lambda: newest(host, schema.FAN0_DUTY) == 1000)


def test_garbage_on_the_line_is_survived() -> None:
    with board_and_host() as (simulation, host):
        stream(host)
        for size in (1, 300, 1000, 2000):
            os.write(host.line, os.urandom(size))
            host.idle(0.1)
        done = host.obeyed(Ping(b"still there"))
        assert isinstance(done, Done)
        assert done.payload == b"still there"
        assert simulation.process.poll() is None


def test_host_that_does_not_read_does_not_stop_the_board() -> None:
    with board_and_host() as (simulation, host):
        stream(host)
        time.sleep(1.0)  # a real process must run against a full line
        host.until(lambda: host.session.counters.lost > 0)
        assert isinstance(host.obeyed(Ping()), Done)
        assert simulation.process.poll() is None


def test_second_host_is_greeted_by_the_same_board() -> None:
    with board_and_host() as (simulation, host):
        stream(host)
        other = Host(simulation.path)
        other.ready()
        (mine,), (theirs,) = only(host.events, Ready), only(other.events, Ready)
        assert mine.board.boot_id == theirs.board.boot_id
        other.close()


def test_reference_channel_follows_a_file_of_readings_and_truths(tmp_path: Path) -> None:
    pairs = [(10_000 + at, 10_000 if at % 2 else m.UNREAD) for at in range(500)]
    file = tmp_path / "reference"
    file.write_bytes(b"".join(struct.pack("<hh", *pair) for pair in pairs))
    with board_and_host(reference=str(file)) as (_, host):
        stream(host)
        host.until(lambda: bool(only(host.events, Samples)))
        sampled = only(host.events, Samples)[0]
        readings = [row[schema.REFERENCE] for row in sampled.rows]
        first = readings[0] - 10_000
        assert readings == [10_000 + (first + at) % 500 for at in range(len(readings))]
        told = {one.index - sampled.first: one.value for one in sampled.references}
        assert told == {at: 10_000 for at in range(len(readings)) if (first + at) % 2}
