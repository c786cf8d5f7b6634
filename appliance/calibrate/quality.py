"""What checked answers teach: how likely an answer is right, before it runs and after it ended."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from appliance.calibrate.material import Material, embedded
from appliance.forecast.archive import Arrays
from appliance.forecast.bundle import Quality
from appliance.forecast.dataset import Answered
from appliance.forecast.encoder import Encoder, EncoderError
from appliance.forecast.hazard import BINS, hazards_of
from appliance.forecast.network import Network
from appliance.forecast.qualityfit import (
    Before,
    Checked,
    QualityReport,
    TooFewChecked,
    before,
    features_of,
    fit,
    report,
)
from appliance.forecast.question import Question, Turn
from appliance.forecast.rows import Rows
from appliance.forecast.scores import medians

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
_UNKNOWN = Quality()
"""Nothing was learned, so nothing is told."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The quality logit's calibration, the head's arrays, and how both did."""

    quality: Quality = _UNKNOWN
    head: Arrays | None = None
    before: QualityReport | None = None
    after: QualityReport | None = None
    problem: str = ""


def judged(
    of: Material, network: Network, unseen: Sequence[Rows], marks: Sequence[Sequence[float]],
    model: Path, progress: Callable[[float], None],
) -> Judged:  # fmt: skip
    """`unseen`: rows that the network was not fitted to. `marks`: of each case's answers."""
    try:
        logit = _before(network, unseen, of.cap)
    except TooFewChecked as error:
        return Judged(problem=str(error))
    quality = Quality(logit.report.claim, logit.slope, logit.intercept, known=True)
    try:
        data = _checked(of, marks, model, progress)
        after = report(data)
        head = fit(data, after.claim).arrays()
    except (TooFewChecked, EncoderError) as error:
        return Judged(quality, None, logit.report, None, str(error))
    return Judged(quality, head, logit.report, after)


def _before(network: Network, unseen: Sequence[Rows], cap: int) -> Before:
    """Raises TooFewChecked."""
    known = [rows.at(np.isfinite(rows.quality)) for rows in unseen]
    told = np.concatenate([network.forward(rows.x) for rows in known]).astype(np.float64)
    lengths = medians(hazards_of(told[:, :BINS]), cap) if len(told) else np.zeros(0)
    return before(
        told[:, BINS],
        np.concatenate([rows.quality for rows in known]).astype(np.float64),
        np.log(lengths),
        np.concatenate([rows.families for rows in known]),
        _numbered(np.concatenate([rows.sources for rows in known])),
    )


def _numbered(names: NDArray[np.str_]) -> NDArray[np.int64]:
    return np.asarray(np.unique(names, return_inverse=True)[1], dtype=np.int64)


def _checked(
    of: Material,
    marks: Sequence[Sequence[float]],
    model: Path,
    progress: Callable[[float], None],
) -> Checked:
    """Every answer that could be checked, of whatever part: the head is told apart by families."""
    pairs = [
        (row, answer, mark)
        for row, case in enumerate(of.cases)
        for answer, mark in zip(case.answers, marks[row], strict=True)
        if np.isfinite(mark)
    ]
    rows = np.array([row for row, _, _ in pairs], dtype=np.int64)
    questions = [_as_question(answer) for _, answer, _ in pairs]
    vectors = embedded(questions, of.embedder, model, Encoder(), progress, of.common)
    return Checked(
        features=np.array([features_of(answer) for _, answer, _ in pairs]),
        prompts=of.embeddings[rows],
        answers=vectors,
        passed=np.array([mark for _, _, mark in pairs]),
        families=of.families[rows],
        sources=_numbered(np.array([of.cases[row].source for row in rows])),
    )


def _as_question(answer: Answered) -> Question:
    """An answer, as the embedder reads a prompt."""
    return Question((Turn("user", answer.text),), answer.token_ids)
