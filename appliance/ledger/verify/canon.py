"""What the hashes of a ledger are taken over, and what its entries add up to (docs/ledger.md).

The box itself uses these functions; Python from 3.9, standard library only.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

FORMAT = "steelyard-ledger-v1"
GENESIS = hashlib.sha256(b"steelyard-ledger-v1\n").digest()
"""What stands for the hash before the first row, and (in hex) for the seal before the first."""
MAX_SCENARIOS = 100
OTHER_SCENARIO = "(other)"
"""Of one key on one day so many scenarios get sums of their own, in order of appearance."""
DAY_NS = 86400 * 10**9
MAX_TOKEN_BYTES = 1 << 28
"""No request has more token ids; a longer payload is not unpacked."""

PARTS = ("tokens", "prompt", "answers", "report")
USAGE_KEY = ("day", "key_id", "tenant", "scenario", "model", "route")
_TOKENS = ("prompt_tokens", "cached_tokens", "prefill_tokens", "completion_tokens")
_COSTS = ("prefill", "decode", "cached", "idle")
USAGE_SUMS = (
    *("requests", "refused", *_TOKENS, "prefill_ns", "decode_ns", "energy_uj"),
    *(f"cost_{stage}" for stage in _COSTS),
)
_caller = itemgetter(*USAGE_KEY[1:])
_spent = itemgetter(*_TOKENS, "prefill_ns", "decode_ns")
_cost = itemgetter(*_COSTS)
_FREE = (0,) * len(_COSTS)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SEAL = _names(
    "segment first_seq last_seq rows requests prompt_tokens completion_tokens first_wall_ns "
    "last_wall_ns last_hash prev_seal sealed_wall_ns"
)
"""The members of a seal's body."""
_IDS = _names("wall_ns number id trace_id key_id")
_CALL = _IDS | _names("request_id tenant scenario route model prompt_tokens")
REQUIRED = {
    "admitted": _CALL,
    "request": _CALL
    | _names("outcome status cached_tokens prefill_tokens completion_tokens prefill_ns decode_ns")
    | _names("choices tokens_sha256 prompt_sha256 answers_sha256"),
    "action": _names("wall_ns action target detail"),
    "conflict": _IDS | _names("choice claimed digest"),
    "archived": _IDS | _names("choice digest"),
    "replay": _IDS | _names("choice result report_sha256"),
    "seal": _names("wall_ns segment seal signer"),
    "note": _names("wall_ns event detail"),
}
"""What each kind's body must have; it may have more."""


def row_hash(prev: bytes, seq: int, kind: bytes | str, body: bytes | str) -> bytes:
    """The hash of entry `seq`, whose predecessor has the hash `prev`."""
    kind = kind.encode() if isinstance(kind, str) else kind
    body = body.encode() if isinstance(body, str) else body
    head = prev + struct.pack(">QI", seq, len(kind)) + kind + struct.pack(">I", len(body))
    return hashlib.sha256(head + body).digest()


def seal_hash(body: bytes | str) -> bytes:
    """The hash of a seal; its signature is over these 32 bytes."""
    body = body.encode() if isinstance(body, str) else body
    return hashlib.sha256(b"steelyard-seal-v1\n" + body).digest()


def _little(words: array[int]) -> bytes:
    assert words.itemsize == 4, "this Python's C int has 4 bytes, as on every platform in use"
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words.tobytes()


_positions = array("I", range(1, 4097))


def token_digest(prompt: Sequence[int], completion: Sequence[int]) -> str:
    """Token digest v1, in hex: each id with its 1-based position, prompt first."""
    global _positions
    ids = array("I", prompt)
    ids.extend(array("I", completion))
    if len(ids) > len(_positions):
        _positions = array("I", range(1, 2 * len(ids)))
    pairs = array("I", bytes(8 * len(ids)))
    pairs[0::2] = ids
    pairs[1::2] = _positions[: len(ids)]
    return hashlib.sha256(b"steelyard-token-v1\n" + _little(pairs)).hexdigest()


