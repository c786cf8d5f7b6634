"""The announcement on the local network: packets, what is said and when, and real sockets."""

import contextlib
import dataclasses
import ipaddress
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.discovery.errors import BadPacket
from appliance.discovery.service import KIND, Service
from appliance.discovery.speaker import Speaker
from appliance.discovery.wire import (
    Kind,
    Message,
    Name,
    Question,
    Record,
    decode,
    encode,
    name_of,
    packed,
)

HERE = "192.0.2.7"
SERVICE = Service("Büro box", "steelyard-1a2b3c4d", 8421, ("txtvers=1", "path=/v1"))
BROWSE = Question(KIND, Kind.PTR)


# Packets

labels = st.binary(min_size=1, max_size=63)
names = st.lists(labels, max_size=3).map(tuple)
records = st.builds(
    Record,
    name=names,
    kind=st.sampled_from([Kind.A, Kind.TXT, Kind.AAAA, 999]),
    data=st.binary(max_size=40),
    ttl=st.integers(0, 2**32 - 1),
    flush=st.booleans(),
)
messages = st.builds(
    Message,
    response=st.booleans(),
    questions=st.lists(
        st.builds(Question, name=names, kind=st.integers(0, 65535), unicast=st.booleans()),
        max_size=3,
    ).map(tuple),
    answers=st.lists(records, max_size=3).map(tuple),
    authorities=st.lists(records, max_size=2).map(tuple),
    additionals=st.lists(records, max_size=2).map(tuple),
    id=st.integers(0, 65535),
)


@given(messages)
@settings(max_examples=60, deadline=None)
def test_what_is_packed_is_read_again(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_garbage_raises_our_error_alone(data: bytes) -> None:
    for packet in (data, bytes(4) + struct.pack(">4H", 1, 1, 1, 1) + data):
        with contextlib.suppress(BadPacket):
            decode(packet)


@given(messages, st.data())
@settings(max_examples=60, deadline=None)
def test_a_packet_cut_short_is_refused_or_says_less(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(BadPacket):
        decode(cut)


def test_names_may_be_compressed_but_never_in_a_circle() -> None:
    head = struct.pack(">6H", 0, 0, 2, 0, 0, 0)
    first = packed((b"Box", b"local")) + struct.pack(">2H", 1, 1)
    second = b"\3sub" + b"\xc0\x10" + struct.pack(">2H", 1, 1)  # to `local`, 12 + 4 bytes in
    found = decode(head + first + second)
    assert found.questions[1].name == (b"sub", b"local")
    for circle in (b"\xc0\x0c", b"\1a\xc0\x0c", b"\xc0\x0e\xc0\x0c", b"\xc0\xff"):
        with pytest.raises(BadPacket):
            decode(struct.pack(">6H", 0, 0, 1, 0, 0, 0) + circle + bytes(8))


# What is said


def plain(service: Service = SERVICE, now: float = 0.0, address: str = HERE) -> Speaker:
    return Speaker(service, [address], now, chance=lambda: 0.5, ours=[address])


def until_ready(speaker: Speaker, now: float = 0.0) -> tuple[list[Message], float]:
    """All that it says by itself, and when it is done."""
    said: list[Message] = []
    while speaker.wake_at is not None:
        now = max(now, speaker.wake_at)
        said += map(decode, speaker.due(now))
    return said, now


def heard(speaker: Speaker, now: float, *questions: Question, **more: object) -> list[Message]:
    """What it answers to everybody."""
    message = Message(response=False, questions=questions)
    assert speaker.hear(now, dataclasses.replace(message, **more)) is None  # type: ignore[arg-type]
    at = speaker.wake_at
    return list(map(decode, speaker.due(at))) if at is not None else []


def test_it_asks_three_times_whether_the_names_are_free_and_tells_twice() -> None:
    said, took = until_ready(plain())
    assert [message.response for message in said] == [False] * 3 + [True] * 2
    for probe in said[:3]:
        assert {question.name for question in probe.questions} == {
            SERVICE.instance,
            SERVICE.host_name,
        }
        assert probe.authorities == SERVICE.unique([HERE])
    for told in said[3:]:
        kinds = {(record.name, record.kind) for record in told.answers}
        assert (KIND, Kind.PTR) in kinds
        assert (SERVICE.instance, Kind.SRV) in kinds
        assert (SERVICE.host_name, Kind.A) in kinds
    assert took >= 3 * 0.25 + 1.0
    assert all(len(encode(message)) < 1232 for message in said)


def test_a_browser_learns_all_in_one_answer() -> None:
    speaker = plain()
    _, now = until_ready(speaker)
    (answer,) = heard(speaker, now + 5, BROWSE)
    (pointer,) = answer.answers
    assert (pointer.data, pointer.flush) == (packed(SERVICE.instance), False)
    by_kind = {record.kind: record for record in answer.additionals}
    assert struct.unpack(">HHH", by_kind[Kind.SRV].data[:6]) == (0, 0, 8421)
    assert by_kind[Kind.SRV].data[6:] == packed(SERVICE.host_name)
    assert by_kind[Kind.TXT].data == b"\x09txtvers=1\x08path=/v1"
    assert by_kind[Kind.A].data == ipaddress.IPv4Address(HERE).packed


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (SERVICE.instance, Kind.SRV, {Kind.SRV}),
        (SERVICE.instance, Kind.ANY, {Kind.SRV, Kind.TXT}),
        ((b"B\xc3\xbcRO BOX", *KIND), Kind.TXT, {Kind.TXT}),
        ((b"STEELYARD-1A2B3C4D", b"LOCAL"), Kind.A, {Kind.A}),
        (SERVICE.host_name, Kind.AAAA, {Kind.NSEC}),
        (name_of("_services._dns-sd._udp.local"), Kind.PTR, {Kind.PTR}),
        (name_of("_http._tcp.local"), Kind.PTR, set()),
        (name_of("other.local"), Kind.A, set()),
    ],
)
def test_it_answers_for_its_own_names_alone(name: Name, kind: Kind, expected: set[Kind]) -> None:
    speaker = plain()
    _, now = until_ready(speaker)
    found = heard(speaker, now + 5, Question(name, kind))
    assert {record.kind for message in found for record in message.answers} == expected


