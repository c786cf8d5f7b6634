"""The token journal: what the engine computed, on disk before anyone is told.

Rules
1. A record has 32 bytes and its own checksum: `u32 crc32 of the rest, u8 kind, u8 choice, u16 zero,
   u64 number, u32 a, u32 b, u64 monotonic ns`, little-endian. What `a` and `b` mean depends on the
   kind.
2. The records of a step are written into the file's shared pages before the step's batch is
   published. Those are the kernel's, so SIGKILL of either process loses nothing that a client saw.
3. Files ("segments") hold a fixed number of records and are allocated whole in advance, the next
   one always before it is needed: a full disk shows while there is still room for what runs.
4. The engine only appends. The daemon deletes a segment once every request in it has its final row
   in the ledger.
"""

import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SEGMENT_RECORDS = 65536
SUFFIX = ".tokens"
_RECORD = struct.Struct("<IBBHQIIQ")
_BODY = struct.Struct("<BBHQIIQ")
SIZE = _RECORD.size
_EMPTY = bytes(SIZE)
_RETRY_S = 1.0
"""How often a full disk is asked again for room."""


class Kind(IntEnum):
    HEAD = 1
    """First of each segment. number: segment's place; a: format; b: process id."""
    START = 2
    """A choice left the queue. a: its API key as a number; b: cached prompt tokens."""
    PREFILL = 3
    """Tokens computed as prompt. a: how many; b: position of the first."""
    TOKEN = 4
    """A token was sampled. a: its id; b: its place in the completion, from 1."""
    END = 5
    """A choice ended. a: how (`REASONS`); b: completion tokens hidden from the text."""


FORMAT = 1
REASONS = ("stop", "length", "cancelled", "deadline", "error")


class JournalFull(Exception):
    """The disk takes no more records, and all that were allocated are used."""


class Journal:
    """The engine's end: collects a step's records, writes them at `flush`."""

    def __init__(
        self,
        directory: Path,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        segment_records: int = SEGMENT_RECORDS,
    ) -> None:
        """Raises OSError when there is no room for two segments."""
        self._clock_ns = clock_ns
        self._segment_records = segment_records
        self._prefix = directory / f"{time.time_ns():020d}-{os.getpid()}"
        self._pending = bytearray()
        self._place = -1
        self._retry_at = 0
        self._open(self._allocate(0))
        self._spare: mmap.mmap | None = self._allocate(1)

    @property
    def records(self) -> int:
        """Records of this life that are on disk."""
        return self._place * self._segment_records + self._slot

    @property
    def room(self) -> int:
        """Records that can still be written whatever the disk says."""
        left = self._segment_records - self._slot - len(self._pending) // SIZE
        return left + (self._segment_records - 1 if self._spare is not None else 0)

    def write(self, kind: Kind, number: int, choice: int, a: int, b: int) -> None:
        """One record, on disk after the next `flush`."""
        body = _BODY.pack(kind, choice, 0, number, a, b, self._clock_ns())
        self._pending += zlib.crc32(body).to_bytes(4, "little") + body

    def flush(self) -> None:
        """Everything written so far is the kernel's. Raises JournalFull."""
        while self._pending:
            if self._slot == self._segment_records:
                self._turn()
            size = min(len(self._pending), (self._segment_records - self._slot) * SIZE)
            start = self._slot * SIZE
            self._current[start : start + size] = bytes(self._pending[:size])
            del self._pending[:size]
            self._slot += size // SIZE
        if self._spare is None and self._clock_ns() >= self._retry_at:
            self._prepare()

    def close(self) -> None:
        self._current.close()
        if self._spare is not None:
            self._spare.close()

    def _turn(self) -> None:
        """Goes on in the spare segment and prepares another."""
        if self._spare is None:
            self._prepare()
        if self._spare is None:
            raise JournalFull("the disk is full, and so is the token journal")
        self._current.close()
        self._open(self._spare)
        self._spare = None
        self._prepare()

    def _open(self, segment: mmap.mmap) -> None:
        """Goes on at the start of `segment`."""
        self._current = segment
        self._place += 1
        body = _BODY.pack(Kind.HEAD, 0, 0, self._place, FORMAT, os.getpid(), self._clock_ns())
        segment[:SIZE] = zlib.crc32(body).to_bytes(4, "little") + body
        self._slot = 1

    def _prepare(self) -> None:
        try:
            self._spare = self._allocate(self._place + 1)
        except OSError:
            self._retry_at = self._clock_ns() + int(_RETRY_S * 1e9)

    def _allocate(self, place: int) -> mmap.mmap:
        """A file of its full size, zeros throughout: writing into it needs no more room."""
        path = f"{self._prefix}-{place:06d}{SUFFIX}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, self._segment_records * SIZE)
            return mmap.mmap(handle, self._segment_records * SIZE)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(handle)


def has_room(directory: str) -> bool:
    """Whether a new engine could make its journal there: two segments, and one to spare."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= 3 * SEGMENT_RECORDS * SIZE


class NoJournal:
    """For engines whose tokens nobody accounts for: self-tests and measurements."""

    records = 0
    room = 1 << 40

    def write(self, kind: Kind, number: int, choice: int, a: int, b: int) -> None:
        """Forgotten."""

    def flush(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Record:
    kind: Kind
    choice: int
    number: int
    a: int
    b: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A journal file, by its name."""

    path: Path
    life: int
    pid: int
    place: int


def segments(directory: Path) -> list[Segment]:
    """All of a directory, in the order in which they were written."""
    found = [_segment(path) for path in directory.glob(f"*{SUFFIX}")]
    return sorted((s for s in found if s is not None), key=lambda s: (s.life, s.pid, s.place))


def _segment(path: Path) -> Segment | None:
    try:
        life, pid, place = path.name.removesuffix(SUFFIX).split("-")
        return Segment(path, int(life), int(pid), int(place))
    except ValueError:
        return None


def read(path: Path, torn: Callable[[int], None], skip: int = 0) -> Iterator[Record]:
    """The sound records of one segment from slot `skip` on. `torn` is told the slot of each that is
    neither sound nor empty. Raises OSError."""
    data = path.read_bytes()
    whole = len(data) - len(data) % SIZE
    if len(data) != whole and any(data[whole:]):
        torn(whole // SIZE)
    for slot, offset in enumerate(range(skip * SIZE, whole, SIZE), skip):
        raw = data[offset : offset + SIZE]
        if raw == _EMPTY:
            continue
        crc, kind, choice, _, number, a, b, at_ns = _RECORD.unpack(raw)
        if crc != zlib.crc32(raw[4:]) or kind not in _KINDS:
            torn(slot)
            continue
        if kind != Kind.HEAD:
            yield Record(Kind(kind), choice, number, a, b, at_ns)


_KINDS = frozenset(Kind)


def is_full(path: Path) -> bool:
    """Whether its last record is written, so that its engine has moved on."""
    with path.open("rb") as opened:
        opened.seek(-SIZE, os.SEEK_END)
        return opened.read(SIZE) != _EMPTY
