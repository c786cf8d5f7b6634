"""Cases made ready to learn from: vectors, families, and which part each belongs to."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from appliance.calibrate.cases import Case
from appliance.forecast import embedders
from appliance.forecast.commontokens import CommonTokens
from appliance.forecast.encoder import Encoder, EncoderError
from appliance.forecast.families import Part, families, split
from appliance.forecast.features import Fitted, Outcome, Pipeline, fit
from appliance.forecast.neighbours import Neighbours
from appliance.forecast.question import Question
from appliance.forecast.rows import Asked, Rows, rows_of

log = logging.getLogger(__name__)

Matrix = NDArray[np.float32]
KIN = "minilm-96-32"
"""What families are found with, whatever the forecaster itself reads: sentences that mean the same
are near in it, which means of token rows are not."""
_CHUNK = 16


@dataclass(frozen=True, slots=True)
class Material:
    """All cases, an array row each."""

    cases: tuple[Case, ...]
    embedder: str
    embeddings: Matrix
    families: NDArray[np.int64]
    parts: NDArray[np.str_]
    common: CommonTokens
    """How common tokens are in the training prompts."""
    cap: int
    """Tokens: the limit that most answers were under. Forecasts are compared as min(L, cap)."""

    def of(self, *parts: Part) -> NDArray[np.int64]:
        """The cases of these parts."""
        return np.flatnonzero(np.isin(self.parts, parts))


def material(
    cases: Sequence[Case],
    model: Path,
    embedder: str,
    *,
    seed: int,
    progress: Callable[[float], None],
) -> Material:
    """`progress` is told a share of 0 to 1. Raises EncoderError."""
    encoder = Encoder()
    questions = [case.question for case in cases]
    kin = _kin(questions, model, encoder, lambda share: progress(share / 2))
    templates = [_template(case) for case in cases]
    family = families(kin, templates)
    only_test = np.array([case.use == "evaluation" for case in cases])
    parts = split(family, only_test, seed=seed)
    learned = np.flatnonzero(parts == "train").tolist()
    common = CommonTokens.of(cases[row].question.prompt for row in learned)
    vectors = kin
    if embedder != KIN or not kin.any():
        vectors = embedded(
            questions, embedder, model, encoder, lambda share: progress(0.5 + share / 2), common
        )
    return Material(
        cases=tuple(cases),
        embedder=embedder,
        embeddings=vectors,
        families=family,
        parts=parts,
        common=common,
        cap=_cap(cases),
    )


def embedded(
    questions: Sequence[Question],
    name: str,
    model: Path,
    encoder: Encoder,
    progress: Callable[[float], None],
    common: CommonTokens,
) -> Matrix:
    """A row for each; `progress` is told a share of 0 to 1. Raises EncoderError."""
    source = embedders.weighing(embedders.embedder(name, model, encoder), common)
    try:
        found = []
        for start in range(0, len(questions), _CHUNK):
            found.append(embedders.embed_all(source, questions[start : start + _CHUNK]))
            progress(min(1.0, (start + _CHUNK) / len(questions)))
        return np.concatenate(found)
    finally:
        source.close()


def _kin(
    questions: Sequence[Question], model: Path, encoder: Encoder, progress: Callable[[float], None]
) -> Matrix:
    """Without the sentence encoder only equal prompts are of one family."""
    try:
        return embedded(questions, KIN, model, encoder, progress, CommonTokens())
    except EncoderError as error:
        log.warning("families of prompts are not told apart by meaning: %s", error)
        return np.zeros((len(questions), 1), dtype=np.float32)


def _template(case: Case) -> str:
    """What two cases of one prompt share."""
    return "\x1f".join(f"{turn.role}\x1e{turn.text}" for turn in case.question.turns)


def _cap(cases: Sequence[Case]) -> int:
    counts = Counter(answer.max_tokens for case in cases for answer in case.answers)
    return counts.most_common(1)[0][0]


# -- rows ----------------------------------------------------------------------------------------


def outcomes(case: Case) -> list[Outcome]:
    return [Outcome(answer.completion_tokens, answer.censored) for answer in case.answers]


def fitted(of: Material) -> Fitted:
    """The pipeline, fitted on the training cases alone."""
    rows = of.of("train")
    chosen = [of.cases[row] for row in rows]
    return fit(
        [case.question for case in chosen],
        of.embeddings[rows],
        [outcomes(case) for case in chosen],
        of.families[rows],
        embedder=of.embedder,
        common=of.common,
    )


def training_rows(of: Material, found: Fitted, quality: Sequence[Sequence[float]]) -> Rows:
    return _rows(of, of.of("train"), found.matrix, found.pipeline, quality)


def held_rows(
    of: Material,
    part: Part,
    pipeline: Pipeline,
    neighbours: Neighbours,
    quality: Sequence[Sequence[float]],
) -> Rows:
    """The rows of another part, seen as new prompts are."""
    chosen = of.of(part)
    questions = [of.cases[row].question for row in chosen]
    matrix = pipeline.matrix(questions, of.embeddings[chosen], neighbours)
    return _rows(of, chosen, matrix, pipeline, quality)


def _rows(
    of: Material,
    chosen: NDArray[np.int64],
    x: Matrix,
    pipeline: Pipeline,
    quality: Sequence[Sequence[float]],
) -> Rows:
    cases = [of.cases[row] for row in chosen]
    said = [outcomes(case) for case in cases]
    asked = Asked(
        x=x,
        names=pipeline.names,
        embedding=of.embeddings[chosen],
        prompt_tokens=np.array([len(case.question.prompt) for case in cases], dtype=np.int64),
        families=of.families[chosen],
        sources=tuple(case.source for case in cases),
        lengths=tuple(tuple(one.length for one in case) for case in said),
        censored=tuple(tuple(one.censored for one in case) for case in said),
        quality=tuple(tuple(quality[row]) for row in chosen),
    )
    return rows_of(asked)