def test_what_the_asker_knows_is_not_said_again() -> None:
    speaker = plain()
    _, now = until_ready(speaker)
    known = SERVICE.shared()[:1]
    assert heard(speaker, now + 5, BROWSE, answers=known) == []
    stale = tuple(dataclasses.replace(record, ttl=10) for record in known)
    assert len(heard(speaker, now + 5, BROWSE, answers=stale)) == 1


def test_the_same_is_not_said_twice_within_a_second() -> None:
    speaker = plain()
    _, now = until_ready(speaker)
    assert len(heard(speaker, now + 5, BROWSE)) == 1
    assert heard(speaker, now + 5.5, BROWSE) == []
    assert len(heard(speaker, now + 7, BROWSE)) == 1


def test_many_questions_at_once_get_one_answer() -> None:
    speaker = plain()
    _, now = until_ready(speaker)
    for _ in range(1000):
        speaker.hear(now + 5, Message(response=False, questions=(BROWSE,)))
    assert len(speaker.due(now + 6)) == 1


def test_an_asker_that_knows_dns_alone_gets_an_answer_of_its_own() -> None:
    speaker = plain()
    _, now = until_ready(speaker)
    question = Message(response=False, questions=(BROWSE,), id=77)
    reply = speaker.hear(now + 5, question, legacy=True)
    assert reply is not None
    found = decode(reply)
    assert (found.id, found.questions) == (77, (BROWSE,))
    assert all(record.ttl <= 10 and not record.flush for record in found.answers)
    assert speaker.wake_at is None, "nobody else is told"


def test_nothing_is_answered_before_the_names_are_ours() -> None:
    speaker = plain()
    assert speaker.hear(0, Message(response=False, questions=(BROWSE,)), legacy=True) is None
    assert speaker.goodbye() is None


