"""How common each token is in prompts, so that common ones count little in a mean of rows.

Smooth inverse frequency (Arora, Liang and Ma, 2017), by the share of prompts that hold a token: so
the chat template, which is in all of them, hardly counts, whatever the model's template is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

STRENGTH = 200.0
"""A token in a share s of all prompts counts 1 / (1 + STRENGTH * s)."""
KEPT = 32768
"""Tokens kept, the most common ones; others count 1."""


@dataclass(frozen=True, slots=True)
class CommonTokens:
    """Shares of prompts, by token id."""

    ids: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """Ascending."""
    shares: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    @classmethod
    def of(cls, prompts: Iterable[Sequence[int]]) -> Self:
        """Counted in training prompts alone."""
        counts: dict[int, int] = {}
        total = 0
        for prompt in prompts:
            total += 1
            for token in set(prompt):
                counts[token] = counts.get(token, 0) + 1
        kept = sorted(sorted(counts, key=lambda token: (-counts[token], token))[:KEPT])
        shares = [counts[token] / total for token in kept]
        return cls(np.array(kept, dtype=np.int32), np.array(shares, dtype=np.float32))

    def most(self, count: int) -> list[int]:
        """The most common ones, at most so many."""
        found: list[int] = self.ids[np.argsort(-self.shares, kind="stable")[:count]].tolist()
        return found

    def weights(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """float32 [ids], in 0..1."""
        if not len(self.ids):
            return np.ones(len(ids), dtype=np.float32)
        wanted = np.asarray(ids, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        shares = np.where(self.ids[at] == wanted, self.shares[at], np.float32(0))
        return (1 / (1 + np.float32(STRENGTH) * shares)).astype(np.float32)
