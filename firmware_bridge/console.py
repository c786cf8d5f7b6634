"""Bench console of the board: `python -m firmware_bridge.console PATH` (or `--simulate`).

Shows what the board says, decoded, and with `--raw` every byte; takes commands, a line each. For
the bench: while it is open the daemon has no board, as the line belongs to one program.
"""

import argparse
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from firmware_bridge import messages as m
from firmware_bridge.commands import (
    Command,
    ConfigureWatchdog,
    Heartbeat,
    Inhibit,
    Output,
    Ping,
    Refusal,
    StopWatchdog,
    Stream,
)
from firmware_bridge.events import Done, Event, Failed, Fed, Happened, Lost, Ready, Samples
from firmware_bridge.link import Link, Telemetry
from firmware_bridge.sensors import ChannelReading, Sensors
from firmware_bridge.simulation import Simulation

LOOK_S = 0.1
EVENTS = {
    m.BUTTON: "button",
    m.BUTTON_LONG: "button held",
    m.EV_PRETIMEOUT: "watchdog is about to act",
    m.EV_CYCLE: "power cycle",
    m.EV_LATCHED: "watchdog latched",
    m.EV_OVERTEMPERATURE: "too hot",
    m.EV_FAN: "fan stands still",
    m.EV_BOOT: "board booted",
    m.EV_DEADMAN: "output fell back",
    m.EV_UPDATED: "new firmware was kept",
    m.EV_REVERTED: "new firmware was not confirmed",
}
STATES = ("off", "armed", "pre-timeout", "cut", "booting", "latched", "inhibited")
HELP = """\
ping | heartbeat | stream on|off | watchdog TIMEOUT_MS PRETIMEOUT_MS [warn] | stop
inhibit SECONDS | output NUMBER VALUE DEADMAN_MS | show | help | quit"""


def parse(line: str) -> Command | None:
    """The command of a line; None where it is none of the board's. Raises ValueError."""
    match line.split():
        case ["ping"]:
            return Ping(b"bench")
        case ["heartbeat"]:
            return Heartbeat()
        case ["stream", "on" | "off" as which]:
            return Stream(which == "on")
        case ["watchdog", timeout, pre]:
            return ConfigureWatchdog(int(timeout), int(pre), nowayout=False)
        case ["watchdog", timeout, pre, "warn"]:
            return ConfigureWatchdog(int(timeout), int(pre), cycle_power=False, nowayout=False)
        case ["stop"]:
            return StopWatchdog()
        case ["inhibit", seconds]:
            return Inhibit(int(seconds))
        case ["output", number, value, ms]:
            return Output(int(number), int(value), int(ms))
    return None


def event_line(event: Event) -> str | None:
    """An event in words; None for samples, which the table shows."""
    match event:
        case Samples():
            return None
        case Ready(board):
            return f"ready: firmware {board.firmware}, uid {board.uid}, boot {board.boot_id:08x}"
        case Happened(kind, number, argument):
            return f"event {number}: {EVENTS.get(kind, f'kind {kind}')} ({argument})"
        case Fed(fed, state, timeout_ms, left_ms):
            name = STATES[state] if state < len(STATES) else str(state)
            done = "fed" if fed else "NOT fed: an old challenge"
            return f"watchdog {name}, {done}, {left_ms} of {timeout_ms} ms left"
        case Done(number, payload, round_trip):
            return f"#{number} done in {1000 * round_trip:.1f} ms {payload.hex()}".rstrip()
        case Failed(number, reason):
            return f"#{number} failed: {reason}"
        case Lost(first, count):
            return f"lost {count} samples from {first}"
    return str(event)


def table(telemetry: Telemetry, readings: Sequence[ChannelReading]) -> list[str]:
    """The state of the line and every channel, a line each."""
    counters = telemetry.counters
    head = f"{telemetry.state}; {telemetry.problem or 'sound'}; {counters}"
    return [head, *(channel_line(one) for one in readings)]


def channel_line(one: ChannelReading) -> str:
    """Name, value, unit, sigma, quality, correction."""
    if one.value is None:
        return f"  {one.name:20} {'?':>10} {one.unit:6} {one.quality}: {one.why}"
    drift = f"off by {one.drift.bias:+.4f} ({one.drift.quality})" if one.residuals else ""
    sigma = f"±{one.sigma:g}" if one.sigma else ""
    return f"  {one.name:20} {one.value:10.3f} {one.unit:6} {sigma:8} {one.quality:8} {drift}"


class Console:
    """One session at the bench. `say` takes lines, from both threads."""

    def __init__(self, link: Link, say: Callable[[str], None]) -> None:
        self._link = link
        self._say = say
        self._sensors = Sensors()

    def look(self) -> None:
        """Take what has happened, and say it."""
        now = time.monotonic()
        for event in self._link.take_events():
            if isinstance(event, Ready):
                self._sensors.greet(event.board)
                self._link.send(Stream(True))
            elif isinstance(event, Samples):
                self._sensors.take(event, now)
            if line := event_line(event):
                self._say(line)

    def enter(self, line: str) -> bool:
        """Do what a line says; false when it ends the session."""
        words = line.split()
        if words[:1] == ["quit"]:
            return False
        if words[:1] == ["show"]:
            for row in table(self._link.telemetry, self._sensors.readings(time.monotonic())):
                self._say(row)
        elif words:
            self._command(line)
        return True

    def _command(self, line: str) -> None:
        try:
            command = parse(line)
        except ValueError:
            command = None
        if command is None:
            self._say(HELP)
            return
        sent = self._link.send(command)
        self._say(f"refused: {sent.reason}" if isinstance(sent, Refusal) else f"#{sent} sent")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until `quit`, the end of the input or the end of `--seconds`."""
    parser = argparse.ArgumentParser(prog="firmware_bridge.console", description=__doc__)
    parser.add_argument("path", nargs="?", default="/dev/appliance-mcu")
    parser.add_argument("--simulate", action="store_true", help="start a simulated board")
    parser.add_argument("--raw", action="store_true", help="show every byte, in hex")
    parser.add_argument("--show", type=float, metavar="S", help="the table every S seconds")
    parser.add_argument("--seconds", type=float, help="end after so long")
    given = parser.parse_args(arguments)
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            print(line, flush=True)

    tap = (lambda way, data: say(f"{way} {data.hex(' ')}")) if given.raw else None
    with ExitStack() as stack:
        path = stack.enter_context(Simulation()).path if given.simulate else given.path
        link = Link(path, tap)
        link.start()
        stack.callback(link.stop)
        _converse(Console(link, say), given.seconds, given.show)
    return 0


def _converse(console: Console, seconds: float | None, show: float | None) -> None:
    begun = shown = time.monotonic()
    listening = True
    while seconds is None or time.monotonic() - begun < seconds:
        console.look()
        if show is not None and time.monotonic() - shown >= show:
            shown = time.monotonic()
            console.enter("show")
        if not listening:
            time.sleep(LOOK_S)
        elif select.select([sys.stdin], [], [], LOOK_S)[0]:
            line = sys.stdin.readline()
            if not line and seconds is None:
                return
            listening = bool(line)
            if line and not console.enter(line):
                return


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
