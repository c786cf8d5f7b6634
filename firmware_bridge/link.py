"""The thread that owns the line to the board. Nothing here blocks or troubles its caller.

Commands go in through a bounded queue; out come a frozen `Telemetry`, replaced whole at every
change, and a bounded queue of events. The device is opened exclusively, and again with growing
pauses when it is not there or has gone. Whatever it sends or fails with stays in this thread.
"""

import itertools
import logging
import os
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import serial

from firmware_bridge.clock import ClockFit
from firmware_bridge.commands import Command, Refusal
from firmware_bridge.events import (
    BoardInfo,
    Done,
    Event,
    Failed,
    Fed,
    Happened,
    Ready,
    Samples,
    Silent,
    Stats,
    Unusable,
)
from firmware_bridge.messages import UNREAD
from firmware_bridge.port import Port, why
from firmware_bridge.protocol import Counters, Session, State

log = logging.getLogger(__name__)

BAUD = 921_600
READ_SECONDS = 0.02
"""The longest wait for bytes, and so for timers, and for commands where cancel_read is missing."""
CHUNK = 4096
WRITE_SECONDS = 2.0
"""A busy machine may hold a reader up for a second; a line that takes nothing longer is gone."""
FIRST_PAUSE = 0.1
LAST_PAUSE = 2.0
"""Seconds between attempts to open the device, doubled from one to the other."""
MAX_COMMANDS = 64
MAX_EVENTS = 4096
"""Events that nobody took: twenty seconds of them at 200 a second. Older ones are dropped."""
RECENT = 32

FAULTS = (OSError, ValueError, TypeError, termios.error)
"""What pyserial lets through when a device vanishes; SerialException is an OSError."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What is known of the board at `at`. A channel that was never read is missing in `values`."""

    at: float = 0.0
    state: State = "down"
    problem: str | None = "not opened yet"
    """Why the board cannot be used, None when it can."""
    opened: int = 0
    """How often the device was opened."""
    board: BoardInfo | None = None
    counters: Counters = field(default_factory=Counters)
    clock: ClockFit | None = None
    values: dict[str, float] = field(default_factory=dict)
    """The newest sample of each channel that could be read, in its unit."""
    sampled_at: float | None = None
    fed: Fed | None = None
    fed_at: float | None = None
    stats: Stats | None = None
    recent: tuple[Happened, ...] = ()
    """The last events of the board, oldest first."""
    dropped_events: int = 0


