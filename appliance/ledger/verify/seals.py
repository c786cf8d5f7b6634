"""The seals: each one's own hash, their chain, what they say of the rows, and their signatures."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .canon import DAY_NS, GENESIS, SEAL, seal_hash
from .ed25519 import signed_by
from .verdict import Verdict

_HASHES = frozenset(("last_hash", "prev_seal"))


@dataclass
class Seal:
    """One row of `seals`."""

    segment: int
    body: Mapping[str, Any]
    hashes: frozenset[str]
    """As stored and as computed: two only where one of them was altered."""
    hash: bytes
    """As computed."""
    signature: bytes | None
    signer: str
    sound: bool
    announced: bool = False

    @property
    def last_seq(self) -> int:
        return int(self.body["last_seq"])


@dataclass
class Sums:
    """What the rows of a segment come to, to be compared with its seal."""

    first_seq: int = 0
    last_seq: int = 0
    rows: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_wall_ns: int = 0
    last_wall_ns: int = 0

    def add(self, seq: int, wall_ns: int) -> None:
        """Count one row."""
        if not self.rows:
            self.first_seq, self.first_wall_ns, self.last_wall_ns = seq, wall_ns, wall_ns
        elif wall_ns > self.last_wall_ns:
            self.last_wall_ns = wall_ns
        elif wall_ns < self.first_wall_ns:
            self.first_wall_ns = wall_ns
        self.rows += 1
        self.last_seq = seq

    def differences(self, seal: Mapping[str, Any]) -> list[str]:
        """Each member in which the seal says something else."""
        return [
            f"{name} {seal[name]}, its rows give {value}"
            for name, value in vars(self).items()
            if seal[name] != value
        ]


@dataclass
class Seals:
    """All seals of a ledger."""

    by_segment: dict[int, Seal] = field(default_factory=dict)
    by_last_seq: dict[int, Seal] = field(default_factory=dict)
    """Of the sound ones."""

    def before(self, seq: int) -> Seal | None:
        """The seal of the segment that ends right before `seq`."""
        return self.by_last_seq.get(seq - 1)

    def covered_day(self, first_seq: int) -> int:
        """The first day of which no row can have been dropped."""
        gone = [
            seal.body["last_wall_ns"]
            for last_seq, seal in self.by_last_seq.items()
            if last_seq < first_seq
        ]
        return max(gone) // DAY_NS + 1 if gone else -1


def read_seals(db: sqlite3.Connection, verdict: Verdict) -> Seals:
    """Read and check the seals by themselves: hashes, order, chain."""
    found = Seals()
    before: Seal | None = None
    for row in db.execute(
        "SELECT segment, body, hash, signature, signer FROM seals ORDER BY segment"
    ):
        seal = _seal(row, verdict)
        _follow(before, seal, verdict)
        found.by_segment[seal.segment] = before = seal
        if seal.sound:
            found.by_last_seq[seal.last_seq] = seal
    verdict.seals = len(found.by_segment)
    return found


def _seal(row: Sequence[Any], verdict: Verdict) -> Seal:
    segment, text, stored, signature, signer = row
    body, problem = _body(segment, text)
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text or b"")
    computed = seal_hash(raw)
    known = stored.hex() if isinstance(stored, bytes) else str(stored)
    if known != computed.hex():
        problem = "its content does not give its hash"
    if problem:
        verdict.fault("seal", problem, segment=segment, stored=known, computed=computed.hex())
    hashes = frozenset((known, computed.hex()))
    return Seal(segment, body, hashes, computed, signature, signer or "", not problem)


def _body(segment: int, text: str) -> tuple[Mapping[str, Any], str]:
    try:
        body = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}, "its content is not JSON"
    if not isinstance(body, dict) or SEAL - body.keys():
        return {}, "its content lacks members that a seal has"
    if any(type(body[name]) is not int for name in SEAL - _HASHES):
        return {}, "its content has a number that is none"
    if any(type(body[name]) is not str for name in _HASHES):
        return {}, "its content has a hash that is none"
    wrong = f"it says that it is seal {body['segment']}"
    return body, "" if body["segment"] == segment else wrong


def _follow(before: Seal | None, seal: Seal, verdict: Verdict) -> None:
    """Check one seal against its predecessor."""
    due = before.segment + 1 if before else 1
    if seal.segment != due:
        what = f"seals {due}-{seal.segment - 1}" if seal.segment > due + 1 else f"seal {due}"
        verdict.fault("seal", f"{what} before it was removed", segment=seal.segment)
        return
    prev = before.hashes if before else frozenset((GENESIS.hex(),))
    if not seal.sound:
        return
    if seal.body["prev_seal"] not in prev:
        verdict.fault(
            "seal",
            "it does not follow from the seal before it",
            segment=seal.segment,
            stored=seal.body["prev_seal"],
            computed=", ".join(sorted(prev)),
        )
    first = 1 if before is None else before.last_seq + 1 if before.sound else None
    if first is not None and seal.body["first_seq"] != first:
        detail = f"it begins with row {seal.body['first_seq']} and not with row {first}"
        verdict.fault("seal", detail, segment=seal.segment)


def check_signatures(
    seals: Iterable[Seal], verdict: Verdict, trusted: Sequence[bytes], chained: Mapping[str, str]
) -> None:
    """Check who signed. Without `trusted` keys those that the chain itself names are used, which
    proves that nothing was altered since, though not whose key it was."""
    keys = {key_id(key): key for key in trusted}
    if not trusted:
        keys = {key_id(bytes.fromhex(key)): bytes.fromhex(key) for key in chained.values()}
    signers: set[str] = set()
    for seal in seals:
        problem = _signature_problem(seal, keys, bool(trusted))
        if problem:
            verdict.fault("signature", problem, segment=seal.segment)
        elif seal.signature is not None and seal.signer in keys:
            verdict.signed += 1
            signers.add(seal.signer)
    verdict.signers = sorted(signers)
    if signers and not trusted:
        verdict.remark("the key is the one the ledger itself names; give --public-key to be sure")


def _signature_problem(seal: Seal, keys: Mapping[str, bytes], must: bool) -> str:
    if seal.signature is None:
        if seal.signer:
            return f"its signature by {seal.signer} was removed"
        return "it is not signed by the given key" if must else ""
    key = keys.get(seal.signer)
    if key is None:
        return f"it is signed by {seal.signer or 'nobody'}, whose key is not known"
    if not isinstance(seal.signature, bytes) or not signed_by(key, seal.hash, seal.signature):
        return f"its signature by {seal.signer} does not fit it"
    return ""


def key_id(public_key: bytes) -> str:
    """The short name of a signing key."""
    return hashlib.sha256(public_key).hexdigest()[:16]
