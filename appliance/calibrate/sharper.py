"""The second forecast of each request, made when the model has read the prompt: learned from the
first logits of those prompts that came with them, and kept only where it is clearly better."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.calibrate import extras
from appliance.calibrate.cases import Case
from appliance.calibrate.extras import Bound, Bounds
from appliance.calibrate.material import Material
from appliance.forecast import export, firstfit, scores
from appliance.forecast.conformal import Table
from appliance.forecast.families import PARTS, Part
from appliance.forecast.first import LOGITS, First, Reader
from appliance.forecast.network import Network
from appliance.forecast.rows import Rows
from appliance.forecast.train import train

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]

FEWEST = 200
"""Training prompts with logits: a ridge on 128 of them learns nothing from fewer."""
FEWEST_HELD = 20
"""Prompts of each other part."""
_NO_TABLE = Table()
GAIN = 0.95
"""CRPS over that of the first forecast, at most: less is not worth a second network."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Of one of the two forecasts, on the same test answers; tokens of min(L, cap)."""

    mae: float
    crps: float
    kendall: float


class SharperReport(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast of the request alone beside the one that knows the first logits."""

    answers: int
    parameters: int
    """Weights of reader and network."""
    before: Score
    after: Score
    levels: tuple[Bound, ...]
    """Of the second one's bounds."""

    @property
    def ratio(self) -> float:
        """Of the two CRPS."""
        return self.after.crps / self.before.crps if self.before.crps else 1.0

    @property
    def wins(self) -> bool:
        return self.ratio <= GAIN


@dataclass(frozen=True, slots=True, eq=False)
class Sharper:
    """What came of it. `first`: None where it is not worth it; `problem` says why."""

    first: First | None = None
    table: Table = _NO_TABLE
    report: SharperReport | None = None
    problem: str = ""
    priors: Mapping[str, Floats] = field(default_factory=dict)
    """Hazards of each held part's answers, of the first network where there are no logits. Empty
    where there is no second one."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The two parts, and the rows of the prompts that have logits, by part."""

    reader: Reader
    network: Network
    rows: dict[str, Rows]
    """As the second network reads them."""
    plain: dict[str, Rows]
    """The same answers as the first one reads them."""
    known: NDArray[np.bool_]
    """The cases that have logits."""

    def hazards(self, part: str) -> Floats:
        return extras.hazards(self.network, self.rows[part])


def logits_of(cases: tuple[Case, ...]) -> Matrix:
    """float32 [cases, LOGITS]; not a number where a case has none."""
    found = np.full((len(cases), LOGITS), np.nan, dtype=np.float32)
    for row, case in enumerate(cases):
        told = next((one.first for one in case.answers if len(one.first) == LOGITS), None)
        if told is not None:
            found[row] = told
    return found


def sharper(
    of: Material,
    network: Network,
    rows: Mapping[str, Rows],
    seed: int,
    progress: Callable[[float], None],
) -> Sharper:
    """`network`: the first one; `rows`: what it reads. Raises TooFewError."""
    logits = logits_of(of.cases)
    if problem := _too_few(of, logits):
        return Sharper(problem=problem)
    found = trained(of, rows, logits, seed, progress)
    limits, report = judged(of, network, found)
    if not report.wins:
        return Sharper(report=report, problem=f"CRPS is {report.ratio:.2f} of the first forecast's")
    first = First(found.reader, found.network, export.fp32(found.network))
    priors: dict[str, Floats] = {
        part: _mixed(of, part, network, rows[part], found) for part in PARTS[1:]
    }
    return Sharper(first, limits.table, report, priors=priors)


def _have(logits: Matrix) -> NDArray[np.bool_]:
    """The cases that have logits."""
    return np.asarray(np.isfinite(logits).all(axis=1), dtype=np.bool_)


def _too_few(of: Material, logits: Matrix) -> str:
    """Why it cannot be learned; empty where it can."""
    known = _have(logits)
    counts = {part: int(known[of.of(part)].sum()) for part in PARTS}
    if counts["train"] >= FEWEST and min(counts.values()) >= FEWEST_HELD:
        return ""
    return (
        f"{sum(counts.values())} prompts came with their first logits, {counts['train']} of them "
        f"to train on: at least {FEWEST} are needed. Answers that calibration generates have them"
    )


def trained(
    of: Material,
    rows: Mapping[str, Rows],
    logits: Matrix,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Trained:
    """Raises TooFewError."""
    known = _have(logits)
    chosen = of.of("train")[known[of.of("train")]]
    answers = [[(one.completion_tokens, one.censored) for one in of.cases[row].answers]
               for row in chosen]  # fmt: skip
    reader, read = firstfit.fit(logits[chosen], answers, of.families[chosen], of.cap)
    features = np.zeros((len(of.cases), reader.features), dtype=np.float32)
    features[known] = reader.features_of(logits[known])
    features[chosen] = read
    plain: dict[str, Rows] = {part: _known(of, part, rows[part], known) for part in PARTS}
    wide: dict[str, Rows] = {part: _wide(of, part, plain[part], features) for part in PARTS}
    learned = train(
        wide["train"].examples(),
        wide["validation"].examples(),
        seed=seed,
        cap=of.cap,
        progress=progress,
    )
    return Trained(reader, learned.network, wide, plain, known)


def _known(of: Material, part: Part, rows: Rows, known: NDArray[np.bool_]) -> Rows:
    return rows.at(known[of.of(part)[rows.prompts]])


def _mixed(of: Material, part: Part, network: Network, rows: Rows, found: Trained) -> Floats:
    hazards = extras.hazards(network, rows)
    hazards[found.known[of.of(part)[rows.prompts]]] = found.hazards(part)
    return hazards


def _wide(of: Material, part: Part, rows: Rows, features: Matrix) -> Rows:
    own = features[of.of(part)[rows.prompts]]
    names = tuple(f"first_{number}" for number in range(own.shape[1]))
    return replace(rows, x=np.concatenate((rows.x, own), axis=1), names=rows.names + names)


def judged(of: Material, network: Network, found: Trained) -> tuple[Bounds, SharperReport]:
    """On the test answers, with bounds calibrated on the calibration answers."""
    after = found.hazards("test")
    test = found.rows["test"]
    limits = extras.bounds(
        of,
        (found.rows["calibration"], found.hazards("calibration")),
        (test, after),
    )
    before = extras.hazards(network, found.plain["test"])
    return limits, SharperReport(
        answers=len(test),
        parameters=found.network.parameters + int(found.reader.weights.size),
        before=_score(before, test, of.cap),
        after=_score(after, test, of.cap),
        levels=limits.levels,
    )


def _score(hazards: Floats, test: Rows, cap: int) -> Score:
    truth = np.minimum(test.lengths, cap)
    return Score(
        mae=float(np.abs(scores.medians(hazards, cap) - truth).mean()),
        crps=float(scores.crps(hazards, test.lengths, cap).mean()),
        kendall=scores.kendall(truth, scores.means(hazards, cap)),
    )
