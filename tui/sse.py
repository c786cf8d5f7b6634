"""Server-sent events, read from pieces of any size. Pure: bytes in, events out.

Lines end with LF or CRLF; that is what the box sends. Comments and ids are skipped.
"""

from dataclasses import dataclass

LIMIT = 8 * 1024 * 1024
"""Bytes one event may have. The largest frame, 200 requests, has about 80 kB."""


class TooLarge(Exception):
    """An event without end: whatever sends this is no Steelyard."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `data` is what its `data:` lines held, joined."""

    name: str
    data: bytes


class Events:
    """Takes a stream's pieces and gives the events that are whole."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._seen = 0  # so far no line ends in the rest, so a long line is not searched again
        self._size = 0
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[Event]:
        """The events that `piece` completes. Raises TooLarge."""
        self._rest += piece
        found: list[Event] = []
        while (end := self._rest.find(b"\n", self._seen)) >= 0:
            line = bytes(self._rest[:end]).removesuffix(b"\r")
            del self._rest[: end + 1]
            self._seen = 0
            self._take(line, found)
        self._seen = len(self._rest)
        if self._seen + self._size > self._limit:
            raise TooLarge(f"an event of more than {self._limit} bytes")
        return found

    def _take(self, line: bytes, found: list[Event]) -> None:
        if not line:
            if self._data:
                found.append(Event(self._name or "message", b"\n".join(self._data)))
            self._name, self._data, self._size = "", [], 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