def test_a_name_that_another_has_is_given_up_for_the_next() -> None:
    other = dataclasses.replace(SERVICE, host="another", port=1)
    taken = Message(response=True, answers=other.unique(["192.0.2.9"]))
    for ready in (False, True):
        speaker = plain()
        now = until_ready(speaker)[1] if ready else speaker.wake_at or 0.0
        speaker.due(now)
        speaker.hear(now + 0.1, taken)
        said, _ = until_ready(speaker, now + 0.1)
        assert speaker.service.instance == ("Büro box (2)".encode(), *KIND)
        assert [message.response for message in said] == [False] * 3 + [True] * 2


def test_its_own_words_and_other_networks_of_its_own_dispute_nothing() -> None:
    speaker = Speaker(SERVICE, [HERE], 0.0, chance=lambda: 0.5, ours=[HERE, "198.51.100.4"])
    said, now = until_ready(speaker)
    for message in said:
        speaker.hear(now, message)
    elsewhere = Message(response=True, answers=SERVICE.unique(["198.51.100.4"]))
    speaker.hear(now, elsewhere)
    ended = dataclasses.replace(SERVICE, port=1).unique([HERE])
    gone = tuple(dataclasses.replace(record, ttl=0) for record in ended)
    speaker.hear(now, Message(response=True, answers=gone))
    assert speaker.service.number == 1
    assert not speaker.probing


@pytest.mark.parametrize("seed", range(8))
def test_two_of_one_name_that_start_together_end_with_two_names(seed: int) -> None:
    """A network of two, with the delay of each packet by chance."""
    chance = random.Random(seed)
    other = dataclasses.replace(SERVICE, host="steelyard-ffffffff")
    pair = [
        Speaker(SERVICE, [HERE], 0.0, chance.random, [HERE]),
        Speaker(other, ["192.0.2.9"], 0.0, chance.random, ["192.0.2.9"]),
    ]
    for _ in range(500):
        waking = [speaker for speaker in pair if speaker.wake_at is not None]
        if not waking:
            break
        speaker = min(waking, key=lambda one: one.wake_at or 0.0)
        now = speaker.wake_at or 0.0
        for packet in speaker.due(now):
            for one in pair:
                one.hear(now, decode(packet))
    assert not any(speaker.probing for speaker in pair)
    assert sorted(speaker.service.number for speaker in pair) == [1, 2]


def test_the_end_is_told() -> None:
    speaker = plain()
    until_ready(speaker)
    packet = speaker.goodbye()
    assert packet is not None
    found = decode(packet)
    assert {record.ttl for record in found.answers} == {0}
    assert {record.kind for record in found.answers} == {Kind.PTR, Kind.SRV, Kind.TXT, Kind.A}


def test_both_kinds_of_address_are_told_and_what_there_is_not() -> None:
    both, six = [HERE, "2001:db8::7"], ["fe80::7"]
    for addresses, kinds, bits in (
        ([HERE], {Kind.A}, bytes([0, 1, 0x40])),
        (six, {Kind.AAAA}, bytes([0, 4, 0, 0, 0, 0x08])),
        (both, {Kind.A, Kind.AAAA}, bytes([0, 4, 0x40, 0, 0, 0x08])),
    ):
        told = SERVICE.unique(addresses)
        assert {one.kind for one in told} == kinds | {Kind.SRV, Kind.TXT}
        assert decode(encode(Message(response=True, answers=told))).answers == told
        (nsec,) = (one for one in SERVICE.nothing_else(addresses) if one.name == SERVICE.host_name)
        assert nsec.data == packed(SERVICE.host_name) + bits
    (record,) = (one for one in SERVICE.unique(six) if one.kind == Kind.AAAA)
    assert record.data == ipaddress.ip_address("fe80::7").packed


def test_a_long_name_is_made_short_without_breaking_a_letter() -> None:
    service = dataclasses.replace(SERVICE, label="ü" * 48, number=12)
    label = service.instance[0]
    assert len(label) <= 63
    assert label.decode().endswith(" (12)")
