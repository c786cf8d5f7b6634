"""Gives a forecaster its second network, as `steelyard calibrate` does, from the released answers.

usage: python -m bench.forecast_sharpen IN.forecaster OUT.forecaster

For one that was made of these very answers before their prompts' first logits were known: the
parts that it was trained, calibrated and tested on stay what they were, which is checked.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from appliance.calibrate import material
from appliance.calibrate.cases import Case, of_prompts
from appliance.calibrate.findings import Findings
from appliance.calibrate.incumbent import fingerprint
from appliance.calibrate.job import template_of
from appliance.calibrate.material import Material
from appliance.calibrate.questions import Reader
from appliance.calibrate.report import page
from appliance.calibrate.sharper import Sharper, sharper
from appliance.forecast.bundle import BadForecaster, Bundle
from appliance.forecast.dataset import BadDataset
from appliance.forecast.families import PARTS
from appliance.forecast.features import Fitted
from appliance.forecast.rows import Rows
from appliance.models import ModelFile
from bench.forecast import RELEASED
from bench.forecast_answers import load
from bench.forecast_cases import prompts_of, served
from bench.forecast_first import load as load_first


class OtherAnswers(Exception):
    """It was not made of these answers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    try:
        bundle = Bundle.read(options.source)
        model = served(None)
        bundle.require_model(model.sha256)
        found = second(bundle, model)
    except (BadDataset, BadForecaster, OtherAnswers) as error:
        print(error, file=sys.stderr)
        return 2
    if found.first is None:
        print(found.problem, file=sys.stderr)
        return 1
    options.out.write_bytes(sharpened(bundle, found).pack())
    print(msgspec.json.format(msgspec.json.encode(found.report, enc_hook=float)).decode())
    return 0


def second(bundle: Bundle, model: ModelFile) -> Sharper:
    """Raises OtherAnswers, BadDataset."""
    training = bundle.manifest.training
    of = material.material(
        cases_of(model),
        model.path,
        bundle.manifest.embedder,
        seed=training["seed"],
        progress=lambda share: None,
    )
    learned_from = of.of("train", "validation", "calibration")
    if {fingerprint(of.cases[row]) for row in learned_from} != set(training["seen"]):
        raise OtherAnswers(f"{bundle.manifest.name} was not made of the released answers")
    return sharper(of, bundle.network, rows_of(bundle, of), training["seed"], lambda share: None)


def cases_of(model: ModelFile) -> list[Case]:
    """At all temperatures, in the order in which a calibration has them."""
    prompts, first = prompts_of(None), load_first()
    reader = Reader(model.path, template_of(model))
    try:
        questions, _ = reader.asked(prompts)
    finally:
        reader.close()
    answers = [
        msgspec.structs.replace(one.answered(), first=first.get(one.id, ()))
        for one in load(RELEASED)
    ]
    return of_prompts(prompts, answers, questions)


def rows_of(bundle: Bundle, of: Material) -> dict[str, Rows]:
    """What the first network reads, by part; a training prompt without its family's neighbours."""
    pipeline, near = bundle.pipeline, bundle.neighbours
    marks = [[float("nan")] * len(case.answers) for case in of.cases]
    matrix = [
        pipeline.row(
            of.cases[row].question, of.embeddings[row], near, exclude=int(of.families[row])
        ).values
        for row in of.of("train")
    ]
    known = Fitted(pipeline, near, np.array(matrix))
    found = {"train": material.training_rows(of, known, marks)}
    for part in PARTS[1:]:
        found[part] = material.held_rows(of, part, pipeline, near, marks)
    return found


def sharpened(bundle: Bundle, found: Sharper) -> Bundle:
    """The same forecaster with the second network, and its report with the figures."""
    told = msgspec.structs.replace(
        msgspec.json.decode(bundle.report_json, type=Findings), sharper=found.report
    )
    html, figures = page(told)
    manifest = msgspec.structs.replace(bundle.manifest, first_conformal=found.table)
    return replace(
        bundle, manifest=manifest, first=found.first, report_html=html, report_json=figures
    )


if __name__ == "__main__":
    sys.exit(main())
