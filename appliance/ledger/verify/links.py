"""The chain: that each entry follows from the one before it, and which one does not."""

from __future__ import annotations

import json
from typing import Any

from .canon import GENESIS, row_hash
from .seals import Seals
from .verdict import Fault, Verdict, moment

_TRIES = 8
"""After a fault, so many hashes may be what the next row was made with."""


class Links:
    """Follows the rows in order. After a fault it goes on from the stored hash, so that only the
    row at fault is named and not all that come after it."""

    def __init__(self, verdict: Verdict, seals: Seals, head_seq: int | None) -> None:
        self._verdict = verdict
        self._seals = seals
        self._head_seq = head_seq
        self._bad: Fault | None = None
        """The fault of the row before, which a run of them extends."""
        self.due = 0
        self.known: list[bytes] = []
        """What may be the hash of the row before; empty where that row is missing."""
        self.tainted = False
        """A row is missing or altered: what all rows add up to proves nothing any more."""

    def start(self, first_seq: int) -> None:
        """Begin at the first row that is kept."""
        self.due = first_seq
        self.known = [GENESIS] if first_seq == 1 else self._sealed(first_seq)

    def _sealed(self, seq: int) -> list[bytes]:
        seal = self._seals.before(seq)
        try:
            return [bytes.fromhex(seal.body["last_hash"])] if seal else []
        except (TypeError, ValueError):
            return []

    def place(self, seq: int) -> bool:
        """Whether a row may stand here, which is not the next place; notes those before it."""
        self.tainted = True
        if seq < 1 or (self._head_seq is not None and self.due > self._head_seq):
            self._verdict.fault("inserted", "no row can stand here", seq=seq)
            return False
        self._verdict.fault(
            "missing",
            f"missing; so what row {seq} says cannot be checked by itself",
            seq=self.due,
            last_seq=seq - 1,
        )
        self.known, self._bad = self._sealed(seq), None
        return True

    def follow(self, seq: int, kind: bytes, body: bytes, stored: Any) -> bool:
        """Whether the row follows from its predecessor."""
        self.due = seq + 1
        computed = row_hash(self.known[0], seq, kind, body) if self.known else stored
        if computed == stored:
            self.known, self._bad = [stored], None
            return True
        if any(row_hash(prev, seq, kind, body) == stored for prev in self.known[1:]):
            self._blame(seq)
            self.known, self._bad = [stored], None
            return True
        self._mismatch(seq, kind, body, stored, computed)
        return False

    def _blame(self, seq: int) -> None:
        """This row fits what its predecessor's content gives: there the hash was altered."""
        if self._bad is not None and self._bad.seq == seq - 1:
            self._bad.detail = "its stored hash was altered: the next row fits its content"

    def _mismatch(self, seq: int, kind: bytes, body: bytes, stored: Any, computed: bytes) -> None:
        self.tainted = True
        if not isinstance(stored, bytes):
            stored = str(stored).encode()
        self.known = [stored, computed, *self.known][:_TRIES]
        if self._bad is not None:
            self._bad.last_seq = seq
            return
        self._bad = self._verdict.fault(
            "chain",
            "its content does not give its hash: it was altered, or the row before it was replaced",
            seq=seq,
            entry=describe(kind, body),
            stored=stored.hex(),
            computed=computed.hex(),
        )


def describe(kind: bytes, body: Any) -> str:
    """Kind, id and time of an entry, as far as it still tells them."""
    try:
        row = json.loads(body)
    except (ValueError, RecursionError, TypeError):
        row = {}
    name = kind.decode("utf-8", "replace") if isinstance(kind, bytes) else str(kind)
    if not isinstance(row, dict):
        return name
    told = [
        name,
        row.get("id") or row.get("action") or row.get("event"),
        moment(row.get("wall_ns")),
    ]
    return ", ".join(str(part) for part in told if part)
