"""Answers beside what was known of their prompts: what is trained on, and compared on."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.train import Examples

Matrix = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompts, a row each."""

    x: Matrix
    """[prompts, F], from the pipeline."""
    names: tuple[str, ...]
    """Of the F features."""
    embedding: Matrix
    """[prompts, E], as it went into the pipeline."""
    prompt_tokens: Ints
    families: Ints
    sources: tuple[str, ...]
    """Where each comes from: what a report shows apart."""
    lengths: tuple[tuple[int, ...], ...]
    """Of the answers to each, in the order of `censored`."""
    censored: tuple[tuple[bool, ...], ...]
    quality: tuple[tuple[float, ...], ...] | None = None
    """1 right, 0 wrong, NaN not checkable."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Answers, a row each: arrays of the same first axis."""

    x: Matrix
    embedding: Matrix
    prompt_tokens: Ints
    families: Ints
    sources: NDArray[np.str_]
    lengths: Ints
    censored: NDArray[np.bool_]
    prompts: Ints
    quality: Matrix
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.lengths)

    def at(self, chosen: NDArray[np.bool_] | Ints) -> "Rows":
        """Some of them."""
        arrays = [field.name for field in fields(self) if field.name != "names"]
        return replace(self, **{name: getattr(self, name)[chosen] for name in arrays})

    def examples(self) -> Examples:
        """What `train` takes."""
        return Examples(self.x, self.lengths, self.censored, self.prompts, self.quality)

    def columns(self, *starts: str) -> Matrix:
        """The features whose names start with any of these."""
        return self.x[:, [name.startswith(starts) for name in self.names]]

    def groups(self) -> dict[int, list[int]]:
        """The lengths of the answers to each prompt."""
        found: dict[int, list[int]] = {}
        for prompt, length in zip(self.prompts.tolist(), self.lengths.tolist(), strict=True):
            found.setdefault(prompt, []).append(length)
        return found


def rows_of(asked: Asked) -> Rows:
    """A row for each answer; `prompts` are the places in `asked`."""
    owner = np.repeat(np.arange(len(asked.lengths)), [len(one) for one in asked.lengths])
    return Rows(
        asked.x[owner],
        asked.embedding[owner],
        asked.prompt_tokens[owner],
        asked.families[owner],
        np.asarray(asked.sources, dtype=np.str_)[owner],
        _flat(asked.lengths).astype(np.int64),
        _flat(asked.censored).astype(bool),
        owner.astype(np.int64),
        _qualities(asked, len(owner)),
        asked.names,
    )


def _flat(parts: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    return np.array([value for part in parts for value in part], dtype=np.float64)


def _qualities(asked: Asked, count: int) -> Matrix:
    if asked.quality is None:
        return np.full(count, np.nan, dtype=np.float32)
    return _flat(asked.quality).astype(np.float32)
