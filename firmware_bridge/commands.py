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


@dataclass(frozen=True, slots=True)
class UpdateState:
    """How the slots and an update stand (`parse.update`)."""


@dataclass(frozen=True, slots=True)
class UpdateBegin:
    """An image of so many bytes comes, the first `head_size` of them its head."""

    head_size: int
    total: int


@dataclass(frozen=True, slots=True)
class UpdateData:
    """Bytes of the image at their offset. Sent twice, they are taken once."""

    offset: int
    piece: bytes


@dataclass(frozen=True, slots=True)
class UpdateBoot:
    """Boot anew, and try the new firmware."""


@dataclass(frozen=True, slots=True)
class UpdateConfirm:
    """The firmware on trial, of this version, is to stay."""

    version: tuple[int, int, int]


Updating = UpdateState | UpdateBegin | UpdateData | UpdateBoot | UpdateConfirm
"""What a board takes even when its schema is another."""
Command = Heartbeat | Stream | ConfigureWatchdog | StopWatchdog | Inhibit | Output | Ping | Updating


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
        case UpdateBegin(head_size, total):
            sound = 0 < head_size <= 0xFFFF and head_size < total <= 0xFFFFFFFF
        case UpdateConfirm(version):
            sound = len(version) == 3 and all(0 <= part <= 255 for part in version)
        case UpdateData(offset, piece):
            sound = 0 <= offset <= 0xFFFFFFFF and 0 < len(piece) <= m.UPDATE_PIECE
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
        case _:
            return _update(command)


def _update(command: Updating) -> tuple[int, bytes]:
    match command:
        case UpdateState():
            return m.UPDATE_STATE, b""
        case UpdateBegin(head_size, total):
            return m.UPDATE_BEGIN, struct.pack(m.UPDATE_BEGIN_ASK, head_size, total)
        case UpdateData(offset, piece):
            return m.UPDATE_DATA, struct.pack(m.UPDATE_DATA_ASK, offset) + piece
        case UpdateBoot():
            return m.UPDATE_BOOT, b""
        case UpdateConfirm(version):
            return m.UPDATE_CONFIRM, struct.pack(m.UPDATE_CONFIRM_ASK, bytes(version))


def _watchdog(command: ConfigureWatchdog) -> bytes:
    action = m.ACTION_CYCLE if command.cycle_power else m.ACTION_NONE
    flags = m.NOWAYOUT * command.nowayout | m.PULSE_BUTTON * command.pulse_button
    return struct.pack(m.WATCHDOG_ASK, command.timeout_ms, command.pretimeout_ms, action, flags)
