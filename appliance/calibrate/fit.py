"""The second half of a calibration: from cases to a forecaster that has been compared. Nothing of
it is installed here."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from appliance.calibrate import extras, material, quality
from appliance.calibrate.cases import Case
from appliance.calibrate.extras import INT8_LOSS, Bounds, Int8, Refining
from appliance.calibrate.findings import Answer, Findings
from appliance.calibrate.incumbent import Duel, InUse, duel, fingerprint
from appliance.calibrate.material import Material
from appliance.calibrate.report import page
from appliance.calibrate.sharper import Sharper, sharper
from appliance.calibrate.table import text
from appliance.calibrate.teller import Teller
from appliance.forecast import baselines, export, features
from appliance.forecast.archive import Arrays
from appliance.forecast.bundle import Bundle, Manifest
from appliance.forecast.conformal import guarantee
from appliance.forecast.evaluate import Bounds as Limits
from appliance.forecast.evaluate import Comparison, compare
from appliance.forecast.families import PARTS, Part
from appliance.forecast.features import Fitted
from appliance.forecast.rows import Rows
from appliance.forecast.sessions import Foreign
from appliance.forecast.train import Trained, train
from appliance.models import ModelFile

log = logging.getLogger(__name__)

EMBEDDER = "tokens-32-96"
"""Where nobody names one."""
NAME = "new"
"""Of a version that has no number yet."""
_PREPARED = 0.4
"""Share of the training phase that making vectors takes, about."""
_FIRST = 0.7
"""Share after which the first network is trained."""

_LEARNED_FROM: tuple[Part, ...] = ("train", "validation", "calibration")

Pieces = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Order:
    """How to learn."""

    embedder: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """A forecaster, and how it did."""

    bundle: Bundle
    findings: Findings
    table: str


@dataclass(frozen=True, slots=True)
class _Learned:
    """What came out of training."""

    of: Material
    fitted: Fitted
    trained: Trained
    sharper: Sharper
    rows: dict[str, Rows]
    """By part."""
    marks: list[list[float]]
    """Of each case's answers: right, wrong, or not checkable."""


def make(
    cases: Sequence[Case],
    model: ModelFile,
    in_use: InUse | None,
    pieces: Pieces | None,
    order: Order,
    teller: Teller,
) -> Made:
    """Raises EncoderError, TooFewError, Stopped."""
    teller.phase("train")
    learned = _learn(cases, model, order, teller)
    teller.phase("compare")
    return _compared(learned, model, in_use, pieces, order, teller)


def _learn(cases: Sequence[Case], model: ModelFile, order: Order, teller: Teller) -> _Learned:
    name = order.embedder or EMBEDDER
    of = material.material(
        cases,
        model.path,
        name,
        seed=order.seed,
        progress=lambda share: teller.share(_PREPARED * share),
    )
    fitted = material.fitted(of)
    marks = extras.labels(of.cases)
    rows = {"train": material.training_rows(of, fitted, marks)}
    for part in PARTS[1:]:
        rows[part] = material.held_rows(of, part, fitted.pipeline, fitted.neighbours, marks)
    trained = train(
        rows["train"].examples(),
        rows["validation"].examples(),
        seed=order.seed,
        cap=of.cap,
        progress=lambda share: teller.share(_PREPARED + (_FIRST - _PREPARED) * share),
    )
    second = sharper(
        of,
        trained.network,
        rows,
        order.seed,
        lambda share: teller.share(_FIRST + (1 - _FIRST) * share),
    )
    return _Learned(of, fitted, trained, second, rows, marks)


def _compared(
    learned: _Learned,
    model: ModelFile,
    in_use: InUse | None,
    pieces: Pieces | None,
    order: Order,
    teller: Teller,
) -> Made:
    of, network, rows = learned.of, learned.trained.network, learned.rows
    test, held = rows["test"], rows["calibration"]
    found = extras.hazards(network, test)
    limits = extras.bounds(of, (held, extras.hazards(network, held)), (test, found))
    teller.share(0.1)
    fought = duel(in_use, of, test, found, model.path)
    comparison = compare(
        rows["train"],
        test,
        found,
        cap=of.cap,
        bounds=Limits(limits.low_5, limits.high, limits.upper_95),
        seed=order.seed,
    )
    teller.share(0.4)
    priors = learned.sharper.priors or {p: extras.hazards(network, rows[p]) for p in PARTS[1:]}
    refined = extras.refining(of, priors, rows, pieces)
    teller.share(0.6)
    models = _models(learned)
    unseen = [rows[part] for part in PARTS[1:]]
    checked = quality.judged(
        of, network, unseen, learned.marks, model.path, lambda s: teller.share(0.6 + 0.3 * s)
    )
    judged = _Judged(comparison, fought, limits, refined, checked, models)
    findings = _findings(learned, model, order, judged)
    return Made(_bundle(learned, model, findings, judged), findings, text(findings))


