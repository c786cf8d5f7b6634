"""What the board sends, made into events. Whatever does not fit its layout raises WireError."""

import struct

from firmware_bridge import messages as m
from firmware_bridge.events import (
    BoardInfo,
    Description,
    Fed,
    Happened,
    Reference,
    Slots,
    Stats,
)
from firmware_bridge.wire import WireError

_TELEMETRY = struct.Struct(m.TELEMETRY_TELL)
_REFERENCE = struct.Struct(m.REFERENCE)
_HELLO_SIZE = struct.calcsize(m.HELLO_TELL)
_UPDATE_SIZE = struct.calcsize(m.UPDATE_TELL)
_DESCRIBE_SIZE = struct.calcsize(m.DESCRIBE_TELL)


def hello(payload: bytes) -> tuple[int, BoardInfo]:
    """The nonce that was echoed, and the board. What later versions append is not read."""
    f = m.unpack(m.HELLO_TELL, payload[:_HELLO_SIZE])
    info = BoardInfo(
        major=f[0],
        minor=f[1],
        boot_id=f[3],
        period_us=f[4],
        schema=f[5],
        channel_count=f[6],
        description_count=f[7],
        firmware=f"{f[8]}.{f[9]}.{f[10]}",
        reset_cause=f[11],
        power_cycles=f[12],
        uid=f[14].hex(),
    )
    return f[2], info


def description(payload: bytes) -> tuple[int, Description]:
    """Its index, and the description."""
    index, kind, scale, offset, sigma = m.unpack(m.DESCRIBE_TELL, payload[:_DESCRIBE_SIZE])
    name, separator, unit = payload[_DESCRIBE_SIZE:].partition(b"\0")
    if not separator:
        raise WireError("description")
    text = (name.decode("utf-8", "replace"), unit.decode("utf-8", "replace"))
    return index, Description(kind, *text, scale, offset, sigma)


def samples(
    payload: bytes, channels: int
) -> tuple[int, tuple[tuple[int, ...], ...], list[tuple[int, int, int]]]:
    """The lower 32 bits of the first index, the rows, and references as (row, channel, value)."""
    if len(payload) < _TELEMETRY.size:
        raise WireError("short")
    first, count, width, references, _ = _TELEMETRY.unpack_from(payload)
    end = _TELEMETRY.size + 2 * count * width
    if not count or width != channels or len(payload) != end + references * _REFERENCE.size:
        raise WireError("samples")
    flat = struct.unpack_from(f"<{count * width}h", payload, _TELEMETRY.size)
    rows = tuple(flat[at : at + width] for at in range(0, count * width, width))
    truths = list(_REFERENCE.iter_unpack(payload[end:]))
    if any(row >= count or channel >= width for row, channel, _ in truths):
        raise WireError("reference")
    return first, rows, truths


def references(first: int, truths: list[tuple[int, int, int]]) -> tuple[Reference, ...]:
    return tuple(Reference(first + row, channel, value) for row, channel, value in truths)


def happened(payload: bytes) -> Happened:
    return Happened(*m.unpack(m.EVENT_TELL, payload))


def fed(payload: bytes) -> tuple[Fed, int]:
    """The answer to a heartbeat, and the next challenge."""
    done, state, timeout_ms, left_ms, challenge = m.unpack(m.HEARTBEAT_TELL, payload)
    return Fed(done == 1, state, timeout_ms, left_ms), challenge


def slots(payload: bytes) -> Slots:
    """The answer to UpdateState. What later versions append is not read."""
    f = m.unpack(m.UPDATE_TELL, payload[:_UPDATE_SIZE])
    return Slots(
        slot="ab"[f[0]] if f[0] < 2 else "",
        trial=f[1] != 0,
        phase=f[2],
        reason=f[3],
        reverted=f[4] != 0,
        version=(f[5][0], f[5][1], f[5][2]),
        other=(f[6][0], f[6][1], f[6][2]),
        received=f[7],
        total=f[8],
        left_ms=f[9],
    )


def received(payload: bytes) -> int:
    """The answer to UpdateData: how many bytes of the image the board has."""
    count: int = m.unpack(m.UPDATE_DATA_TELL, payload)[0]
    return count


def stats(payload: bytes) -> tuple[int, Stats]:
    """The boot id, and the counters."""
    boot_id, *counts = m.unpack(m.STATS_TELL, payload)
    return boot_id, Stats(*counts)
