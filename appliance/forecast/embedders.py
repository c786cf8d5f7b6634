"""A vector for a prompt, cheap enough to be made beside prefill. Each reads a bounded part of it.

Names, as stored in a pipeline: `none`; `tokens-H-T`, the mean of the served model's own rows of the
first H and last T tokens; `minilm-H-T`, the sentence encoder on so many tokens of what the user
said last.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.commontokens import CommonTokens
from appliance.forecast.encoder import DIMENSIONS, MAX_TOKENS, Encoder, EncoderError
from appliance.forecast.question import Question
from appliance.forecast.tokenrows import TokenRows
from appliance.forecast.tokentable import TokenTable

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]

APART_BYTES = 1024 * 1024
"""Of rows kept by one that is read seldom."""
CHARACTERS = 8
"""Read of a text for each of the encoder's tokens that is wanted: longer words are rare."""

_NAME = re.compile(r"(tokens|minilm)-(\d{1,3})-(\d{1,3})")


class Embedder(Protocol):
    """Makes a vector for a prompt. One thread at a time."""

    @property
    def name(self) -> str:
        """What a pipeline stores, so that it meets the embedder it was fitted with."""

    @property
    def dimensions(self) -> int: ...

    def embed(self, question: Question) -> Vector:
        """float32 [dimensions], of length 1; zeros where there is nothing to read. Raises
        EncoderError when the embedder cannot work here.
        """

    def close(self) -> None:
        """Gives back what it holds."""


class Nothing:
    """No vector at all: the words must do."""

    name = "none"
    dimensions = 0

    def embed(self, question: Question) -> Vector:
        return np.zeros(0, dtype=np.float32)

    def close(self) -> None:
        pass


class TokenMean:
    """The mean of the model's own rows, in which common tokens count little: no network is run."""

    def __init__(
        self,
        table: TokenTable,
        centre: Vector,
        head: int,
        tail: int,
        common: CommonTokens | None = None,
        kept_bytes: int | None = None,
    ) -> None:
        """`centre` is taken off each row: what all have in common tells nothing."""
        self._table, self._centre = table, centre
        self._head, self._tail = head, tail
        self._common = common or CommonTokens()
        self._rows = TokenRows(table, centre, self._common, head + tail, kept_bytes)
        self.name = f"tokens-{head}-{tail}"
        self.dimensions = table.width

    def weighing(self, common: CommonTokens) -> "TokenMean":
        """The same, with other weights; it shares the table, which either closes."""
        return TokenMean(self._table, self._centre, self._head, self._tail, common)

    def apart(self) -> "TokenMean":
        """The same for another thread: its rows and its file are its own. Raises OSError."""
        table = self._table.again()
        return TokenMean(
            table, self._centre, self._head, self._tail, self._common, kept_bytes=APART_BYTES
        )

    def embed(self, question: Question) -> Vector:
        return unit(self._rows.sum(bounded(question.prompt, self._head, self._tail)))

    def close(self) -> None:
        self._table.close()


class MiniLm:
    """The sentence encoder, on head and tail of what the user said last."""

    dimensions = DIMENSIONS

    def __init__(self, encoder: Encoder, head: int, tail: int) -> None:
        self._encoder = encoder
        self._head, self._tail = head, tail
        self.name = f"minilm-{head}-{tail}"

    def embed(self, question: Question) -> Vector:
        turns = reversed(question.turns)
        text = next((turn.text for turn in turns if turn.role == "user"), "")
        ids = self._encoder.tokens(_ends(text, CHARACTERS * self._head, CHARACTERS * self._tail))
        inner = bounded(ids[1:-1], self._head, self._tail)
        return unit(self._encoder.embed([inner]).vectors[0]) if inner else _zeros(DIMENSIONS)

    def close(self) -> None:
        """The encoder is the daemon's, which also serves embeddings from it."""


def embedder(name: str, model: Path, encoder: Encoder) -> Embedder:
    """The embedder of that name. Raises EncoderError: unknown name, or a file it cannot read."""
    if name == Nothing.name:
        return Nothing()
    match = _NAME.fullmatch(name)
    if match is None:
        raise EncoderError(f"no embedder is called {name!r}: the forecaster is of another version")
    head, tail = int(match[2]), int(match[3])
    if match[1] == "tokens":
        return _token_mean(model, head, tail)
    if not 0 < head + tail <= MAX_TOKENS - 2:
        raise EncoderError(f"{name} asks for more than the {MAX_TOKENS} tokens the encoder reads")
    return MiniLm(encoder, head, tail)


def _token_mean(model: Path, head: int, tail: int) -> TokenMean:
    table = TokenTable(model)
    try:
        return TokenMean(table, table.centre(), head, tail)
    except BaseException:
        table.close()
        raise


def weighing(source: Embedder, common: CommonTokens) -> Embedder:
    """The embedder with these weights of tokens; others than the token mean stay as they are."""
    return source.weighing(common) if isinstance(source, TokenMean) else source


def embed_all(source: Embedder, questions: Sequence[Question]) -> Matrix:
    """float32 [questions, dimensions]."""
    rows = [source.embed(question) for question in questions]
    return np.array(rows, dtype=np.float32).reshape(len(questions), source.dimensions)


def bounded(ids: Sequence[int], head: int, tail: int) -> Sequence[int]:
    """The first `head` and the last `tail`, none twice."""
    if len(ids) <= head + tail:
        return ids
    return (*ids[:head], *ids[len(ids) - tail :])


def unit(vector: Vector) -> Vector:
    """Of length 1; zeros when it has none, or is not finite."""
    length = math.sqrt(vector @ vector)
    return vector / np.float32(length) if 1e-12 < length < math.inf else _zeros(len(vector))


def _zeros(size: int) -> Vector:
    return np.zeros(size, dtype=np.float32)


def _ends(text: str, head: int, tail: int) -> str:
    """Half of a pair of surrogates is no text to a tokenizer, so it becomes a question mark."""
    if len(text) > head + tail:
        text = f"{text[:head]}\n{text[len(text) - tail :]}"
    return text.encode("utf-8", "replace").decode()