@dataclass(frozen=True, slots=True)
class _Models:
    """The network as ONNX."""

    fp32: bytes
    int8: bytes | None
    cost: Int8 | None
    problem: str = ""

    @property
    def precision(self) -> str:
        return "int8" if self.cost is not None and self.cost.loss <= INT8_LOSS else "fp32"


@dataclass(frozen=True, slots=True)
class _Judged:
    """What comparing has found."""

    comparison: Comparison
    duel: Duel | None
    limits: Bounds
    refined: Refining
    checked: quality.Judged
    models: _Models


def _models(learned: _Learned) -> _Models:
    network, rows = learned.trained.network, learned.rows
    exact = export.fp32(network)
    try:
        found, cost = extras.int8(network, exact, rows["train"], rows["test"], learned.of.cap)
    except Foreign as error:
        return _Models(exact, None, None, str(error))
    return _Models(exact, found, cost)


def _findings(learned: _Learned, model: ModelFile, order: Order, judged: _Judged) -> Findings:
    of, trained, rows = learned.of, learned.trained, learned.rows
    every = [answer for case in of.cases for answer in case.answers]
    return Findings(
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        model=model.name,
        model_sha256=model.sha256,
        embedder=of.embedder,
        features=learned.fitted.pipeline.width,
        parameters=trained.network.parameters,
        seed=order.seed,
        prompts={part: int((of.parts == part).sum()) for part in rows},
        answers={part: len(found) for part, found in rows.items()},
        sources=_sources(of),
        cut=sum(answer.censored for answer in every) / len(every),
        train_seconds=round(trained.seconds, 1),
        curve=trained.curve,
        without=baselines.without(),
        comparison=judged.comparison,
        duel=judged.duel,
        levels=judged.limits.levels,
        test=_answers(rows["test"], judged.limits, of.cap),
        refinement=judged.refined.report,
        refinement_problem=judged.refined.problem,
        quality_before=judged.checked.before,
        quality_after=judged.checked.after,
        quality_problem=judged.checked.problem,
        int8=judged.models.cost,
        int8_problem=judged.models.problem,
        precision=judged.models.precision,
        sharper=learned.sharper.report,
        sharper_problem=learned.sharper.problem,
        guarantee=guarantee(judged.limits.table, "", 0.9),
    )


def _sources(of: Material) -> dict[str, int]:
    found: dict[str, int] = {}
    for case in of.cases:
        found[case.source] = found.get(case.source, 0) + len(case.answers)
    return dict(sorted(found.items()))


def _answers(test: Rows, limits: Bounds, cap: int) -> tuple[Answer, ...]:
    truth: NDArray[np.int64] = np.minimum(test.lengths, cap)
    columns = (limits.low, limits.median, limits.high, truth, test.censored)
    return tuple(
        Answer(round(float(low), 1), round(float(mid), 1), round(float(high), 1), int(n), bool(cut))
        for low, mid, high, n, cut in zip(*columns, strict=True)
    )


def _bundle(learned: _Learned, model: ModelFile, findings: Findings, judged: _Judged) -> Bundle:
    html, told = page(findings)
    return Bundle(
        manifest=Manifest(
            name=NAME,
            created=findings.created,
            model_sha256=model.sha256,
            model_name=model.name,
            features=features.VERSION,
            embedder=findings.embedder,
            inputs=findings.features,
            precision=findings.precision,
            quality=judged.checked.quality,
            conformal=judged.limits.table,
            first_conformal=learned.sharper.table,
            scores=_scores(findings),
            training=_training(findings, learned.of),
        ),
        pipeline=learned.fitted.pipeline,
        neighbours=learned.fitted.neighbours,
        network=learned.trained.network,
        fp32=judged.models.fp32,
        int8=judged.models.int8,
        refine=_in_flight(judged),
        report_html=html,
        report_json=told,
        first=learned.sharper.first,
    )


def _in_flight(judged: _Judged) -> Arrays | None:
    """The refiner's arrays and the quality head's; a head alone is of no use without signals."""
    refiner = judged.refined.arrays
    return None if refiner is None else {**refiner, **(judged.checked.head or {})}


def _scores(findings: Findings) -> dict[str, float | None]:
    ours = findings.comparison.ours
    ninety = next(one for one in findings.levels if one.level == 0.9)
    return {
        "skill": None if ours.skill is None else round(ours.skill, 4),
        "mae": round(ours.mae, 2),
        "crps": None if ours.crps is None else round(ours.crps, 2),
        "kendall": round(ours.kendall, 4),
        "coverage_pct": round(100 * ninety.corrected, 1),
    }


def _training(findings: Findings, of: Material) -> dict[str, object]:
    return {
        "prompts": sum(findings.prompts.values()),
        "answers": sum(findings.answers.values()),
        "seed": findings.seed,
        "sources": findings.sources,
        "cap": of.cap,
        "seen": sorted({fingerprint(of.cases[row]) for row in of.of(*_LEARNED_FROM)}),
    }