class Link:
    """`path` is a device, a pseudo-terminal or a URL of pyserial such as socket://host:port."""

    def __init__(self, path: str, tap: Callable[[str, bytes], None] | None = None) -> None:
        """`tap` is shown every piece that is read (`<`) or written (`>`), on the link's thread."""
        self.telemetry = Telemetry()
        self._path = path
        self._tap = tap or (lambda direction, data: None)
        self._commands: deque[tuple[int, Command]] = deque()
        self._ids = itertools.count(1)
        self._own_ids: dict[int, int] = {}
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._dropped = 0
        self._stopping = threading.Event()
        self._port: serial.SerialBase | None = None
        self._session = Session(int.from_bytes(os.urandom(4), "little"))
        self._opened = 0
        self._problem: str | None = "not opened yet"
        self._newest: Samples | None = None
        self._sampled_at: float | None = None
        self._fed: tuple[Fed, float] | None = None
        self._stats: Stats | None = None
        self._recent: deque[Happened] = deque(maxlen=RECENT)
        self._thread = threading.Thread(target=self._run, name="board-link", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake()
        self._thread.join(2 * LAST_PAUSE)

    def send(self, command: Command) -> int | Refusal:
        """The id under which `Done` or `Failed` will come, or why the command was not taken."""
        if self.telemetry.state not in ("ready", "unusable"):
            return Refusal(self.telemetry.problem or "the board is being greeted")
        if len(self._commands) >= MAX_COMMANDS:
            return Refusal("too many commands wait")
        number = next(self._ids)
        self._commands.append((number, command))
        self._wake()
        return number

    def take_events(self) -> list[Event]:
        """What happened since the last call, oldest first."""
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    # The thread

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            opened = self._opened
            try:
                self._converse()
            except FAULTS as fault:
                self._lose(why(fault))
            except Exception:
                log.exception("the board's link failed")
                self._lose("internal error, see the log")
            pause = FIRST_PAUSE if self._opened > opened else min(LAST_PAUSE, 2 * pause)
            self._stopping.wait(pause)

    def _converse(self) -> None:
        """Talk until the device fails (which raises) or the link is stopped."""
        device = "://" not in self._path
        port = Port() if device else serial.serial_for_url(self._path, do_not_open=True)
        port.baudrate = BAUD
        port.timeout = READ_SECONDS
        port.write_timeout = WRITE_SECONDS
        if device:
            port.port = self._path
            port.exclusive = True
        port.open()
        try:
            self._opened += 1
            self._port = port
            self._problem = "the board has not answered yet"
            self._session.connected(time.monotonic())
            while not self._stopping.is_set():
                self._turn(port)
        finally:
            self._port = None
            port.close()

    def _turn(self, port: serial.SerialBase) -> None:
        if data := self._session.outgoing():
            self._tap(">", data)
            port.write(data)
        received = port.read(min(CHUNK, port.in_waiting) or 1)
        if received:
            self._tap("<", received)
        now = time.monotonic()
        events = self._session.receive(received, now)
        self._submit(now)
        self._keep(events, now)
        deadline = self._session.deadline()
        if events or (deadline is not None and deadline <= now):
            self._publish(now)

    def _submit(self, now: float) -> None:
        while self._commands:
            number, command = self._commands.popleft()
            sent = self._session.send(command, now)
            if isinstance(sent, Refusal):
                self._append(Failed(number, sent.reason))
            else:
                self._own_ids[sent] = number

    def _append(self, event: Event) -> None:
        self._dropped += len(self._events) == MAX_EVENTS
        self._events.append(event)

    def _keep(self, events: list[Event], now: float) -> None:
        for event in events:
            if isinstance(event, Done | Failed):
                event = replace(event, id=self._own_ids.pop(event.id, 0))
            self._append(event)
            match event:
                case Samples():
                    self._newest, self._sampled_at = event, now
                case Fed():
                    self._fed = (event, now)
                case Stats():
                    self._stats = event
                case Happened():
                    self._recent.append(event)
                case Unusable(reason):
                    self._problem = reason
                case Ready():
                    self._problem = None
                case Silent():
                    self._problem = "the board is silent"

    def _lose(self, problem: str) -> None:
        if self._problem != problem:
            log.warning("no board at %s: %s", self._path, problem)
        self._problem = problem
        now = time.monotonic()
        self._keep(self._session.disconnected(), now)
        while self._commands:
            self._append(Failed(self._commands.popleft()[0], "the line was lost"))
        self._publish(now)

    def _publish(self, now: float) -> None:
        session = self._session
        self.telemetry = Telemetry(
            at=now,
            state=session.state,
            problem=self._problem,
            opened=self._opened,
            board=session.board,
            counters=session.counters,
            clock=session.readings.clock.fit,
            values=self._values(),
            sampled_at=self._sampled_at,
            fed=self._fed[0] if self._fed else None,
            fed_at=self._fed[1] if self._fed else None,
            stats=self._stats,
            recent=tuple(self._recent),
            dropped_events=self._dropped,
        )

    def _values(self) -> dict[str, float]:
        board, newest = self._session.board, self._newest
        if board is None or newest is None:
            return {}
        row = newest.rows[-1]
        return {
            channel.name: raw * channel.scale + channel.offset
            for channel, raw in zip(board.channels, row, strict=False)
            if raw != UNREAD
        }

    def _wake(self) -> None:
        """End the wait for bytes, where the device can."""
        cancel = getattr(self._port, "cancel_read", None)
        if cancel is not None:
            try:
                cancel()
            except FAULTS:
                log.debug("the device is closing")
