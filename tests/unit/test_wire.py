"""The frame codec: what goes in comes out, and garbage does no harm."""

import random
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware_bridge import messages as m
from firmware_bridge.wire import (
    MAX_ENCODED,
    MAX_PAYLOAD,
    Decoder,
    WireError,
    cobs_decode,
    cobs_encode,
    decode,
    encode,
)
from tests.unit import micropython

fields = st.tuples(
    st.integers(0, 15),
    st.integers(0, 255),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.binary(max_size=MAX_PAYLOAD),
)


@given(fields)
def test_any_frame_comes_back(frame: tuple[int, int, int, int, bytes]) -> None:
    data = encode(*frame)
    assert data.count(0) == 2
    assert [got.fields() for got in Decoder().feed(data)] == [frame]


@given(st.binary(max_size=254))
def test_any_body_comes_back_without_zeros(body: bytes) -> None:
    encoded = bytes(cobs_encode(body))
    assert 0 not in encoded
    assert cobs_decode(encoded) == body


def test_longest_body_without_a_zero_comes_back() -> None:
    assert cobs_decode(bytes(cobs_encode(b"\x01" * 254))) == b"\x01" * 254


def test_too_long_a_payload_is_not_sent() -> None:
    with pytest.raises(WireError):
        encode(0, 1, 1, 0, bytes(MAX_PAYLOAD + 1))


@given(st.binary(max_size=600))
def test_garbage_raises_only_the_wires_own_error(garbage: bytes) -> None:
    for read in (cobs_decode, decode):
        with suppress(WireError):
            read(garbage)


@given(st.lists(fields, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_pieces_of_any_size_make_the_same_frames(
    frames: list[tuple[int, int, int, int, bytes]], sizes: list[int]
) -> None:
    data = b"".join(encode(*frame) for frame in frames)
    decoder, got, at, turn = Decoder(), [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        got += decoder.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert [frame.fields() for frame in got] == frames


def test_a_byte_at_a_time_is_enough() -> None:
    decoder = Decoder()
    got = [frame for byte in encode(1, 2, 3, 4, b"five") for frame in decoder.feed(bytes([byte]))]
    assert [frame.fields() for frame in got] == [(1, 2, 3, 4, b"five")]


@given(st.binary(max_size=700), fields)
def test_noise_costs_no_frame_that_follows(
    noise: bytes, frame: tuple[int, int, int, int, bytes]
) -> None:
    assert frame in [got.fields() for got in Decoder().feed(noise + encode(*frame))]


def test_endless_noise_is_not_kept() -> None:
    decoder = Decoder()
    for _ in range(1000):
        assert decoder.feed(b"\xff" * 997) == []
    assert len(decoder._held) <= MAX_ENCODED
    assert len(decoder.feed(encode(0, 1, 2, 3))) == 1
    assert decoder.bad == 1


def test_another_version_is_not_a_frame() -> None:
    body = struct.pack("<BBHI", 2 << 4, 1, 1, 0)
    body += struct.pack("<I", zlib.crc32(body))
    with pytest.raises(WireError, match="version"):
        decode(bytes(cobs_encode(body)))


def test_no_damaged_frame_is_accepted() -> None:
    dice = random.Random(1)
    good = encode(0, 0x20, 7, 9, bytes(range(1, 169)))[1:-1]
    for _ in range(20_000):
        damaged = bytearray(good)
        for _ in range(dice.randint(1, 6)):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        if damaged != good:
            with pytest.raises(WireError):
                decode(bytes(damaged))


@settings(max_examples=200)
@given(st.binary(max_size=60), st.sampled_from([layout for row in m.LAYOUTS for layout in row[1:]]))
def test_a_payload_has_just_its_layout_or_is_refused(payload: bytes, layout: object) -> None:
    with suppress(WireError):
        m.unpack(str(layout), payload)


VECTORS = [
    (0, 1, 2, 3, b""),
    (15, 255, 65535, 4294967295, b"\0" * MAX_PAYLOAD),
    (1, 32, 258, 16909060, bytes(range(MAX_PAYLOAD))),
    (2, 3, 4, 5, b"\xff" * 100 + b"\0" + b"\x01" * 100),
]


def test_micropython_makes_and_reads_the_same_bytes() -> None:
    """The firmware's interpreter runs the same file, on frames, on a stream and on garbage."""
    stream = b"\x07noise" + b"".join(encode(*vector) for vector in VECTORS) + b"\xff" * 300 + b"\0"
    program = f"""
from firmware_bridge.messages import schema_hash, describe
from firmware_bridge.wire import Decoder, encode
vectors = {VECTORS!r}
print([encode(*vector) for vector in vectors] == {[encode(*v) for v in VECTORS]!r})
decoder = Decoder()
got = []
for byte in {stream!r}:
    got += [frame.fields() for frame in decoder.feed(bytes([byte]))]
print(got == vectors, decoder.bad)
print(schema_hash([describe(1, 0, ("a", "V", 0.5, 0.25, 2.0))]))
"""
    done = micropython.run(program)
    expected = m.schema_hash([m.describe(1, 0, ("a", "V", 0.5, 0.25, 2.0))])
    assert done.stdout.split() == ["True", "True", "2", str(expected)], done.stderr
