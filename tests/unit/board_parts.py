"""A real board's firmware on a pseudo-terminal with a host to talk to it, and a board in memory."""

import os
import select
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from firmware_bridge.commands import Command
from firmware_bridge.events import Done, Event, Failed, Ready
from firmware_bridge.firmware.board import Board
from firmware_bridge.firmware.line import Line
from firmware_bridge.firmware.slots import NOWHERE, Flash
from firmware_bridge.protocol import Session
from firmware_bridge.simulation import Simulation

T = TypeVar("T")

PATIENCE = 15.0
"""Seconds that a condition may take on a busy machine."""


class Host:
    """A session over a pseudo-terminal, turned by hand."""

    def __init__(self, path: str, patience_s: float = PATIENCE) -> None:
        self.patience_s = patience_s
        self.line = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(self.line)
        self.session = Session(int.from_bytes(os.urandom(4), "little"))
        self.session.connected(time.monotonic())
        self.events: list[Event] = []
        self.silent = False
        """Whether it listens only."""

    def now(self) -> float:
        return time.monotonic()

    def turn(self) -> None:
        data = self.session.outgoing()
        if data and not self.silent:
            os.write(self.line, data)
        select.select([self.line], [], [], 0.005)
        now = time.monotonic()
        try:
            received = os.read(self.line, 4096)
        except BlockingIOError:
            received = b""
        self.events += self.session.receive(received, now)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + self.patience_s
        while not condition():
            assert time.monotonic() < end, self.events[-20:]
            self.turn()

    def idle(self, seconds: float) -> None:
        """Keep listening so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def ready(self) -> None:
        self.until(lambda: any(isinstance(event, Ready) for event in self.events))

    def obeyed(self, command: Command) -> Done | Failed:
        """Send it and wait for the outcome."""
        sent = self.session.send(command, time.monotonic())
        assert isinstance(sent, int), sent
        outcomes: list[Done | Failed] = []

        def came() -> bool:
            outcomes[:] = [e for e in self.events if isinstance(e, Done | Failed) and e.id == sent]
            return bool(outcomes)

        self.until(came)
        return outcomes[0]

    def close(self) -> None:
        os.close(self.line)


def only(events: list[Event], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


@contextmanager
def board_and_host(**settings: str) -> Iterator[tuple[Simulation, Host]]:
    """The real firmware and a host that has greeted it."""
    named = {f"STEELYARD_SIMULATED_{name.upper()}": value for name, value in settings.items()}
    with Simulation(named) as simulation:
        host = Host(simulation.path)
        try:
            host.ready()
            yield simulation, host
        finally:
            host.close()


class MemoryHal:
    """Hardware for the firmware's logic under CPython; its clock is set by the test."""

    uid = b"memory00"
    reset_cause = 1
    power_off_ms = 8000
    trial_ms = 60_000
    flash = Flash(NOWHERE)

    def __init__(self) -> None:
        self.us = 0
        self.sent = bytearray()
        self.received = bytearray()
        self.kept: dict[str, object] = {}
        self.driven: dict[int, int] = {}
        self.relays: list[bool] = []
        self.pulses = 0
        self.down = False
        self.celsius: int | None = 4500
        self.speed = 2000
        self._random = 1

    def now_us(self) -> int:
        return self.us

    def wait(self, us: int) -> None:
        self.us += max(us, 0)

    def read(self) -> bytes:
        data = bytes(self.received)
        self.received.clear()
        return data

    def write(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def sample(self, rows: list[int], offset: int) -> None:
        rows[offset] = self.us // 1000 & 0x7FFF

    def reference(self) -> tuple[int, int] | None:
        return None

    def temperature(self) -> int | None:
        return self.celsius

    def fan_speed(self, fan: int) -> int | None:
        return self.speed

    def drive(self, output: int, value: int) -> None:
        self.driven[output] = value

    def relay(self, on: bool) -> None:
        self.relays.append(on)

    def pulse_power_button(self) -> None:
        self.pulses += 1

    def button(self) -> bool:
        return self.down

    def feed(self) -> None:
        pass

    def reset(self) -> None:
        raise AssertionError("nothing asked for it")

    def random32(self) -> int:
        self._random = self._random * 1103515245 + 12345 & 0xFFFFFFFF
        return self._random

    def load(self) -> dict[str, object]:
        return dict(self.kept)

    def save(self, kept: dict[str, object]) -> None:
        self.kept = kept


class Pair:
    """The firmware and a session in one process, joined by `carry` and by one clock."""

    def __init__(self, seed: int = 1) -> None:
        self.hal = self.make_hal()
        self.board = Board(self.hal)
        self.session = Session(seed)
        self.events: list[Event] = []
        self.session.connected(self.now)

    def make_hal(self) -> MemoryHal:
        return MemoryHal()

    @property
    def now(self) -> float:
        return self.hal.us / 1e6

    def to_board(self, data: bytes) -> bytes:
        return data

    def to_host(self, data: bytes) -> bytes:
        return data

    def turn(self) -> list[Event]:
        self.hal.received += self.to_board(self.session.outgoing())
        self.board.turn()
        data, self.hal.sent = bytes(self.hal.sent), bytearray()
        events = self.session.receive(self.to_host(data), self.now)
        self.events += events
        return events

    def run(self, seconds: float) -> list[Event]:
        end = self.now + seconds
        begun = len(self.events)
        while self.now < end:
            self.turn()
        return self.events[begun:]

    def reboot(self, *, announced: bool = True) -> None:
        """The board starts again; its flash and the line stay. Its HELLO may be lost."""
        self.board = Board(self.hal)
        if not announced:
            self.board.line = Line(self.hal)
