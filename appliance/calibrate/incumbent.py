"""The version in use, asked about the same test prompts: a new one must beat it."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.calibrate.cases import Case
from appliance.calibrate.material import Material
from appliance.forecast import embedders, scores
from appliance.forecast.bundle import BadForecaster, Bundle
from appliance.forecast.encoder import Encoder, EncoderError
from appliance.forecast.hazard import BINS, hazards_of
from appliance.forecast.rows import Rows
from appliance.forecast.versions import Versions

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
FEW = 30
"""Test prompts that the version in use has not seen; on fewer, nothing is to be concluded."""
MARGIN = 0.005
"""Share of CRPS by which a new version must be better: less is rounding."""


@dataclass(frozen=True, slots=True)
class InUse:
    """A version and what it consists of."""

    name: str
    bundle: Bundle

    @property
    def seen(self) -> frozenset[str]:
        """Fingerprints of the prompts that it was made from."""
        found = self.bundle.manifest.training.get("seen", ())
        return frozenset(map(str, found)) if isinstance(found, list | tuple) else frozenset()


def in_use(versions: Versions) -> InUse | None:
    """The version in use; one that cannot be read is as good as none."""
    try:
        found = versions.load()
    except BadForecaster as error:
        log.warning("the version in use is not compared with: %s", error)
        return None
    return InUse(found[0].name, found[1]) if found is not None else None


def fingerprint(case: Case) -> str:
    """By which a later version tells whether an earlier one has seen a prompt."""
    turns = "\x1f".join(f"{turn.role}\x1e{turn.text}" for turn in case.question.turns)
    return hashlib.sha256(turns.encode("utf-8", "replace")).hexdigest()[:10]


class Duel(msgspec.Struct, frozen=True, kw_only=True):
    """The version in use and the new one on the same answers. Tokens."""

    version: str
    prompts: int
    seen: bool
    """The version in use had learned from some of these prompts, which favours it: too few are
    left that it has not seen."""
    crps: float
    new_crps: float
    mae: float
    new_mae: float

    @property
    def won(self) -> bool:
        """By the new one."""
        return self.new_crps < (1 - MARGIN) * self.crps


def duel(
    found: InUse | None, of: Material, test: Rows, hazards: Floats, model: Path
) -> Duel | None:
    """`hazards`: of the new one, for each test row. None: there is no version in use, or it cannot
    work here, which the log says."""
    if found is None:
        return None
    try:
        old = _hazards(found, [of.cases[row] for row in of.of("test")], model)[test.prompts]
    except EncoderError as error:
        log.warning("the version in use is not compared with: %s", error)
        return None
    fresh = np.array([fingerprint(of.cases[row]) not in found.seen for row in of.of("test")])
    seen = int(fresh.sum()) < FEW
    rows = np.ones(len(test), dtype=bool) if seen else fresh[test.prompts]
    truth = np.minimum(test.lengths, of.cap)[rows]
    before, after = (
        _scored(one[rows], test.lengths[rows], truth, of.cap) for one in (old, hazards)
    )
    return Duel(
        version=found.name,
        prompts=len(np.unique(test.prompts[rows])),
        seen=seen and not bool(fresh.all()),
        crps=before[0],
        new_crps=after[0],
        mae=before[1],
        new_mae=after[1],
    )


def _scored(
    hazards: Floats, lengths: NDArray[np.int64], truth: NDArray[np.int64], cap: int
) -> tuple[float, float]:
    """CRPS and MAE."""
    error = np.abs(scores.medians(hazards, cap) - truth).mean()
    return float(scores.crps(hazards, lengths, cap).mean()), float(error)


def _hazards(found: InUse, cases: Sequence[Case], model: Path) -> Floats:
    """[cases, 24], by its own features. Raises EncoderError."""
    bundle = found.bundle
    source = embedders.embedder(bundle.manifest.embedder, model, Encoder())
    source = bundle.pipeline.attached(source)
    try:
        questions = [case.question for case in cases]
        vectors = embedders.embed_all(source, questions)
    finally:
        source.close()
    x = bundle.pipeline.matrix(questions, vectors, bundle.neighbours)
    return hazards_of(bundle.network.forward(x)[:, :BINS])
