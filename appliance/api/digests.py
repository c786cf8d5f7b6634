"""Token digests (version 1) of an answer while it is written.

The prompt is hashed once, each choice goes on from there, token by token. What it comes to is
defined by `token_digest` (`ledger/verify/canon.py`).
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Protocol

HEADER = "X-Token-Diff-SHA256"
"""The header, and the member of a stream's chunks."""

_SEED = b"steelyard-token-v1\n"
_pair = struct.Struct("<II").pack


class Hash(Protocol):
    """What is used of hashlib's."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...

    def copy(self) -> "Hash": ...


class Digests:
    """Of all choices of one call. Choices are numbered through, as in `Flight`."""

    def __init__(self, prompts: Sequence[Sequence[int]], n: int) -> None:
        """`n` choices of each prompt."""
        self._prompts = prompts
        self._n = n
        self._begun: dict[int, Hash] = {}
        self._hashes: dict[int, Hash] = {}
        self._lengths: dict[int, int] = {}

    def add(self, choice: int, token_ids: Iterable[int]) -> None:
        """The next tokens of a choice."""
        taken = self._hashes.get(choice) or self._begin(choice)
        at = self._lengths[choice]
        for token in token_ids:
            at += 1
            taken.update(_pair(token, at))
        self._lengths[choice] = at

    def of(self, choice: int) -> str:
        """The digest of prompt and answer so far, in hexadecimal."""
        return (self._hashes.get(choice) or self._begin(choice)).hexdigest()

    @property
    def all(self) -> str:
        """Of every choice in order, comma-separated."""
        return ",".join(self.of(choice) for choice in range(len(self._prompts) * self._n))

    def _begin(self, choice: int) -> Hash:
        prompt = choice // self._n
        begun = self._begun.get(prompt)
        if begun is None:
            begun = self._begun[prompt] = _hash_prompt(self._prompts[prompt])
        taken = self._hashes[choice] = begun.copy()
        self._lengths[choice] = len(self._prompts[prompt])
        return taken


def _hash_prompt(prompt: Sequence[int]) -> Hash:
    pairs = [0] * (2 * len(prompt))
    pairs[0::2] = prompt
    pairs[1::2] = range(1, len(prompt) + 1)
    return hashlib.sha256(_SEED + struct.pack(f"<{len(pairs)}I", *pairs))
