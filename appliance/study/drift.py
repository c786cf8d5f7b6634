"""`study tokens`: the same text through two models' tokenizers.

Who swaps models keeps his limits and budgets in tokens, but a token of the new model is not one of
the old. The ratio says how a limit must be moved to let through the same text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

QUANTILES = (0.1, 0.5, 0.9)
BUDGET = 512
"""Tokens of the first model, whose worth in the second is told."""


class Tokenizer(Protocol):
    """What is needed of a vocabulary (`engine.vocab.Vocab`)."""

    n_tokens: int

    def tokenize(self, text: str | bytes, add_special: bool, parse_special: bool) -> list[int]: ...

    def detokenize(self, tokens: Sequence[int], special: bool = False) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Side:
    """One tokenizer on the lines of a group."""

    tokens: int
    per_byte: float
    per_character: float
    per_word: float
    """Fertility. A word is what white space parts; of Chinese and Japanese, a character."""
    lossless: bool
    """Every line comes back byte by byte."""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    lines: int
    bytes: int
    characters: int
    words: int
    a: Side
    b: Side
    ratio: float
    """Tokens of b per token of a, all lines together."""
    quantiles: tuple[float, ...]
    """Of the ratio of single lines, at `QUANTILES`."""
    worst: float
    """The largest ratio of a line."""

    @property
    def budget(self) -> int:
        """Tokens of b that let through nine of ten lines which `BUDGET` tokens of a did."""
        return int(np.ceil(BUDGET * self.quantiles[-1]))


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Report:
    a: Model
    b: Model
    groups: tuple[Group, ...]


def report(
    names: tuple[str, str], a: Tokenizer, b: Tokenizer, texts: Mapping[str, Sequence[str]]
) -> Report:
    """Both on all groups of lines, none of which is empty."""
    return Report(
        Model(names[0], a.n_tokens),
        Model(names[1], b.n_tokens),
        tuple(_group(name, lines, a, b) for name, lines in texts.items()),
    )


def _group(name: str, lines: Sequence[str], a: Tokenizer, b: Tokenizer) -> Group:
    size = sum(len(line.encode()) for line in lines)
    characters = sum(map(len, lines))
    words = sum(map(words_of, lines))
    counts = [[len(_ids(side, line)) for line in lines] for side in (a, b)]
    ratios = np.array(counts[1], dtype=np.float64) / np.array(counts[0], dtype=np.float64)
    one, other = (
        Side(total, total / size, total / characters, total / words, _lossless(side, lines))
        for side, total in ((a, sum(counts[0])), (b, sum(counts[1])))
    )
    return Group(
        name,
        len(lines),
        size,
        characters,
        words,
        one,
        other,
        ratio=other.tokens / one.tokens,
        quantiles=tuple(float(q) for q in np.quantile(ratios, QUANTILES)),
        worst=float(ratios.max()),
    )


def words_of(line: str) -> int:
    """Words in a line, at least one; a Chinese character or a kana counts as one."""
    alone = sum(_is_word(letter) for letter in line)
    rest = "".join(" " if _is_word(letter) else letter for letter in line)
    return max(1, alone + len(rest.split()))


def _is_word(letter: str) -> bool:
    return "\u3040" <= letter <= "\u30ff" or "\u3400" <= letter <= "\u9fff"


def _ids(side: Tokenizer, line: str) -> list[int]:
    return side.tokenize(line, add_special=False, parse_special=False)


def _lossless(side: Tokenizer, lines: Sequence[str]) -> bool:
    """A leading space, which some tokenizers put there, is no loss."""
    return all(
        side.detokenize(_ids(side, line), special=True).removeprefix(b" ")
        == line.encode().removeprefix(b" ")
        for line in lines
    )
