"""Which prompts belong together, so that none is tested on the like of what was learned. Pure."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Part = Literal["train", "validation", "calibration", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "calibration", "test")
SHARES = (0.60, 0.10, 0.15, 0.15)
ALIKE = 0.9
"""Cosine above which two prompts are of one family."""
_BLOCK = 1024
"""Rows compared at a time, so that memory stays small."""


def families(
    vectors: NDArray[np.float32], templates: Sequence[str] | None = None
) -> NDArray[np.int64]:
    """A number for each prompt: equal where vectors (of length 1; zeros are like nothing) are
    nearer than ALIKE, directly or through others, or where `templates` are equal and not empty."""
    parents = list(range(len(vectors)))
    for start in range(0, len(vectors), _BLOCK):
        near = vectors[start : start + _BLOCK] @ vectors.T > ALIKE
        for row, column in np.argwhere(near):
            _join(parents, start + int(row), int(column))
    first: dict[str, int] = {}
    for place, template in enumerate(templates or ()):
        if template:
            _join(parents, place, first.setdefault(template, place))
    return np.array([_root(parents, place) for place in range(len(vectors))], dtype=np.int64)


def _root(parents: list[int], place: int) -> int:
    while parents[place] != place:
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place


def _join(parents: list[int], one: int, other: int) -> None:
    a, b = _root(parents, one), _root(parents, other)
    parents[max(a, b)] = min(a, b)


def split(
    family: NDArray[np.int64], only_test: NDArray[np.bool_], *, seed: int = 0
) -> NDArray[np.str_]:
    """The part of each prompt: whole families, 60 % of the prompts to train on, 10 % to stop
    early by, 15 % to calibrate with and 15 % to test on. A family with a prompt of `only_test` is
    tested on, whole."""
    found = np.full(len(family), "test", dtype="<U11")
    kept_out = set(family[only_test].tolist())
    free = np.array([name for name in np.unique(family) if name not in kept_out], dtype=np.int64)
    sizes = {int(name): int((family == name).sum()) for name in free}
    total, done = sum(sizes.values()), 0
    ends = np.cumsum(SHARES)
    for name in np.random.default_rng(seed).permutation(free):
        place = int(np.searchsorted(ends, (done + sizes[int(name)] / 2) / total, side="left"))
        found[family == name] = PARTS[min(place, len(PARTS) - 1)]
        done += sizes[int(name)]
    return found
