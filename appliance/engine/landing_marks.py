"""Which tokens of a vocabulary end sentences and lines, and how likely a row finds them."""

import re
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from appliance.engine.vocab import Vocab

Logits = NDArray[np.float32]
Ids = NDArray[np.int64]

_CLOSER = re.compile(
    rb"[.!?][\"')\]*_]*\s*|(?:\xe3\x80\x82|\xef\xbc\x81|\xef\xbc\x9f|\xe2\x80\xa6)"
    rb"(?:\xe2\x80\x9d|\xe3\x80\x8d|\xef\xbc\x89|\")?"
)
_BREAK = re.compile(rb"[ \t]*\n+")
_GAP = re.compile(rb"\s")


class Marks:
    """Made once per vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        shown = [t for t in range(vocab.n_tokens) if t not in vocab.hidden]
        pieces = {token: vocab.piece(token) for token in shown if token not in vocab.eogs}
        self.ends = frozenset(vocab.eogs | vocab.hidden)
        """End-of-generation and control tokens: what must not come where the answer goes on."""
        self.closers = _ids(t for t, piece in pieces.items() if _CLOSER.fullmatch(piece))
        self.sentence_ends = frozenset(self.closers.tolist())
        self.breakers = _ids(t for t, piece in pieces.items() if _BREAK.fullmatch(piece))
        self.breaks = _ids({t for t, piece in pieces.items() if _BREAK.match(piece)} | vocab.eogs)
        self.gaps = _ids({t for t, piece in pieces.items() if _GAP.match(piece)} | vocab.eogs)

    def chances(self, logits: Logits) -> "Chances":
        return Chances(self, logits)


class Chances:
    """Probabilities in one row, as the model gave it. To be used before the next step."""

    __slots__ = ("_highest", "_logits", "_marks", "_mass")

    def __init__(self, marks: Marks, logits: Logits) -> None:
        self._marks, self._logits = marks, logits
        self._highest = float(logits.max())
        self._mass = float(np.exp(logits - np.float32(self._highest)).sum(dtype=np.float64))

    def of(self, token: int) -> float:
        return float(np.exp(float(self._logits[token]) - self._highest)) / self._mass

    @property
    def closer(self) -> int:
        """The likeliest token that ends a sentence."""
        return self._likeliest(self._marks.closers)

    @property
    def breaker(self) -> int:
        """The likeliest token that ends a line and is nothing else."""
        return self._likeliest(self._marks.breakers)

    def _likeliest(self, ids: Ids) -> int:
        return int(ids[self._logits[ids].argmax()])

    @property
    def line_end(self) -> float:
        """That a new line, or the end of the answer, comes next."""
        return self._sum(self._marks.breaks)

    @property
    def gap(self) -> float:
        """That a space, a new line or the end comes next: what was before is a word of its own."""
        return self._sum(self._marks.gaps)

    def _sum(self, ids: Ids) -> float:
        parts = np.exp(self._logits[ids] - np.float32(self._highest))
        return float(parts.sum(dtype=np.float64)) / self._mass


def _ids(tokens: Iterable[int]) -> Ids:
    return np.array(sorted(tokens), dtype=np.int64)


@lru_cache(maxsize=1)
def marks_of(vocab: Vocab) -> Marks:
    """A process serves one vocabulary."""
    return Marks(vocab)
