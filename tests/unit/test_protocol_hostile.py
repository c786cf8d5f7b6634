"""The conversation with a board that says anything at all: nothing raises, nothing grows."""

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from firmware_bridge import messages as m
from firmware_bridge.account import IndexAccount
from firmware_bridge.commands import Ping
from firmware_bridge.events import Done
from firmware_bridge.protocol import MAX_OUTGOING, Session
from firmware_bridge.wire import encode
from tests.unit.protocol_parts import answer, greeted, streaming


def test_garbage_on_the_line_is_survived() -> None:
    pair = streaming()
    dice = random.Random(5)
    for _ in range(200):
        pair.events += pair.session.receive(dice.randbytes(300), pair.now)
        pair.hal.received += dice.randbytes(300)
        pair.run(0.01)
    sent = pair.session.send(Ping(b"still there"), pair.now)
    pair.run(0.5)
    outcome = answer(pair, sent)
    assert isinstance(outcome, Done)
    assert outcome.payload == b"still there"


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=300), max_size=10))
def test_no_bytes_raise_anything(pieces: list[bytes]) -> None:
    session = Session(1)
    session.connected(0.0)
    for at, piece in enumerate(pieces):
        session.receive(piece, at / 10)
        assert len(session.outgoing()) < 2 * MAX_OUTGOING


hostile = st.builds(
    encode,
    st.integers(0, 15),
    st.sampled_from([row[0] for row in m.LAYOUTS] + [m.PING, m.ACK, 0x55]),
    st.integers(0, 3),
    st.integers(0, 0xFFFFFFFF),
    st.binary(max_size=60),
)


@settings(max_examples=200)
@given(st.lists(hostile, max_size=40))
def test_no_hostile_board_raises_anything_or_fills_memory(frames: list[bytes]) -> None:
    pair = greeted(seed=0)
    session = pair.session
    for at, frame in enumerate(frames):
        session.receive(frame, pair.now + at / 100)
        assert len(session.outgoing()) < 2 * MAX_OUTGOING
        assert (deadline := session.deadline()) is None or deadline < pair.now + 60


def test_flood_of_events_fills_no_memory() -> None:
    pair = greeted()
    for number in range(5000):
        event = struct.pack(m.EVENT_TELL, 1, number, 0, number)
        pair.session.receive(encode(0, m.EVENT, 0, 0, event), pair.now)
    assert len(pair.session.outgoing()) < 2 * MAX_OUTGOING
    assert len(pair.session.readings._seen) <= 256


def test_index_wraps_without_a_gap() -> None:
    account = IndexAccount()
    account.take(account.extend(0xFFFFFFFB), 5)
    assert account.take(account.extend(0), 5) == (True, 0)
    assert account.take(account.extend(10), 5) == (True, 5)
    assert (account.arrived, account.lost) == (15, 5)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), max_size=60))
def test_arrived_and_lost_always_add_up(frames: list[tuple[int, int]]) -> None:
    account = IndexAccount()
    seen: set[int] = set()
    for first, count in frames:
        new, _ = account.take(first, count)
        if new:
            taken = set(range(first, first + count))
            assert not taken & seen
            seen |= taken
    assert account.arrived == len(seen)
    assert account.lost == (max(seen) - min(seen) + 1 - len(seen) if seen else 0)