def pack_tokens(lists: Sequence[Sequence[int]]) -> bytes:
    """The `tokens` payload: the prompt's ids, then each choice's."""
    words = array("I", [len(lists), *map(len, lists)])
    for ids in lists:
        words.extend(array("I", ids))
    return zlib.compress(_little(words), 6)


def unpack_tokens(blob: bytes) -> list[array[int]]:
    """Undo `pack_tokens`. Raises ValueError if the bytes are anything else."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(blob, MAX_TOKEN_BYTES)
    except zlib.error as error:
        raise ValueError(f"not zlib data: {error}") from error
    if not unpacker.eof or unpacker.unused_data or len(raw) % 4 or not raw:
        raise ValueError("cut off or too long")
    words = array("I", raw)
    if sys.byteorder == "big":
        words.byteswap()
    at = 1 + words[0]
    lists = []
    for length in words[1:at]:
        lists.append(words[at : at + length])
        at += length
    if at != len(words):
        raise ValueError("its lengths do not add up")
    return lists


class Usage:
    """What `usage_daily` must say, from the `request` entries in their order."""

    def __init__(self) -> None:
        self.sums: dict[tuple[Any, ...], list[int]] = {}
        self._scenarios: dict[tuple[Any, ...], set[str]] = {}
        """Of each day and key."""

    def add(self, request: Mapping[str, Any]) -> None:
        """Count one `request` body."""
        key, values = usage_of(request)
        total = self.sums.get(key)
        if total is None:
            key = self._bounded(key)
            total = self.sums.setdefault(key, [0] * len(values))
        for at, value in enumerate(values):
            if value:
                total[at] += value

    def _bounded(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        known = self._scenarios.setdefault(key[:2], set())
        if key[3] not in known and len(known - {OTHER_SCENARIO}) >= MAX_SCENARIOS:
            key = (*key[:3], OTHER_SCENARIO, *key[4:])
        known.add(key[3])
        return key


def usage_of(request: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """What a `request` body adds to `usage_daily`: (USAGE_KEY, USAGE_SUMS). `requests` counts all
    that ended, refused ones too, and a row told `count` times counts so often."""
    count = request.get("count", 1)
    costs = request.get("costs")
    return (request["wall_ns"] // DAY_NS, *_caller(request)), (
        count,
        count if request["outcome"] == "refused" else 0,
        *_spent(request),
        request.get("energy_uj") or 0,
        *(_cost(costs) if costs else _FREE),
    )


@dataclass
class Standing:
    """Keys, tenants and signing keys as the chain's own actions leave them."""

    keys: dict[str, Any] = field(default_factory=dict)
    tenants: dict[str, Any] = field(default_factory=dict)
    signers: dict[str, str] = field(default_factory=dict)

    def apply(self, action: str, target: str, detail: Mapping[str, Any]) -> None:
        """Follow one `action` entry. A dropped segment's state is said again by what dropped it.
        Raises ValueError, TypeError or KeyError for one that says what cannot be."""
        if action == "retention.segments":
            said = detail["standing"]
            self.keys = {_text(key["id"]): _named(key) for key in said["keys"].values()}
            self.tenants = {name: _named(state) for name, state in said["tenants"].items()}
            self.signers = {name: _public(key) for name, key in said["signers"].items()}
        elif action == "seal.key":
            self.signers[target] = _public(detail["public_key"])
        elif action.startswith("key"):
            given = [detail["key"]] if "key" in detail else detail.get("keys", ())
            self.keys.update((_text(key["id"]), _named(key)) for key in given)
            for name in detail.get("removed", ()):
                self.keys.pop(name, None)
        elif action.startswith("tenant.") and "tenant" in detail:
            self.tenants[_text(detail["tenant"]["name"])] = detail["tenant"]


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no name")
    return value


def _named(state: Any) -> Any:
    """Of a key or a tenant, as it is."""
    _text(state["name"])
    return state


def _public(key: Any) -> str:
    """A public key in hex."""
    if len(bytes.fromhex(_text(key))) != 32:
        raise ValueError(f"{key!r} is no public key")
    return str(key)
