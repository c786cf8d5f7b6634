"""The thread that keeps the board: takes what it tells, feeds it with proof, publishes snapshots.

Its own thread and not the event loop: samples come 200 times a second. Nothing here blocks or
troubles the daemon; a board that is missing, silent or hostile is a state, not an error.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from appliance.board.heartbeat import MOST_INHIBIT_S, REASONS, Beat, Rule, Wait
from appliance.board.heat import CPU, Hot
from appliance.board.snapshot import RESETS, BoardSnapshot, Link, OutputState, State, Told
from appliance.config import BoardConfig
from appliance.snapshot import EngineSnapshot
from firmware_bridge import link as bridge
from firmware_bridge import messages as m
from firmware_bridge.commands import (
    Command,
    ConfigureWatchdog,
    Heartbeat,
    Inhibit,
    Refusal,
    StopWatchdog,
    Stream,
)
from firmware_bridge.events import Done, Event, Failed, Fed, Happened, Ready, Samples
from firmware_bridge.sensors import Sensors

log = logging.getLogger("appliance.board")

TURN_S = 0.02
PUBLISH_S = 0.1
GOODBYE_S = 1.0
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
}
_UNREADY: Mapping[str, State] = {
    "down": "lost",
    "greeting": "greeting",
    "describing": "greeting",
    "unusable": "unusable",
}
"""By the line's state."""
_WATCHING: Mapping[int, State] = {m.PRETIMEOUT: "warned", m.LATCHED: "latched"}
"""By the watchdog's; in all others it is armed."""


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
        self._published = 0.0
        self.snapshot = BoardSnapshot(device=self._device, simulated=simulated)

    def start(self, on_event: Callable[[Told], object]) -> None:
        """Begins, where a board is configured. `on_event` is told each event once, on a thread of
        the service's own."""
        if not self._device:
            return
        self._on_event = on_event
        self._link = bridge.Link(self._device)
        self._link.start()
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tells the board that the stop is meant, and ends."""
        if self._link is None or self._thread is None:
            return
        self._stopping.set()
        self._thread.join(2.0)
        if self._armed:
            self._say_goodbye(self._link)
        self._link.stop()

    def _say_goodbye(self, link: bridge.Link) -> None:
        """Without it the board would take the silence for a hang."""
        goodbye: Command = StopWatchdog()
        if self._config.nowayout:
            goodbye = Inhibit(MOST_INHIBIT_S, REASONS["stop"])
            log.warning(
                "board.nowayout: the board cuts the power in %d minutes unless the daemon is back",
                MOST_INHIBIT_S // 60,
            )
        number = link.send(goodbye)
        until = time.monotonic() + GOODBYE_S
        while not isinstance(number, Refusal) and time.monotonic() < until:
            events = link.take_events()
            if any(isinstance(one, Done | Failed) and one.id == number for one in events):
                return
            time.sleep(TURN_S)

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
        if now - self._published >= PUBLISH_S:
            self._published = now
            self.snapshot = self._snapshot(link.telemetry, now)
            if (change := self._hot.look(self.snapshot.value(CPU))) is not None:
                self._slow(change)

    def _beat(self, link: bridge.Link, now: float) -> None:
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
                self._done(number, round_trip)
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

    def _done(self, number: int, round_trip: float) -> None:
        command = self._asked.pop(number, None)
        self._round_trips.append(round_trip)
        if isinstance(command, ConfigureWatchdog):
            self._armed = True
            log.info("the board watches: it acts after %g s without proof", self._config.timeout_s)

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
        return BoardSnapshot(
            state=self._state(told, fed),
            problem=_problem(told, self._device),
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
            outputs=self._outputs(told),
            events=tuple(self._told),
            link=self._line(told),
            slowed=self._hot.on,
            at=now,
        )

    def _state(self, told: bridge.Telemetry, fed: Fed | None) -> State:
        if told.state != "ready":
            return _UNREADY[told.state]
        if fed is None or not self._armed or fed.state == m.OFF:
            return "watching"
        return _WATCHING.get(fed.state, "armed")

    def _outputs(self, told: bridge.Telemetry) -> tuple[OutputState, ...]:
        if told.board is None:
            return ()
        return tuple(
            OutputState(
                name=one.name,
                unit=one.unit,
                now=told.values.get(f"{one.name}_duty"),
                safe=one.offset * one.scale,
            )
            for one in told.board.outputs
        )

    def _line(self, told: bridge.Telemetry) -> Link:
        counters, trips = told.counters, sorted(self._round_trips)
        ppm = (told.clock.seconds_per_tick * 1e6 - 1) * 1e6 if told.clock is not None else None
        return Link(
            frames=counters.frames,
            bad=counters.bad,
            samples=counters.samples,
            lost=counters.lost,
            retries=counters.retries,
            resets=counters.resets,
            opened=told.opened,
            power_cycles=self._cycles,
            rtt_p50_ms=round(1000 * trips[len(trips) // 2], 2) if trips else None,
            rtt_p99_ms=round(1000 * trips[len(trips) * 99 // 100], 2) if trips else None,
            clock_ppm=round(ppm, 1) if ppm is not None else None,
        )


def _problem(told: bridge.Telemetry, device: str) -> str:
    if told.problem is None:
        return ""
    return f"{told.problem} ({device}): check the cable and board.device"
