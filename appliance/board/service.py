"""The thread that keeps the board: takes what it tells, feeds it with proof, publishes snapshots.

Its own thread and not the event loop: samples come 200 times a second. Nothing here blocks or
troubles the daemon; a board that is missing, silent or hostile is a state, not an error.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from appliance.board.firmware import Firmware
from appliance.board.goodbye import say_goodbye
from appliance.board.heartbeat import REASONS, Beat, Rule, Wait
from appliance.board.heat import CPU, Hot
from appliance.board.orders import Orders, Outcome
from appliance.board.planned import Planned
from appliance.board.snapshot import RESETS, BoardSnapshot, Told
from appliance.board.telling import line_of, outputs_of, problem_of, slots_of, state_of
from appliance.config import BoardConfig
from appliance.snapshot import EngineSnapshot
from firmware_bridge import link as bridge
from firmware_bridge import messages as m
from firmware_bridge.commands import (
    Command,
    ConfigureWatchdog,
    Heartbeat,
    Inhibit,
    Output,
    Refusal,
    Stream,
)
from firmware_bridge.events import Done, Event, Failed, Fed, Happened, Ready, Samples
from firmware_bridge.sensors import Sensors
from firmware_bridge.update import Image, Progress

log = logging.getLogger("appliance.board")

TURN_S = 0.02
PUBLISH_S = 0.1
EVENTS_SHOWN = 16
ROUND_TRIPS = 256

CODES = {
    m.BUTTON: "button",
    m.BUTTON_LONG: "button_long",
    m.EV_PRETIMEOUT: "pretimeout",
    m.EV_CYCLE: "power_cycle",
    m.EV_LATCHED: "latched",
    m.EV_OVERTEMPERATURE: "overtemperature",
    m.EV_FAN: "fan",
    m.EV_BOOT: "boot",
    m.EV_DEADMAN: "deadman",
    m.EV_UPDATED: "updated",
    m.EV_REVERTED: "reverted",
}


class BoardService:
    """`engine`: the newest snapshot. `slow` is told, on the service's thread, when the engine is to
    compute less, and when no longer."""

    def __init__(
        self,
        config: BoardConfig,
        *,
        device: str = "",
        simulated: bool = False,
        restart_s: float = 300.0,
        engine: Callable[[], EngineSnapshot],
        slow: Callable[[bool], object] = lambda on: None,
    ) -> None:
        self._config = config
        self._device = device or config.device
        self._simulated = simulated
        self._engine = engine
        self._on_event: Callable[[Told], object] = lambda told: None
        self._rule = Rule(config.timeout_s, restart_s)
        self._slow = slow
        self._hot = Hot(config.slow_at_c)
        self._sensors = Sensors()
        self._link: bridge.Link | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._asked: dict[int, Command] = {}
        self._round_trips: deque[float] = deque(maxlen=ROUND_TRIPS)
        self._told: deque[Told] = deque(maxlen=EVENTS_SHOWN)
        self._fed: tuple[Fed, float] | None = None
        self._unfed = 0
        self._cycles = 0
        self._armed = False
        self._orders = Orders()
        self.planned = Planned()
        self._firmware = Firmware(self._updated)
        self._on_update: Callable[[Progress], object] = lambda progress: None
        self._inhibited_until = 0.0
        self._driven: dict[int, float] = {}
        self._published = 0.0
        self.snapshot = BoardSnapshot(device=self._device, simulated=simulated)

    def start(
        self,
        on_event: Callable[[Told], object],
        on_update: Callable[[Progress], object] = lambda progress: None,
    ) -> None:
        """Begins, where a board is configured. `on_event` is told each event once, `on_update` how
        an update ended, on a thread of the service's own."""
        if not self._device:
            return
        self._on_event, self._on_update = on_event, on_update
        self._link = bridge.Link(self._device)
        self._link.start()
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)
        self._thread.start()

    def ask(self, command: Command) -> "Future[Outcome]":
        """Have the board do something; what became of it."""
        return self._orders.ask(command)

    def drive(self, name: str, value: float | None, seconds: float) -> "Future[Outcome] | None":
        """Set an output, in its own unit, for so long; None: to its safe value. No future: there
        is no such output. Raises ValueError for a value that it cannot take."""
        board = self._link.telemetry.board if self._link is not None else None
        for number, one in enumerate(board.outputs if board is not None else ()):
            if one.name == name:
                scaled = value / one.scale if value is not None and one.scale else None
                raw = one.offset if value is None else scaled
                if raw is None or not 0 <= raw <= one.sigma:
                    raise ValueError(f"0 to {one.sigma * one.scale:g}")
                return self.ask(Output(number, round(raw), max(1, round(1000 * seconds))))
        return None

    def update(self, image: Image) -> Refusal | None:
        """Bring new firmware onto the board; the snapshot tells how far it is."""
        return self._firmware.begin(image)

    def stop(self) -> None:
        """Tells the board that the stop is meant, and ends."""
        if self._link is None or self._thread is None:
            return
        self._stopping.set()
        self._thread.join(2.0)
        self._orders.close()
        if self._armed:
            say_goodbye(self._link, nowayout=self._config.nowayout)
        self._link.stop()

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._link is not None
        while not self._stopping.wait(TURN_S):
            try:
                self._turn(self._link, time.monotonic())
            except Exception:
                log.exception("the board's service failed; it goes on")

    def _turn(self, link: bridge.Link, now: float) -> None:
        for event in link.take_events():
            self._take(link, event, now)
        if self._armed and link.telemetry.state in ("ready", "unusable"):
            self._beat(link, now)
        self._orders.send(link)
        self._firmware.turn(link, now)
        if now - self._published >= PUBLISH_S:
            self._published = now
            self.snapshot = self._snapshot(link.telemetry, now)
            if (change := self._hot.look(self.snapshot.value(CPU))) is not None:
                self._slow(change)

    def _beat(self, link: bridge.Link, now: float) -> None:
        if (order := self.planned.due(inhibited=now < self._inhibited_until)) is not None:
            self._rule.waits()
            self._send(link, order)
        match self._rule.due(now, self._engine()):
            case Beat():
                self._send(link, Heartbeat())
            case Wait(seconds, reason):
                log.warning("the board waits %d s for the engine", seconds)
                self._send(link, Inhibit(seconds, REASONS[reason]))

    def _send(self, link: bridge.Link, command: Command) -> None:
        sent = link.send(command)
        if isinstance(sent, Refusal):
            log.warning("the board does not take %s: %s", type(command).__name__, sent.reason)
        else:
            self._asked[sent] = command

    def _take(self, link: bridge.Link, event: Event, now: float) -> None:
        if (command := self._orders.take(event)) is not None:
            self._note(command, now)
        self._firmware.take(event, now)
        match event:
            case Samples():
                self._sensors.take(event, now)
            case Ready(board):
                self._sensors.greet(board)
                self._cycles = board.power_cycles
                self._greet(link)
            case Fed():
                self._fed = event, now
                self._unfed += not event.fed
            case Done(number, _, round_trip):
                self._done(number, round_trip, now)
            case Failed(number, reason):
                self._failed(number, reason)
            case Happened():
                self._hear(event)

    def _greet(self, link: bridge.Link) -> None:
        """After every HELLO: a board that booted has forgotten what it was told."""
        config = self._config
        self._send(link, Stream(True))
        self._send(
            link,
            ConfigureWatchdog(
                timeout_ms=round(config.timeout_s * 1000),
                pretimeout_ms=round(config.pretimeout_s * 1000),
                cycle_power=config.power_cycle,
                nowayout=config.nowayout,
                pulse_button=config.pulse_button,
            ),
        )

    def _done(self, number: int, round_trip: float, now: float) -> None:
        command = self._asked.pop(number, None)
        self._round_trips.append(round_trip)
        if command is not None:
            self._note(command, now)
        if isinstance(command, ConfigureWatchdog):
            self._armed = True
            log.info("the board watches: it acts after %g s without proof", self._config.timeout_s)

    def _note(self, command: Command, now: float) -> None:
        """What the board does from now on."""
        match command:
            case Inhibit(seconds):
                until = max(self._inhibited_until, now + seconds)
                self._inhibited_until = until if seconds else 0.0
            case Output(output, _, max_ms):
                self._driven[output] = now + max_ms / 1000

    def _updated(self, progress: Progress) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._on_update(progress)

    def _failed(self, number: int, reason: str) -> None:
        command = self._asked.pop(number, None)
        if command is not None:
            log.warning("the board did not do %s: %s", type(command).__name__, reason)

    def _hear(self, event: Happened) -> None:
        told = Told(
            wall_ms=time.time_ns() // 1_000_000,
            code=CODES.get(event.kind, f"kind_{event.kind}"),
            number=event.number,
            argument=event.argument,
            ticks=event.ticks,
        )
        self._told.append(told)
        if event.kind == m.EV_CYCLE:
            self._cycles = event.argument
        log.warning("the board tells: %s (%d)", told.code, told.argument)
        with suppress(RuntimeError):  # the loop has ended
            self._on_event(told)

    # -- what is known ---------------------------------------------------------------------------

    def _snapshot(self, told: bridge.Telemetry, now: float) -> BoardSnapshot:
        board = told.board
        fed, fed_at = self._fed if self._fed is not None else (None, None)
        left_until = fed_at + fed.left_ms / 1000 if fed and fed_at and fed.left_ms else None
        inhibited = self._inhibited_until if now < self._inhibited_until else None
        if left_until is not None and inhibited is not None:
            left_until = max(left_until, inhibited + self._config.timeout_s)
        driven = {number: until for number, until in self._driven.items() if until > now}
        return BoardSnapshot(
            state=state_of(told, fed, armed=self._armed, inhibited=inhibited is not None),
            problem=problem_of(told, self._device),
            device=self._device,
            simulated=self._simulated,
            firmware=board.firmware if board else "",
            uid=board.uid if board else "",
            reset_cause=RESETS.get(board.reset_cause, "other") if board else "",
            timeout_ms=fed.timeout_ms if fed else 0,
            left_until=left_until,
            fed_at=fed_at,
            unfed=self._unfed,
            readings=self._sensors.readings(now),
            energies=self._sensors.energies(),
            outputs=outputs_of(told, driven),
            events=tuple(self._told),
            link=line_of(told, self._round_trips, self._cycles),
            inhibited_until=inhibited,
            slots=slots_of(self._firmware.slots),
            update=self._firmware.progress,
            slowed=self._hot.on,
            at=now,
        )
