"""How a structure under way is closed with few tokens, as its grammar allows.

`Closing` simulates on copies of the matcher: at each place it takes what closes most (quotes,
brackets), then what a required key needs, then the shortest filler. The path it finds is one that
the grammar takes, so an answer that follows it is valid; that there is none shorter is not proven.
A grammar can make the search slow, and others' steps wait for it: so it has a time.
"""

import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import Self

import numpy as np
from numpy.typing import NDArray

from appliance.engine.constrain import Constraint
from appliance.engine.vocab import Vocab

Ranks = NDArray[np.int32]

MOST = 512
"""Tokens of a path. What takes more to close counts as what cannot be."""
NEAR = 32
"""Tokens of a path that one token of the answer may make needless, at most."""
_NEVER = 1 << 20

_OUTSIDE = (
    rb"[}\]]+", rb"\"\"[}\]]+", rb"\"\"", rb"\"", rb"\":\"\"", rb"\":", rb":", rb"[\d\[{]", rb",",
    rb"[\"{}\[\]:,]+", rb"null|true", rb"false", rb"\w", rb"\w+", rb"\s?\S+", rb"\s+",
)  # fmt: skip
_INSIDE = (
    rb"\"[}\]]+", rb"\"", rb"\":", rb"\"[{}\[\]:,\"]+", rb" ?[a-z]+", rb"\w+", rb"[^\s\"\\]+",
    rb"\s?\S+", rb"\s+",
)  # fmt: skip
"""Of a token's bytes, best first, outside and inside a JSON string."""
_LONGEST_FIRST = frozenset({rb"[}\]]+", rb"\"[}\]]+", rb" ?[a-z]+"})
"""Kinds whose longer tokens close more, or fill more; of the others the shorter go first."""


class Orders:
    """A vocabulary's tokens in the order in which they close structures. Made once."""

    def __init__(self, vocab: Vocab) -> None:
        self.n_vocab = vocab.n_tokens
        pieces = [b"" if t in vocab.hidden else vocab.piece(t) for t in range(vocab.n_tokens)]
        self.outside = _ranks(pieces, _OUTSIDE)
        self.inside = _ranks(pieces, _INSIDE)


def _ranks(pieces: Sequence[bytes], kinds: Sequence[bytes]) -> Ranks:
    any_kind = re.compile(b"|".join(b"(%s)" % kind for kind in kinds))
    return np.array([_rank(any_kind.fullmatch(piece), kinds) for piece in pieces], dtype=np.int32)


def _rank(found: re.Match[bytes] | None, kinds: Sequence[bytes]) -> int:
    if found is None or found.lastindex is None:
        return _NEVER - 1
    kind, length = found.lastindex - 1, min(len(found[0]), 15)
    return 32 * kind + (16 - length if kinds[kind] in _LONGEST_FIRST else length)


class Quotes:
    """Whether a JSON text is within a string."""

    __slots__ = ("_escaped", "inside")

    def __init__(self, inside: bool = False, escaped: bool = False) -> None:
        self.inside, self._escaped = inside, escaped

    def feed(self, piece: bytes) -> None:
        for byte in piece:
            if self._escaped:
                self._escaped = False
            elif byte == 0x22:
                self.inside = not self.inside
            elif byte == 0x5C:
                self._escaped = self.inside

    def copy(self) -> Self:
        return type(self)(self.inside, self._escaped)


class Closing:
    """The way to close one answer from where it is, kept up to date token by token."""

    def __init__(
        self,
        orders: Orders,
        vocab: Vocab,
        constraint: Constraint,
        *,
        until: float = inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`until`: when to give the search up, by `clock`."""
        self._orders = orders
        self._vocab = vocab
        self._constraint = constraint
        self._clock = clock
        self._until = until
        self._quotes = Quotes()
        self.path = self._find(constraint.copy(), self._quotes)
        """Tokens that close it from here; None where none were found."""

    def after(self, token: int, until: float = inf) -> tuple[int, ...] | None:
        """The path that would be left if this token came next; None: there is none, or the grammar
        does not take the token, or it was not found until then."""
        self._until = until
        twin = self._constraint.copy()
        if not twin.accept(token):
            return None
        path = self.path or ()
        if path and token == path[0]:
            return path[1:]
        rest = self._rest(twin, path) if self.path is not None else None
        if rest is not None:
            return rest
        quotes = self._quotes.copy()
        quotes.feed(self._vocab.piece(token))
        return self._find(twin, quotes)

    def _rest(self, twin: Constraint, path: tuple[int, ...]) -> tuple[int, ...] | None:
        """The end of the old path, where that will do. What comes after it in a long structure does
        not change, so what is needless of it is looked for at its beginning."""
        if twin.can_end:
            return ()
        found = None
        for start in range(min(NEAR, len(path))):
            if self._late:
                break
            if _closes(twin.copy(), path[start:]):
                found = path[start:]
            elif found is not None:
                break
        return found

    @property
    def _late(self) -> bool:
        return self._clock() > self._until

    def take(self, token: int, path: tuple[int, ...] | None) -> None:
        """The answer took this token; `path` is what `after` said."""
        self._quotes.feed(self._vocab.piece(token))
        self.path = path

    def _find(self, start: Constraint, quotes: Quotes) -> tuple[int, ...] | None:
        """The way that is found by what the quotes so far mean in JSON; where that leads nowhere,
        by the contrary: not every grammar is JSON."""
        path = self._walk(start.copy(), quotes.copy(), turned=False)
        return path if path is not None else self._walk(start.copy(), quotes.copy(), turned=True)

    def _walk(self, twin: Constraint, quotes: Quotes, *, turned: bool) -> tuple[int, ...] | None:
        path: list[int] = []
        while not twin.can_end:
            ranks = self._orders.inside if quotes.inside != turned else self._orders.outside
            allowed = twin.allowed(self._orders.n_vocab)
            token = int(np.where(allowed, ranks, _NEVER).argmin())
            if not allowed[token] or len(path) >= MOST or not twin.accept(token) or self._late:
                return None
            quotes.feed(self._vocab.piece(token))
            path.append(token)
        return tuple(path)


def _closes(twin: Constraint, path: Sequence[int]) -> bool:
    """Whether the path leads to an end from here too. Spends `twin`."""
    return all(twin.accept(token) for token in path) and twin.can_end


@lru_cache(maxsize=1)
def orders_of(vocab: Vocab) -> Orders:
    """A process serves one vocabulary."""
    return Orders(vocab)
