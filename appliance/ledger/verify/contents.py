"""What the entries say: their members, their payloads, the token digests, and retention's marks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .canon import PARTS, REQUIRED, Standing, Usage, token_digest, unpack_tokens
from .links import describe
from .numbers import Requests
from .seals import Seals, Sums
from .verdict import Verdict

_decode = json.JSONDecoder().raw_decode
_DIGESTS = tuple(f"{part}_sha256" for part in PARTS)
_STORING = frozenset((b"request", b"replay"))
"""Kinds of which each entry says what was stored with it, or that nothing was."""
_SETTLED = frozenset(("started", "recovered", "stopped"))
"""Notes before which every request has ended."""


_SENSELESS = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
)
"""What code that trusts an entry raises where the entry is not what it should be."""


def _place(seq: Any) -> int:
    """A place in the chain. Raises TypeError."""
    if type(seq) is not int:
        raise TypeError(f"{seq!r} is no place of a row")
    return seq


class Absent:
    """Runs of rows whose payload is gone, which is right only where retention said so."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self._open = False
        self.allowed_to = 0

    def note(self, seq: int, absent: bool) -> None:
        if absent and self._open:
            self.runs[-1][1] = seq
        elif absent:
            self.runs.append([seq, seq])
        self._open = absent


class Contents:
    """Takes in every row whose place in the chain is proven."""

    def __init__(self, verdict: Verdict, seals: Seals, deep: bool, whole: bool) -> None:
        self._verdict = verdict
        self._seals = seals
        self._deep = deep
        self.sums = Sums()
        self.requests = Requests(verdict, whole)
        self.standing = Standing()
        self.usage = Usage()
        self.absent = {part: Absent() for part in PARTS}
        self.dropped_to = 0
        """The last row that retention says it dropped."""

    def take(self, seq: int, kind: bytes, body: bytes, parts: Sequence[Any]) -> None:
        """Check one row by itself and count it."""
        try:
            row = self._parse(kind, body)
            self.sums.add(seq, row["wall_ns"])
            self._by_kind(seq, kind, row, parts)
            if parts[0] is not None or kind in _STORING or "tokens_sha256" in row:
                self._payload(seq, kind, row, parts)
        except _SENSELESS as error:
            what = f"its content makes no sense: {type(error).__name__}: {error}"
            self._verdict.fault("content", what, seq=seq, entry=describe(kind, body))

    def _parse(self, kind: bytes, body: bytes) -> dict[str, Any]:
        text = body.decode()
        row, end = _decode(text)
        if end != len(text) or type(row) is not dict:
            raise ValueError("not one JSON object")
        required = REQUIRED.get(kind.decode())
        if required is None:
            self._verdict.remark(f"entries of kind {kind.decode()} are chained, but not known here")
        elif required - row.keys():
            raise ValueError(f"it lacks {', '.join(sorted(required - row.keys()))}")
        return row

    def _by_kind(self, seq: int, kind: bytes, row: dict[str, Any], parts: Sequence[Any]) -> None:
        if kind == b"request":
            self._request(seq, row)
        elif kind == b"admitted":
            self.requests.admitted(seq, row)
        elif kind == b"action":
            self._action(row)
        elif kind == b"seal":
            self._announced(seq, row)
        elif kind == b"note" and row["event"] in _SETTLED:
            self.requests.settled(seq)

    def _request(self, seq: int, row: dict[str, Any]) -> None:
        self.requests.ended(seq, row)
        self.usage.add(row)
        sums = self.sums
        sums.requests += 1
        sums.prompt_tokens += row["prompt_tokens"]
        sums.completion_tokens += row["completion_tokens"]

    def _action(self, row: dict[str, Any]) -> None:
        action, detail = row["action"], row["detail"]
        self.standing.apply(action, row["target"], detail)
        if action == "retention.segments":
            self.dropped_to = _place(detail["last_seq"])
        elif action == "retention.payloads":
            last_seq = _place(detail["last_seq"])
            for part in detail["parts"]:
                absent = self.absent[part]
                absent.allowed_to = max(absent.allowed_to, last_seq)

    def _announced(self, seq: int, row: dict[str, Any]) -> None:
        """A `seal` entry: that very seal must be there, and this must be the row after it."""
        seal = self._seals.by_segment.get(row["segment"])
        if seal is None:
            self._verdict.fault(
                "seal", f"row {seq} tells of it, but it is gone", segment=row["segment"]
            )
            return
        seal.announced = True
        if row["seal"] not in seal.hashes:
            detail = f"it is not the one that row {seq} tells of"
            self._verdict.fault("seal", detail, segment=seal.segment, stored=row["seal"])
        if row["signer"] != seal.signer:
            detail = f"row {seq} tells of a signature by {row['signer'] or 'nobody'}"
            self._verdict.fault("signature", detail, segment=seal.segment)
        if seal.sound and seal.last_seq != seq - 1:
            detail = f"it ends with row {seal.last_seq}, and row {seq} tells of it"
            self._verdict.fault("seal", detail, segment=seal.segment)

    def _payload(self, seq: int, kind: bytes, row: dict[str, Any], parts: Sequence[Any]) -> None:
        for at, name in enumerate(_DIGESTS, 1):
            digest, value = row.get(name), parts[at]
            if digest is None:
                if value is not None:
                    self._wrong(seq, kind, row, f"it has {PARTS[at - 1]} that it never had")
                continue
            self.absent[PARTS[at - 1]].note(seq, value is None)
            if value is None:
                continue
            found = hashlib.sha256(value).hexdigest()
            if found != digest:
                what = f"its stored {PARTS[at - 1]} were altered"
                self._wrong(seq, kind, row, what, digest, found)
            elif at == 1 and self._deep:
                self._tokens(seq, kind, row, value)

    def _wrong(
        self,
        seq: int,
        kind: bytes,
        row: Mapping[str, Any],
        detail: str,
        was: str = "",
        now: str = "",
    ) -> None:
        entry = describe(kind, json.dumps(row))
        self._verdict.fault("payload", detail, seq=seq, entry=entry, stored=was, computed=now)

    def _tokens(self, seq: int, kind: bytes, row: dict[str, Any], blob: bytes) -> None:
        """The ids must be as many as were counted, and give each choice's digest."""
        prompt, *completions = unpack_tokens(blob)
        choices = row.get("choices", ())
        if len(prompt) != row["prompt_tokens"] or len(completions) != len(choices):
            found = f"{len(prompt)} of the prompt, and {len(completions)} choices"
            self._digest(seq, kind, row, found)
            return
        for choice, ids in zip(choices, completions):  # noqa: B905 (Python 3.9)
            if len(ids) != choice["completion_tokens"]:
                self._digest(seq, kind, row, f"{len(ids)} in a choice")
            digest = token_digest(prompt, ids)
            if digest != choice["digest"] and (choice["digest"] or not row["recovered"]):
                self._digest(seq, kind, row, "another digest", choice["digest"], digest)

    def _digest(
        self,
        seq: int,
        kind: bytes,
        row: Mapping[str, Any],
        found: str,
        was: str = "",
        now: str = "",
    ) -> None:
        detail = f"its token ids do not fit what it says of them: {found}"
        entry = describe(kind, json.dumps(row))
        self._verdict.fault("digest", detail, seq=seq, entry=entry, stored=was, computed=now)

    def finish(self, left_out: Collection[str]) -> None:
        """Tell which payloads are gone although nothing said that they may be."""
        for part, absent in self.absent.items():
            if part in left_out:
                continue
            for first, last in absent.runs:
                if last > absent.allowed_to:
                    first = max(first, absent.allowed_to + 1)
                    detail = f"the {part} were removed, and no retention entry says so"
                    self._verdict.fault("payload", detail, seq=first, last_seq=last)
