"""The messages of the protocol and their layouts. Shared with the firmware, as wire.py is.

The layouts of HELLO and of the updates (0x30 and on) are frozen for ever, so that any host can
renew any board; the others belong to a major version. Both ends hash the layouts that they were
built with, together with the board's descriptions of its channels and outputs: ends that would
read each other's bytes differently find out at HELLO.
"""

import struct
from binascii import crc32

from firmware_bridge.wire import WireError

try:  # noqa: SIM105 - nor does it know contextlib
    from typing import Any
except ImportError:  # MicroPython has no typing
    pass

MAJOR = 1
MINOR = 1

HELLO = 0x01
PING = 0x02
HEARTBEAT = 0x03
CLOCK = 0x04
DESCRIBE = 0x05
STREAM = 0x10
WATCHDOG = 0x11
WATCHDOG_STOP = 0x12
INHIBIT = 0x13
OUTPUT = 0x14
TELEMETRY = 0x20
EVENT = 0x21
ACK = 0x22
STATS = 0x23
UPDATE_STATE = 0x30
UPDATE_BEGIN = 0x31
UPDATE_DATA = 0x32
UPDATE_BOOT = 0x33
UPDATE_CONFIRM = 0x34

HELLO_ASK = "<BBI"
"""Lowest and highest major version, nonce."""
HELLO_TELL = "<BBIIIIBBBBBBHH8s"
"""Major, minor, nonce, boot id, period (µs), schema hash, channels, descriptions, firmware version
(3 bytes), reset cause, power cycles, reserved, unique id."""
HEARTBEAT_ASK = "<IHI"
"""Challenge, health bits, uptime (s)."""
HEARTBEAT_TELL = "<BBIII"
"""Fed (0 or 1), watchdog state, timeout (ms), left (ms), next challenge."""
CLOCK_TELL = "<Q"
"""Microseconds since the board booted."""
DESCRIBE_ASK = "<B"
DESCRIBE_TELL = "<BBfff"
"""Index, kind, scale, offset, sigma; then name, 00, unit in UTF-8."""
STREAM_ASK = "<B"
WATCHDOG_ASK = "<IIBB"
"""Timeout (ms), pre-timeout (ms), action, flags."""
WATCHDOG_STOP_ASK = "<BI"
"""STOP_WORD, challenge."""
INHIBIT_ASK = "<HB"
"""Seconds, reason."""
OUTPUT_ASK = "<BHH"
"""Output, value, dead-man time (ms)."""
TELEMETRY_TELL = "<IBBBB"
"""Index of the first sample, samples, channels, references, reserved; then the samples (i16 each, a
row per sample) and the references."""
REFERENCE = "<BBh"
"""Sample in this frame, channel, true value in the channel's own steps."""
EVENT_TELL = "<BHIQ"
"""Kind, number, argument, ticks."""
ACK_ASK = "<H"
STATS_TELL = "<IIIIIII"
"""Boot id, frames accepted, frames refused, frames not sent, samples taken late, samples skipped,
longest turn of the main loop (µs)."""
UPDATE_TELL = "<BBBBB3s3sIII"
"""Slot that runs (0 a, 1 b, 255 none), on trial (0 or 1), phase, reason, whether the last trial
failed, version that runs, version in the other slot (zeros: none), bytes received, bytes in all,
time left to confirm (ms)."""
UPDATE_BEGIN_ASK = "<HI"
"""Bytes of the image's head, bytes of the whole image."""
UPDATE_DATA_ASK = "<I"
"""Offset in the image; then at most UPDATE_PIECE bytes. None crosses the end of the head."""
UPDATE_DATA_TELL = "<I"
"""Bytes received so far."""
UPDATE_PIECE = 238
UPDATE_CONFIRM_ASK = "<3s"
"""The version that is to stay: a board that runs another refuses."""

