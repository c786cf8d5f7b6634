"""What the host asks of the board, and the bounds of each value."""

import struct
from dataclasses import dataclass

from firmware_bridge import messages as m
from firmware_bridge.wire import MAX_PAYLOAD

MAX_DEADMAN_MS = 0xFFFF


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Proof that the engine made progress since the last one; never sent by a timer alone."""

    health: int = 0
    uptime_s: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """Begin or end the stream of samples."""

    on: bool


@dataclass(frozen=True, slots=True)
class ConfigureWatchdog:
    timeout_ms: int = 30_000
    pretimeout_ms: int = 22_500
    cycle_power: bool = True
    nowayout: bool = True
    pulse_button: bool = False


@dataclass(frozen=True, slots=True)
class StopWatchdog:
    """Refused by the board once it was armed with `nowayout`."""


@dataclass(frozen=True, slots=True)
class Inhibit:
    """No action of the watchdog for so long: a planned restart. Zero ends it."""

    seconds: int
    reason: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """Drive an output; it returns to its safe value when not repeated within `max_ms`."""

    output: int
    value: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class Ping:
    payload: bytes = b""


Command = Heartbeat | Stream | ConfigureWatchdog | StopWatchdog | Inhibit | Output | Ping


@dataclass(frozen=True, slots=True)
class Refusal:
    """The command was not taken, and why."""

    reason: str


def check(command: Command) -> Refusal | None:
    """Whether the command's values are within the protocol's bounds."""
    match command:
        case Heartbeat(health, uptime_s):
            sound = 0 <= health <= 0xFFFF and 0 <= uptime_s <= 0xFFFFFFFF
        case ConfigureWatchdog(timeout_ms, pretimeout_ms):
            sound = m.MIN_TIMEOUT_MS <= timeout_ms <= m.MAX_TIMEOUT_MS
            sound = sound and 0 < pretimeout_ms < timeout_ms
        case Inhibit(seconds, reason):
            sound = 0 <= seconds <= m.MAX_INHIBIT_S and 0 <= reason <= 0xFF
        case Output(output, value, max_ms):
            sound = 0 <= output <= 0xFF and 0 <= value <= 0xFFFF and 0 < max_ms <= MAX_DEADMAN_MS
        case Ping(payload):
            sound = len(payload) <= MAX_PAYLOAD
        case _:
            sound = True
    return None if sound else Refusal("a value is out of its bounds")


def encode(command: Command, challenge: int) -> tuple[int, bytes]:
    """Type and payload of a checked command; `challenge` is the board's last one."""
    match command:
        case Heartbeat(health, uptime_s):
            return m.HEARTBEAT, struct.pack(m.HEARTBEAT_ASK, challenge, health, uptime_s)
        case Stream(on):
            return m.STREAM, struct.pack(m.STREAM_ASK, on)
        case ConfigureWatchdog():
            return m.WATCHDOG, _watchdog(command)
        case StopWatchdog():
            return m.WATCHDOG_STOP, struct.pack(m.WATCHDOG_STOP_ASK, m.STOP_WORD, challenge)
        case Inhibit(seconds, reason):
            return m.INHIBIT, struct.pack(m.INHIBIT_ASK, seconds, reason)
        case Output(output, value, max_ms):
            return m.OUTPUT, struct.pack(m.OUTPUT_ASK, output, value, max_ms)
        case Ping(payload):
            return m.PING, payload


def _watchdog(command: ConfigureWatchdog) -> bytes:
    action = m.ACTION_CYCLE if command.cycle_power else m.ACTION_NONE
    flags = m.NOWAYOUT * command.nowayout | m.PULSE_BUTTON * command.pulse_button
    return struct.pack(m.WATCHDOG_ASK, command.timeout_ms, command.pretimeout_ms, action, flags)
