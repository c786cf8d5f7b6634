"""How many bytes the next tokens add: from a row of logits or log-probabilities. Pure.

A vocabulary's tokens are grouped by the bytes of their text. log P(length = b) is the grouped
log-sum-exp of the row, less that of the whole row: O(V), and in float64 from each group's own
maximum (Blanchard, Higham and Higham 2021, IMA J. Numer. Anal. 41(4), give the bounds of that
form), so that a group of 1e-300 is as exact as a likely one.

Control tokens show nothing: 0 bytes. Tokens that end the generation are an outcome of their own,
for after them there is no next token.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from appliance.engine.vocab import Vocab

Row = NDArray[np.float64]

_END = -1
"""The group of tokens that end a generation; lengths are 0 and more."""


class BadRow(ValueError):
    """A row from which no distribution follows. Says why."""


@dataclass(frozen=True, slots=True, eq=False)
class ByteLengths:
    """Bytes that one token adds: `p[b]` = P(b bytes), `end` = P(generation ends); all sum to 1."""

    p: Row
    end: float

    @property
    def mean(self) -> float:
        """Bytes; an end adds none."""
        return float(self.p @ np.arange(len(self.p)))

    @property
    def variance(self) -> float:
        """Bytes squared; an end adds none."""
        at = np.arange(len(self.p)) - self.mean
        return float(self.p @ at**2) + self.end * self.mean**2

    @property
    def entropy(self) -> float:
        """Nats, over the end and each length."""
        return _entropy(np.append(self.p, self.end))

    @property
    def going_on(self) -> "ByteLengths":
        """The same, given that generation does not end here. Raises BadRow where it must end."""
        rest = float(self.p.sum())
        if not rest > 0.0:
            raise BadRow("the generation ends here for certain: there is no next token's length")
        return ByteLengths(self.p / rest, 0.0)


class Grouping:
    """The tokens of a vocabulary in groups of equal byte length."""

    def __init__(self, lengths: Iterable[int], ends: Collection[int] = ()) -> None:
        """`lengths[t]`: bytes of token t, 0 for a control token; `ends`: ids that end a
        generation. Raises ValueError for an empty vocabulary, a negative length or a foreign id."""
        group = np.array([*lengths], dtype=np.int64)
        if not group.size or group.min() < 0:
            raise ValueError("a vocabulary has at least one token, and no token a negative length")
        if any(not 0 <= token < group.size for token in ends):
            raise ValueError("an end-of-generation token is not of this vocabulary")
        self.longest = int(group.max())
        """Bytes of the longest token."""
        group[list(ends)] = _END
        self._order = np.argsort(group, kind="stable")
        self._groups, self._starts = np.unique(group[self._order], return_index=True)
        self._sizes = np.diff(np.append(self._starts, group.size))

    @classmethod
    def of(cls, vocab: "Vocab") -> Self:
        """The model's own. A text's bytes are those that clients get: control tokens have none."""
        return cls((len(vocab.piece(token)) for token in range(vocab.n_tokens)), vocab.eogs)

    def __len__(self) -> int:
        """Tokens."""
        return len(self._order)

    def distribution(self, row: ArrayLike) -> ByteLengths:
        """Of one row of logits or log-probabilities, shape (V,); -inf is a token that cannot come.
        Raises BadRow for another shape, NaN, +inf, or a row that allows no token."""
        logs = self.log_sums(row)
        p = np.zeros(self.longest + 1)
        shares = np.exp(logs - np.logaddexp.reduce(logs))
        shown = self._groups != _END
        p[self._groups[shown]] = shares[shown]
        return ByteLengths(p, float(shares[~shown].sum()))

    def log_sums(self, row: ArrayLike) -> Row:
        """Log-sum-exp of each group, in the order of `groups`."""
        grouped = self._checked(row)[self._order]
        highest = np.maximum.reduceat(grouped, self._starts)
        # A group that cannot come at all: its maximum is no number to subtract.
        base = np.where(np.isneginf(highest), 0.0, highest)
        sums = np.add.reduceat(np.exp(grouped - np.repeat(base, self._sizes)), self._starts)
        with np.errstate(divide="ignore"):
            return np.asarray(base + np.log(sums))

    @property
    def groups(self) -> tuple[int, ...]:
        """Bytes of each group, ascending; -1 are the ends."""
        return tuple(int(group) for group in self._groups)

    def _checked(self, row: ArrayLike) -> Row:
        found = np.asarray(row, dtype=np.float64)
        if found.shape != (len(self),):
            raise BadRow(f"a row of shape {found.shape} for a vocabulary of {len(self)} tokens")
        highest = found.max()  # NaN counts as the highest
        if not np.isfinite(highest):
            raise BadRow("a row holds NaN or +inf, or allows no token at all")
        return found


def total(steps: Sequence[ByteLengths]) -> Row:
    """P(n bytes in all) of the next `len(steps)` tokens, n = 0, 1, …: a convolution of the steps.
    An end ends the sum.

    An approximation: it takes each token's length as independent of the tokens before it. A model's
    are not (a long word is followed by a short mark), so its mean is usually good and its spread
    only roughly so; `steelyard study bytes` measures by how much."""
    ended, running = np.zeros(1), np.ones(1)
    for step in steps:
        ended = _sum(ended, running * step.end)
        running = np.convolve(running, step.p)
    return _sum(ended, running)


def repeated(step: ByteLengths, count: int) -> Row:
    """As `total` of `count` equal steps: what one row tells of the next `count` tokens."""
    return total([step] * count)


def mean(p: Row) -> float:
    """Of a distribution over 0, 1, … bytes."""
    return float(p @ np.arange(len(p)))


def deviation(p: Row) -> float:
    """Standard deviation, in bytes."""
    return float(np.sqrt(p @ (np.arange(len(p)) - mean(p)) ** 2))


def quantile(p: Row, tau: float) -> int:
    """The least n with P(at most n bytes) >= tau."""
    cumulative = np.cumsum(p)
    return int(np.searchsorted(cumulative, min(tau, cumulative[-1])))


def mixture(rows: Sequence[ByteLengths]) -> ByteLengths:
    """The average of several: what a token drawn at one of these places, at random, adds."""
    p = reduce(_sum, (row.p for row in rows)) / len(rows)
    return ByteLengths(p, sum(row.end for row in rows) / len(rows))


def _sum(one: Row, other: Row) -> Row:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    found = longer.copy()
    found[: len(shorter)] += shorter
    return found


def _entropy(p: Row) -> float:
    some = p[p > 0.0]
    return float(-(some @ np.log(some))) + 0.0
