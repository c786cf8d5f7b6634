"""New firmware comes over the line into the slot that does not run.

First the head alone, in memory: only if a trusted key signed it, it is for this kind of board and
newer than what runs, the slot is erased. Then the files, by offset; what was stored before an
interruption is not asked for again. Last, all is read back from the flash and hashed. Every long
thing is a generator that `step()` takes on by a little, so that the board's loop goes on.
"""

import struct

from firmware_bridge import messages as m
from firmware_bridge.firmware import signature
from firmware_bridge.firmware.schema import BOARD, VERSION
from firmware_bridge.firmware.slots import (
    HEAD_NAME,
    HEAD_SIZE,
    KEYS,
    MAX_HEAD,
    MAX_KEYS,
    MAX_TOTAL,
    REVERTED,
    SIGNATURE_AT,
    TRIAL,
    Flash,
    Slots,
    manifest_of,
    other,
    signed_part,
)

try:
    from collections.abc import Generator
    from typing import Any
except ImportError:  # MicroPython has neither
    pass

BLOCK = 4096
"""Bytes that wait for one write: a flash erases by that many."""


class Updater:
    """`slot` and `how` are what the loader chose; no slot: the board has none."""

    def __init__(self, flash: Flash, slot: str, how: int) -> None:
        self.trial = how == TRIAL
        self.reverted = how == REVERTED
        self.phase = m.UP_IDLE if slot else m.UP_NO_SLOTS
        self.reason = 0
        self.received = 0
        self.total = 0
        self._flash = flash
        self._slot = slot
        self._target = other(slot)
        self._slots = Slots(flash)
        self._head = bytearray()
        self._head_size = 0
        self._manifest: dict[str, Any] = {}
        self._block = bytearray()
        self._job: Generator[None, None, None] | None = None
        self._other = self._stored_version()

    # What the host asks for; each gives an error code, 0 for an empty answer, or the answer.

    def begin(self, head_size: int, total: int) -> int:
        """From the start, whatever was under way."""
        if not self._slot or self.trial:
            return m.DENIED
        if not HEAD_SIZE < head_size <= MAX_HEAD or not 0 < total - head_size <= MAX_TOTAL:
            return m.BAD_ARGUMENT
        self.phase, self.reason = m.UP_HEAD, 0
        self.received, self.total = 0, total
        self._head, self._head_size = bytearray(), head_size
        self._block, self._job = bytearray(), None
        return 0

    def data(self, offset: int, piece: bytes) -> int | bytes:
        """Bytes at their offset in the image. Those that are here already are left out, a gap is
        refused; the answer says how many there are."""
        if self.phase not in (m.UP_HEAD, m.UP_FILES):
            return m.DENIED
        limit = self._head_size if self.phase == m.UP_HEAD else self.total
        if offset > self.received or offset + len(piece) > limit:
            return m.BAD_ARGUMENT
        piece = piece[self.received - offset :]
        self.received += len(piece)
        if self.phase == m.UP_HEAD:
            self._head.extend(piece)
            if self.received == self._head_size:
                self._start(m.UP_CHECKING, self._check())
        else:
            self._take(piece)
        return struct.pack(m.UPDATE_DATA_TELL, self.received)

    def boot(self) -> int:
        """Try the new slot at the next boot, which is the caller's to make."""
        if self.phase != m.UP_COMPLETE:
            return m.DENIED
        try:
            self._slots.try_out(self._target)
        except OSError:
            self._refuse(m.WHY_FLASH)
            return m.DENIED
        return 0

    def confirm(self) -> int:
        """The slot on trial stays. Twice is once."""
        if not self._slot:
            return m.DENIED
        if self.trial:
            try:
                self._slots.confirm(self._slot)
            except OSError:
                return m.DENIED
            self.trial = False
        return 0

    def tell(self, left_ms: int) -> bytes:
        slot = ord(self._slot) - ord("a") if self._slot else 255
        return struct.pack(
            m.UPDATE_TELL,
            slot,
            1 if self.trial else 0,
            self.phase,
            self.reason,
            self._slots.reverted,
            bytes(VERSION),
            self._other,
            self.received,
            self.total,
            left_ms,
        )

    @property
    def failed_version(self) -> int:
        """Of the slot that was tried and not kept, as one number."""
        return self._other[0] << 16 | self._other[1] << 8 | self._other[2]

    # What takes long

    def step(self) -> None:
        """A little of what is under way; call it every turn."""
        if self._job is None:
            return
        try:
            next(self._job)
        except StopIteration:
            self._job = None
        except OSError:
            self._job = None
            self._refuse(m.WHY_FLASH)

    def _start(self, phase: int, job: "Generator[None, None, None]") -> None:
        self.phase = phase
        self._job = job

    def _refuse(self, reason: int) -> None:
        self.phase, self.reason = m.UP_REFUSED, reason
        self._block = bytearray()

    def _check(self) -> "Generator[None, None, None]":
        """The head: who signed it, and whether it belongs here. Then room is made."""
        head = bytes(self._head)
        keys = signature.moduli(self._flash.read(KEYS), MAX_KEYS)
        good = False
        for modulus in keys:
            signed = head[SIGNATURE_AT:HEAD_SIZE]
            good = good or (yield from signature.check(signed_part(head), signed, modulus))
        reason = self._objection(head) if good else m.WHY_SIGNATURE if keys else m.WHY_NO_KEY
        if reason:
            self._refuse(reason)
            return
        if self._flash.read(self._file(HEAD_NAME)) != head:
            for name in self._flash.files(self._target):
                self._flash.remove(name)
                yield
            self._flash.append(self._file(HEAD_NAME), head)
        self._other = bytes(self._manifest["version"])
        self.received = len(head) + self._stored()
        self.phase = m.UP_FILES
        if self.received == self.total:
            self._start(m.UP_PROVING, self._prove())
            yield

    def _objection(self, head: bytes) -> int:
        """Why a signed head is not for this board now, 0 if it is."""
        try:
            manifest = manifest_of(head)
        except ValueError:
            return m.WHY_MANIFEST
        if len(head) + sum([row[1] for row in manifest["files"]]) != self.total:
            return m.WHY_MANIFEST
        if manifest["board"] != BOARD:
            return m.WHY_BOARD
        if list(manifest["version"]) <= list(VERSION):
            return m.WHY_OLD
        if list(VERSION) < list(manifest["minimum"]):
            return m.WHY_MINIMUM
        self._manifest = manifest
        return 0

    def _stored(self) -> int:
        """Bytes of files that an earlier attempt left; those after a gap are dropped."""
        stored = 0
        whole = True
        for name, size, _ in self._manifest["files"]:
            here = self._flash.size(self._file(name))
            if here > size or (here >= 0 and not whole):
                self._flash.remove(self._file(name))
                here = -1
            if whole:
                stored += max(here, 0)
            whole = whole and here == size
        return stored

    def _take(self, piece: bytes) -> None:
        self._block.extend(piece)
        complete = self.received == self.total
        if len(self._block) < BLOCK and not complete:
            return
        try:
            self._store(self.received - len(self._block) - self._head_size)
        except OSError:
            self._refuse(m.WHY_FLASH)
            return
        if complete:
            self._start(m.UP_PROVING, self._prove())

    def _store(self, at: int) -> None:
        """Append the block, which begins `at` bytes into the files, to those it belongs to."""
        begin = 0
        for name, size, _ in self._manifest["files"]:
            end = begin + size
            if begin <= at < end or (size == 0 and at == begin):
                taken = min(end - at, len(self._block))
                self._flash.append(self._file(name), bytes(self._block[:taken]))
                self._block = self._block[taken:]
                at += taken
            begin = end

    def _prove(self) -> "Generator[None, None, None]":
        """Read back what the flash holds."""
        for name, _, digest in self._manifest["files"]:
            if (yield from self._flash.digest(self._file(name))) != digest:
                self._flash.remove(self._file(HEAD_NAME))  # so that the next attempt starts anew
                self._refuse(m.WHY_HASH)
                return
        self.phase = m.UP_COMPLETE

    def _stored_version(self) -> bytes:
        """What the other slot holds; zeros for nothing."""
        try:
            return bytes(manifest_of(self._flash.read(self._file(HEAD_NAME)))["version"])
        except ValueError:
            return b"\0\0\0"

    def _file(self, name: str) -> str:
        return f"{self._target}/{name}"
