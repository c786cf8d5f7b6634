"""How daemon and engine talk: frames of `u32le length ‖ msgpack` over a Unix socketpair, typed
structs, never pickle."""

import struct
from collections.abc import Iterator

import msgspec

from appliance.engine.commands import Command
from appliance.engine.reports import Report

MAX_FRAME = 64 * 1024 * 1024
"""Bytes. A larger length prefix means the stream is out of step: the peer is treated as dead."""

_LENGTH = struct.Struct("<I")

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def frame(message: Command | Report) -> bytes:
    """The message as it travels."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class OutOfStep(ValueError):
    """The peer sent what is no frame; nothing after it can be trusted."""


class Frames:
    """Cuts a byte stream into message bodies. `feed` what arrived, then iterate."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        buffer = self._buffer
        while len(buffer) - start >= 4:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if size > MAX_FRAME:
                raise OutOfStep(f"frame of {size} bytes; at most {MAX_FRAME} are allowed")
            if len(buffer) - start - 4 < size:
                break
            yield bytes(buffer[start + 4 : start + 4 + size])
            start += 4 + size
        del buffer[:start]


def decode_command(body: bytes) -> Command:
    """Raises OutOfStep when the body is no command."""
    try:
        return _commands.decode(body)
    except msgspec.MsgspecError as error:
        raise OutOfStep(str(error)) from error


def decode_report(body: bytes) -> Report:
    """Raises OutOfStep when the body is no report."""
    try:
        return _reports.decode(body)
    except msgspec.MsgspecError as error:
        raise OutOfStep(str(error)) from error
