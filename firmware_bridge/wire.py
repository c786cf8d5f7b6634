"""Frames on the line to the board. The same file runs on the host and in the firmware.

    00  COBS(body)  00        body, little-endian, at most 254 bytes (one COBS block):
    0   u8   version << 4 | flags
    1   u8   type             the messages are in messages.py
    2   u16  seq              a command's own number, which its answer repeats
    4   u32  ticks            the board's microseconds when it sent this; 0 from the host
    8        payload, 0 to 242 bytes
    -4  u32  CRC-32 (zlib's) of all that stands before it

The leading 00 ends whatever noise came before, so that noise costs no good frame. MicroPython reads
this file: annotations are parsed there but never evaluated, and `typing` does not exist.
"""

import struct
from binascii import crc32

VERSION = 1
ACKREQ = 1
REPLY = 2
ERROR = 4
URGENT = 8
"""Flags: wants an answer; is one; the answer is an error code; sent without being asked."""

HEADER = "<BBHI"
HEADER_SIZE = 8
CRC_SIZE = 4
MAX_BODY = 254
MAX_PAYLOAD = MAX_BODY - HEADER_SIZE - CRC_SIZE
MAX_ENCODED = MAX_BODY + 1
"""Bytes between two delimiters. More is not a frame, and is not kept."""


class WireError(ValueError):
    """Bytes that are not what they claim to be. The only thing that garbage raises."""


class Frame:
    """One message, as sent or as received."""

    __slots__ = ("flags", "payload", "seq", "ticks", "type")

    def __init__(self, flags: int, kind: int, seq: int, ticks: int, payload: bytes) -> None:
        self.flags = flags
        self.type = kind
        self.seq = seq
        self.ticks = ticks
        self.payload = payload

    def fields(self) -> tuple[int, int, int, int, bytes]:
        return self.flags, self.type, self.seq, self.ticks, self.payload


def cobs_encode(body: bytes) -> bytearray:
    """`body` (at most 254 bytes) without zeros."""
    size = len(body)
    out = bytearray(size + 1)
    out[1:] = body
    code = 0
    zero = body.find(b"\0")
    while zero >= 0:
        out[code] = zero + 1 - code
        code = zero + 1
        zero = body.find(b"\0", code)
    out[code] = size + 1 - code
    return out


def cobs_decode(encoded: bytes) -> bytes:
    size = len(encoded)
    if not 0 < size <= MAX_ENCODED:
        raise WireError("size")
    out = bytearray(encoded)
    at = 0
    while at < size:
        step = out[at]
        if step == 0 or at + step > size:
            raise WireError("COBS")
        out[at] = 0
        at += step
    return bytes(out[1:])


def encode(flags: int, kind: int, seq: int, ticks: int, payload: bytes = b"") -> bytes:
    """The bytes to send, delimiters included."""
    if len(payload) > MAX_PAYLOAD:
        raise WireError("payload too long")
    head = struct.pack(HEADER, VERSION << 4 | flags & 15, kind, seq & 0xFFFF, ticks & 0xFFFFFFFF)
    body = head + payload
    body += struct.pack("<I", crc32(body) & 0xFFFFFFFF)
    return b"\0" + bytes(cobs_encode(body)) + b"\0"


def decode(encoded: bytes) -> Frame:
    """What stood between two delimiters."""
    body = cobs_decode(encoded)
    end = len(body) - CRC_SIZE
    if end < HEADER_SIZE:
        raise WireError("short")
    if crc32(body[:end]) & 0xFFFFFFFF != struct.unpack("<I", body[end:])[0]:
        raise WireError("CRC")
    first, kind, seq, ticks = struct.unpack(HEADER, body[:HEADER_SIZE])
    if first >> 4 != VERSION:
        raise WireError("version")
    return Frame(first & 15, kind, seq, ticks, body[HEADER_SIZE:end])


class Decoder:
    """Bytes in, in pieces of any size; frames out. Holds at most one frame's bytes."""

    def __init__(self) -> None:
        self.bad = 0
        """Pieces that were not frames: noise, damage, another version."""
        self._held = bytearray()
        self._overlong = False

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        start = 0
        end = data.find(b"\0")
        while end >= 0:
            self._hold(data[start:end])
            self._finish(frames)
            start = end + 1
            end = data.find(b"\0", start)
        self._hold(data[start:])
        return frames

    def reset(self) -> None:
        """Forget what was begun: the line was cut."""
        self._held = bytearray()
        self._overlong = False

    def _hold(self, piece: bytes) -> None:
        if self._overlong or len(self._held) + len(piece) > MAX_ENCODED:
            self._overlong = True
        elif piece:
            self._held.extend(piece)

    def _finish(self, frames: list[Frame]) -> None:
        held, overlong = bytes(self._held), self._overlong
        self.reset()
        if overlong:
            self.bad += 1
        elif held:
            try:
                frames.append(decode(held))
            except WireError:
                self.bad += 1
