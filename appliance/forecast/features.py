"""From a question to the numbers a network reads. Pure and versioned.

A row is [words, the embedding's principal components, neighbours], scaled. Neighbours are looked
for by the embedding and by the words' features together, each of which counts for what it tells
of the length: this finds nearer ones than either alone (docs/forecast.md has the figures).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from appliance.forecast import lexical, neighbours
from appliance.forecast.commontokens import CommonTokens
from appliance.forecast.embedders import Embedder, unit, weighing
from appliance.forecast.neighbours import CAPACITY, Neighbours
from appliance.forecast.projection import COMPONENTS, Scaling, principal, relevance
from appliance.forecast.question import Question

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]

VERSION = 1
"""Changes when the meaning of any feature changes: a forecaster of another version is refused."""
SHOWN = 16
"""The first of them that the network sees."""
LENGTH = 1.001
"""Of an embedding, at most: rounding aside it is 1."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer to a prompt."""

    length: int
    """Tokens generated, the end included; at least 1."""
    censored: bool
    """It was cut off there."""


@dataclass(frozen=True, slots=True)
class Row:
    """A question as the network reads it."""

    values: Vector
    """float32 [width], finite, scaled, within ±projection.LIMIT."""
    place: Vector
    """Where it lies among its neighbours: what Neighbours.add takes when the answer has ended."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Fitted on training prompts alone."""

    embedder: str
    """Name of the embedder it was fitted with (embedders.py)."""
    words: Scaling
    """Of the words' features."""
    weights: Vector
    """float32 [words]: what each counts when neighbours are looked for."""
    centre: Vector
    """float32 [embedding]."""
    components: Matrix
    """float32 [COMPONENTS or fewer, embedding], each of length 1, the strongest first."""
    others: Scaling
    """Of the components shown, and of what neighbours say."""
    common: CommonTokens
    """What the embedder it was fitted with weighed tokens by."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features, in order."""
        shown = tuple(f"component_{n}" for n in range(len(self.components[:SHOWN])))
        return (*lexical.NAMES, *shown, *neighbours.NAMES)

    @property
    def width(self) -> int:
        """How many features."""
        return len(self.names)

    def attached(self, source: Embedder) -> Embedder:
        """The embedder `source`, of this pipeline's name, as it was when this was fitted."""
        return weighing(source, self.common)

    def neighbourhood(self, capacity: int = CAPACITY) -> Neighbours:
        """An empty one of the right dimensions."""
        return Neighbours(len(self.weights) + len(self.components), capacity)

    def place(self, question: Question, embedding: Vector) -> Vector:
        """Where a prompt lies among its neighbours: what Neighbours.add and .statistics take."""
        return self._place(self.words.scaled(lexical.lexical(question)), self._project(embedding))

    def row(
        self,
        question: Question,
        embedding: Vector,
        near: Neighbours,
        *,
        exclude: int | None = None,
    ) -> Row:
        """The features; neighbours of the family `exclude` are left out. Never raises for what is
        in the question or the embedding: of one that is not finite nothing is used.
        """
        words, place, others = self._read(question, embedding, near, exclude)
        return Row(np.concatenate((words, self.others.scaled(others))), place)

    def matrix(self, questions: Sequence[Question], embeddings: Matrix, near: Neighbours) -> Matrix:
        """float32 [questions, width]: `row` for each (validation, test)."""
        pairs = zip(questions, embeddings, strict=True)
        rows = [self.row(question, embedding, near).values for question, embedding in pairs]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.width)

    def _read(
        self, question: Question, embedding: Vector, near: Neighbours, exclude: int | None
    ) -> tuple[Vector, Vector, Vector]:
        """Words (scaled), place, and the other features (not scaled)."""
        words = self.words.scaled(lexical.lexical(question))
        projected = self._project(embedding)
        place = self._place(words, projected)
        said = near.statistics(place, exclude=exclude)
        return words, place, np.concatenate((projected[:SHOWN], said))

    def _project(self, embedding: Vector) -> Vector:
        """What is not a vector of length 1 or less counts as one that says nothing."""
        about_centre = embedding - self.centre
        if not np.abs(embedding).max(initial=0) <= LENGTH:
            return np.zeros(len(self.components), dtype=np.float32)
        return self.components @ about_centre

    def _place(self, words: Vector, projected: Vector) -> Vector:
        """Of length 1; embedding and words count alike."""
        return unit(np.concatenate((unit(projected), unit(words * self.weights))))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it, for np.savez (no pickles)."""
        return {
            "version": np.array(VERSION),
            "embedder": np.array(self.embedder),
            "words_mean": self.words.mean,
            "words_scale": self.words.scale,
            "weights": self.weights,
            "centre": self.centre,
            "components": self.components,
            "others_mean": self.others.mean,
            "others_scale": self.others.scale,
            "common_ids": self.common.ids,
            "common_shares": self.common.shares,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Raises ValueError: arrays missing, of wrong shapes, not finite, or of another VERSION."""
        found = _checked(arrays)
        return cls(
            str(arrays["embedder"]),
            Scaling(found["words_mean"], found["words_scale"]),
            found["weights"],
            found["centre"],
            found["components"],
            Scaling(found["others_mean"], found["others_scale"]),
            CommonTokens(arrays["common_ids"], found["common_shares"]),
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """What fitting gives."""

    pipeline: Pipeline
    neighbours: Neighbours
    """All training answers."""
    matrix: Matrix
    """float32 [prompts, width] of the training prompts; each one's own family was left out of its
    neighbours, so that it looks as a new prompt would.
    """


def fit(
    questions: Sequence[Question],
    embeddings: Matrix,
    answers: Sequence[Sequence[Outcome]],
    families: NDArray[np.int64],
    *,
    embedder: str,
    common: CommonTokens | None = None,
) -> Fitted:
    """One question, embedding row, family and list of answers (1 or more) for each training
    prompt; `common`: what the embedder weighed tokens by, counted in these same prompts. Raises
    ValueError when there are none, or not as many of each.
    """
    counts = {len(questions), len(embeddings), len(answers), len(families)}
    if len(counts) != 1 or not questions:
        raise ValueError(f"prompts, embeddings, answers and families differ in number: {counts}")
    draft = _draft(questions, embeddings, answers, embedder, common or CommonTokens())
    near = _filled(draft, questions, embeddings, answers, families)
    triples = list(zip(questions, embeddings, families.tolist(), strict=True))
    others = np.array([draft._read(q, e, near, family)[2] for q, e, family in triples])
    pipeline = replace(draft, others=Scaling.of(others))
    rows = [pipeline.row(q, e, near, exclude=family).values for q, e, family in triples]
    return Fitted(pipeline, near, np.array(rows, dtype=np.float32))


def _draft(
    questions: Sequence[Question],
    embeddings: Matrix,
    answers: Sequence[Sequence[Outcome]],
    embedder: str,
    common: CommonTokens,
) -> Pipeline:
    """All but the scale of what neighbours say, which takes neighbours to fit."""
    words = np.array([lexical.lexical(question) for question in questions])
    scaling = Scaling.of(words)
    weights = relevance(scaling.scaled(words), np.array([_typical(said) for said in answers]))
    sound = np.isfinite(embeddings).all(axis=1, keepdims=True)
    centre, components = principal(np.where(sound, embeddings, np.float32(0)))
    width = min(SHOWN, len(components)) + len(neighbours.NAMES)
    blank = Scaling(np.zeros(width, np.float32), np.ones(width, np.float32))
    return Pipeline(embedder, scaling, weights, centre, components, blank, common)


def _filled(
    pipeline: Pipeline,
    questions: Sequence[Question],
    embeddings: Matrix,
    answers: Sequence[Sequence[Outcome]],
    families: NDArray[np.int64],
) -> Neighbours:
    near = pipeline.neighbourhood()
    for question, embedding, said, family in zip(
        questions, embeddings, answers, families, strict=True
    ):
        place = pipeline.place(question, embedding)
        for outcome in said:
            near.add(place, math.log(max(outcome.length, 1)), outcome.censored, int(family))
    return near


def _typical(said: Sequence[Outcome]) -> float:
    return float(np.mean([math.log(max(outcome.length, 1)) for outcome in said]))


_SHAPES = {
    "words_mean": 1,
    "words_scale": 1,
    "weights": 1,
    "centre": 1,
    "components": 2,
    "others_mean": 1,
    "others_scale": 1,
    "common_shares": 1,
}
"""Of the arrays: how many dimensions."""


def _checked(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    missing = [
        name for name in ("version", "embedder", "common_ids", *_SHAPES) if name not in arrays
    ]
    if missing:
        raise ValueError(f"the pipeline lacks {', '.join(missing)}")
    version = arrays["version"]
    if version.shape != () or version.dtype.kind not in "iu" or int(version) != VERSION:
        raise ValueError(f"the pipeline's features are of version {version}, not {VERSION}")
    for name, dimensions in _SHAPES.items():
        array = arrays[name]
        if array.dtype != np.float32 or array.ndim != dimensions or not np.isfinite(array).all():
            raise ValueError(f"the pipeline's {name} is damaged")
    if arrays["common_ids"].dtype != np.int32 or (np.diff(arrays["common_ids"]) <= 0).any():
        raise ValueError("the pipeline's common_ids is damaged")
    if arrays["common_ids"].shape != arrays["common_shares"].shape:
        raise ValueError("the pipeline's common tokens do not fit together")
    _check_widths({name: arrays[name].shape for name in _SHAPES})
    return {name: arrays[name] for name in _SHAPES}


def _check_widths(shapes: Mapping[str, tuple[int, ...]]) -> None:
    words = (len(lexical.NAMES),)
    count, embedding = shapes["components"]
    others = (min(SHOWN, count) + len(neighbours.NAMES),)
    fit_together = (
        shapes["words_mean"] == shapes["words_scale"] == shapes["weights"] == words
        and shapes["centre"] == (embedding,)
        and count <= COMPONENTS
        and shapes["others_mean"] == shapes["others_scale"] == others
    )
    if not fit_together:
        raise ValueError("the pipeline's arrays do not fit together")
