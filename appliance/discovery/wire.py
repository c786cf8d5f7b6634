"""Messages of DNS as multicast DNS uses them (RFC 1035, RFC 6762): bytes to values and back. Pure.

Names are tuples of labels as bytes; what is compared is compared in lower case. We never compress
what we send; all of it fits into one packet.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from appliance.discovery.errors import BadPacket

Name = tuple[bytes, ...]

MOST_BYTES = 9000
"""Of a packet that is read (RFC 6762, 17)."""
_MOST_ITEMS = 256
_LABEL, _WHOLE = 63, 255
_JUMPS = 32
_IN = 1
_TOP = 0x8000
"""In a class: of a record, it replaces all others of its kind; of a question, a unicast answer will
do."""
_RESPONSE, _AUTHORITATIVE = 0x8000, 0x0400
_OPCODE_AND_RCODE = 0x780F
_HEADER = struct.Struct(">6H")
_QUESTION = struct.Struct(">HH")
_RECORD = struct.Struct(">HHIH")


class Kind(IntEnum):
    """Types of records that we know."""

    A = 1
    PTR = 12
    TXT = 16
    AAAA = 28
    SRV = 33
    NSEC = 47
    ANY = 255


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks for."""

    name: Name
    kind: int
    unicast: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One fact. `flush`: nobody else has any of this name and kind."""

    name: Name
    kind: int
    data: bytes
    ttl: int = 120
    flush: bool = False

    @property
    def identity(self) -> tuple[Name, int, bytes]:
        """The fact itself, however it is spelt and however long it holds."""
        data = self.data.lower() if self.kind == Kind.PTR else self.data
        return lower(self.name), self.kind, data


@dataclass(frozen=True, slots=True)
class Message:
    """A packet."""

    response: bool
    questions: tuple[Question, ...] = ()
    answers: tuple[Record, ...] = ()
    authorities: tuple[Record, ...] = ()
    additionals: tuple[Record, ...] = ()
    id: int = field(default=0)


def lower(name: Name) -> Name:
    """The name as it is compared."""
    return tuple(label.lower() for label in name)


def name_of(text: str) -> Name:
    """A name without dots in its labels."""
    return tuple(label.encode() for label in text.split(".") if label)


def packed(name: Name) -> bytes:
    """The name as it goes over the wire. BadPacket if it is too long."""
    if any(not 0 < len(label) <= _LABEL for label in name):
        raise BadPacket("a label is empty or too long")
    made = b"".join(bytes([len(label)]) + label for label in name) + b"\0"
    if len(made) > _WHOLE:
        raise BadPacket("a name is too long")
    return made


def encode(message: Message) -> bytes:
    """The packet."""
    sections = (message.answers, message.authorities, message.additionals)
    flags = _RESPONSE | _AUTHORITATIVE if message.response else 0
    counts = (len(message.questions), *map(len, sections))
    out = [_HEADER.pack(message.id, flags, *counts)]
    for question in message.questions:
        out.append(packed(question.name))
        out.append(_QUESTION.pack(question.kind, _IN | (_TOP if question.unicast else 0)))
    for record in _chained(sections):
        out.append(packed(record.name))
        top = _TOP if record.flush else 0
        out.append(_RECORD.pack(record.kind, _IN | top, record.ttl, len(record.data)))
        out.append(record.data)
    return b"".join(out)


def _chained(sections: Iterable[tuple[Record, ...]]) -> Iterable[Record]:
    for section in sections:
        yield from section


def decode(data: bytes) -> Message:
    """Raises BadPacket for anything else than a query or response of class IN."""
    if len(data) > MOST_BYTES:
        raise BadPacket("too long")
    try:
        return _Reader(data).message()
    except struct.error:
        raise BadPacket("cut short") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def message(self) -> Message:
        number, flags, *counts = self._take(_HEADER)
        if flags & _OPCODE_AND_RCODE:
            raise BadPacket("neither a query nor an answer")
        if sum(counts) > _MOST_ITEMS:
            raise BadPacket("too many questions or records")
        questions = tuple(self._question() for _ in range(counts[0]))
        answers, authorities, additionals = (
            tuple(self._record() for _ in range(count)) for count in counts[1:]
        )
        return Message(
            response=bool(flags & _RESPONSE),
            questions=questions,
            answers=answers,
            authorities=authorities,
            additionals=additionals,
            id=number,
        )

    def _take(self, shape: struct.Struct) -> tuple[int, ...]:
        found: tuple[int, ...] = shape.unpack_from(self._data, self._at)
        self._at += shape.size
        return found

    def _question(self) -> Question:
        name = self._name()
        kind, of = self._take(_QUESTION)
        return Question(name, kind, bool(of & _TOP))

    def _record(self) -> Record:
        name = self._name()
        kind, of, ttl, size = self._take(_RECORD)
        start, end = self._at, self._at + size
        if end > len(self._data):
            raise BadPacket("cut short")
        data = self._data[start:end]
        if kind in (Kind.PTR, Kind.SRV):  # names in them may be compressed
            self._at = start + (6 if kind == Kind.SRV else 0)
            data = self._data[start : self._at] + packed(self._name())
            if self._at != end:
                raise BadPacket("a record is longer than what it holds")
        self._at = end
        return Record(name, kind, data, ttl, bool(of & _TOP))

    def _name(self) -> Name:
        labels: list[bytes] = []
        at, behind, length = self._at, -1, 0
        for _ in range(_JUMPS + _WHOLE):
            size = self._byte(at)
            if size >= 0xC0:
                target = (size & 0x3F) << 8 | self._byte(at + 1)
                behind = at + 2 if behind < 0 else behind
                if target >= at:  # only ever backwards: no loops
                    raise BadPacket("a name points forward")
                at = target
                continue
            if size > _LABEL:
                raise BadPacket("a label of no kind that is known")
            at += 1
            if size == 0:
                self._at = at if behind < 0 else behind
                return tuple(labels)
            length += size + 1
            if at + size > len(self._data) or length >= _WHOLE:
                raise BadPacket("a name is cut short or too long")
            labels.append(self._data[at : at + size])
            at += size
        raise BadPacket("a name jumps about")

    def _byte(self, at: int) -> int:
        if at >= len(self._data):
            raise BadPacket("cut short")
        return self._data[at]