LAYOUTS = (
    (HELLO, HELLO_ASK, HELLO_TELL),
    (HEARTBEAT, HEARTBEAT_ASK, HEARTBEAT_TELL),
    (CLOCK, "", CLOCK_TELL),
    (DESCRIBE, DESCRIBE_ASK, DESCRIBE_TELL),
    (STREAM, STREAM_ASK, ""),
    (WATCHDOG, WATCHDOG_ASK, ""),
    (WATCHDOG_STOP, WATCHDOG_STOP_ASK, ""),
    (INHIBIT, INHIBIT_ASK, ""),
    (OUTPUT, OUTPUT_ASK, ""),
    (TELEMETRY, REFERENCE, TELEMETRY_TELL),
    (EVENT, ACK_ASK, EVENT_TELL),
    (STATS, "", STATS_TELL),
)

UNKNOWN_TYPE = 1
BAD_LENGTH = 2
BAD_ARGUMENT = 3
DENIED = 4
NOT_GREETED = 5
NOT_YET = 6
"""Error codes. The last two: the board has booted since, and must be greeted before it obeys; the
firmware on trial has not watched itself for long enough."""

CHANNEL = 0
ACTUATOR = 1
"""Kinds of description. Of an output, offset is the safe value and sigma the highest."""
UNREAD = -32_768
"""A sample's raw value where the sensor could not be read: never taken for a measurement."""
MAX_DESCRIPTIONS = 64
MAX_CHANNELS = 16

OFF = 0
ARMED = 1
PRETIMEOUT = 2
CUT = 3
BOOTING = 4
LATCHED = 5
INHIBITED = 6
"""States of the watchdog."""

ACTION_NONE = 0
ACTION_CYCLE = 1
NOWAYOUT = 1
PULSE_BUTTON = 2
"""Flags of WATCHDOG: it cannot be stopped; the pre-timeout pulses the host's power button."""
STOP_WORD = 0x56
MIN_TIMEOUT_MS = 100
MAX_TIMEOUT_MS = 600_000
MAX_INHIBIT_S = 900

BUTTON = 1
BUTTON_LONG = 2
EV_PRETIMEOUT = 3
EV_CYCLE = 4
EV_LATCHED = 5
EV_OVERTEMPERATURE = 6
EV_FAN = 7
EV_BOOT = 8
EV_DEADMAN = 9
EV_UPDATED = 10
EV_REVERTED = 11
"""Kinds of event. The last two: a firmware on trial was kept, or was not; the argument is its
version."""

UP_IDLE = 0
UP_HEAD = 1
UP_CHECKING = 2
UP_FILES = 3
UP_PROVING = 4
UP_COMPLETE = 5
UP_REFUSED = 6
UP_NO_SLOTS = 7
"""Phases of an update: takes the head, checks its signature, takes files, hashes them, is whole and
may be tried."""

WHY_SIGNATURE = 1
WHY_NO_KEY = 2
WHY_MANIFEST = 3
WHY_BOARD = 4
WHY_OLD = 5
WHY_MINIMUM = 6
WHY_HASH = 7
WHY_FLASH = 8
"""Why an image was refused."""

RESET_POWER = 1
RESET_WATCHDOG = 2
RESET_OTHER = 3
"""Reset causes."""


def unpack(layout: str, payload: bytes) -> tuple[Any, ...]:
    """The fields of `payload`, which must have just this layout."""
    if struct.calcsize(layout) != len(payload):
        raise WireError("length")
    return struct.unpack(layout, payload)


def describe(index: int, kind: int, row: tuple[str, str, float, float, float]) -> bytes:
    """A description's payload. `row` is name, unit, scale, offset, sigma."""
    name, unit, scale, offset, sigma = row
    head = struct.pack(DESCRIBE_TELL, index, kind, scale, offset, sigma)
    return head + name.encode() + b"\0" + unit.encode()


def schema_hash(descriptions: list[bytes]) -> int:
    """What both ends must agree on: the layouts, and the descriptions in their order."""
    text = ";".join([f"{row[0]},{row[1]},{row[2]}" for row in LAYOUTS])
    value = crc32(text.encode())
    for description in descriptions:
        value = crc32(description, value)
    return value & 0xFFFFFFFF
