"""Which requests were admitted, and which ended: one end for each, and none twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .verdict import Verdict

_BLOCK = 1 << 16


class NumberSet:
    """A set of request numbers, which rise without many gaps: one bit each."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Whether it is new."""
        block = self._blocks.get(number >> 16)
        if block is None:
            block = self._blocks[number >> 16] = bytearray(_BLOCK >> 3)
        at, bit = (number & 0xFFFF) >> 3, 1 << (number & 7)
        if block[at] & bit:
            return False
        block[at] |= bit
        return True


class Requests:
    """Pairs `admitted` and `request` rows by their number."""

    def __init__(self, verdict: Verdict, whole: bool) -> None:
        self._verdict = verdict
        self._whole = whole
        """No row was dropped, so every end has its beginning here."""
        self._begun = NumberSet()
        self._ended = NumberSet()
        self._open: dict[int, int] = {}
        self._settled = 0
        self.largest = 0
        self._orphans: list[tuple[int, Mapping[str, Any]]] = []

    def admitted(self, seq: int, row: Mapping[str, Any]) -> None:
        number = row["number"]
        self.largest = max(self.largest, number)
        if not self._begun.add(number):
            self._verdict.fault("final", f"request {number} was admitted before", seq=seq)
        self._open[number] = seq

    def ended(self, seq: int, row: Mapping[str, Any]) -> None:
        number = row["number"]
        self.largest = max(self.largest, number)
        if not self._ended.add(number):
            self._verdict.fault("final", f"request {number} has a second end", seq=seq)
        elif self._open.pop(number, None) is None and self._whole and not _may_lack(row):
            self._orphans.append((seq, row))

    def settled(self, seq: int) -> None:
        """All that was admitted before this row must have ended before it."""
        self._settled = seq

    def finish(self, tainted: bool) -> None:
        """Tell what is left open."""
        self._verdict.in_flight = sorted(self._open)
        if tainted:
            return
        for seq, row in self._orphans:
            detail = f"request {row['number']} ended and was never admitted"
            self._verdict.fault("final", detail, seq=seq, entry=f"request, {row['id']}")
        for number, seq in self._open.items():
            if seq < self._settled:
                detail = f"request {number} has no end, though row {self._settled} says all have"
                self._verdict.fault("final", detail, seq=seq)


def _may_lack(row: Mapping[str, Any]) -> bool:
    """Refused, answered without the engine, or ended because nothing could be written: such a row
    says so, or counts nothing that was served."""
    served = row["outcome"] in ("stop", "length", "deadline") and row["completion_tokens"]
    return not served or bool(row.get("recovered")) or bool(row.get("code"))
