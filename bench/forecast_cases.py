"""What the forecast bench measures on: prompts as the engine gets them, with their answers."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from appliance.calibrate.cases import Case, of_prompts
from appliance.calibrate.job import template_of
from appliance.calibrate.prompts import read_prompts
from appliance.calibrate.questions import Reader
from appliance.config import Config
from appliance.forecast.dataset import BadDataset, Prompt
from appliance.models import ModelFile, check
from bench.forecast_answers import Released, load
from bench.forecast_first import Logits
from bench.forecast_prompts import assemble

Labels = list[list[float]]


def groups(
    prompts: Sequence[Prompt],
    known: Sequence[Released],
    model: ModelFile,
    first: Logits | None = None,
) -> Iterator[tuple[float, list[Case], Labels]]:
    """Cases of each temperature, the one with the most answers first, and whether each answer
    passed its check. `first`: the prompts' first logits."""
    logits = first or {}
    reader = Reader(model.path, template_of(model))
    try:
        questions, _ = reader.asked(prompts)
    finally:
        reader.close()
    marks = {(one.id, one.sample, one.temperature): one.passed for one in known}
    counts = Counter(one.temperature for one in known)
    for temperature, _ in counts.most_common():
        here = sorted(
            (
                structs.replace(one.answered(), first=logits.get(one.id, ()))
                for one in known
                if one.temperature == temperature
            ),
            key=lambda one: (one.id, one.sample),
        )
        cases = of_prompts(prompts, here, questions)
        yield temperature, cases, [_labels(case, marks) for case in cases]


def _labels(case: Case, marks: Mapping[tuple[str, int, float], bool | None]) -> list[float]:
    return [_mark(marks.get((one.id, one.sample, one.temperature))) for one in case.answers]


def served(model: Path | None) -> ModelFile:
    """The GGUF that answered; None: the packaged one. Raises BadModel."""
    config = Config()
    if model is not None:
        config = replace(config, model=replace(config.model, path=str(model)))
    return check(config)


def _mark(passed: bool | None) -> float:
    return float("nan") if passed is None else float(passed)


def prompts_of(path: Path | None) -> list[Prompt]:
    """Of a JSONL file, or assembled from $STEELYARD_DATA. Raises BadDataset."""
    if path is not None:
        return read_prompts(path)
    data = os.environ.get("STEELYARD_DATA")
    if not data:
        raise BadDataset(
            "there are no prompts: name the data folder in STEELYARD_DATA (bench/README.md), or "
            "give --prompts"
        )
    return assemble(Path(data))


def other_model(path: Path | None) -> Mapping[str, Sequence[tuple[int, bool]]]:
    """(length, cut) of the answers of a file, by prompt; none without one."""
    found: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for one in load(path) if path is not None else ():
        found[one.id].append((one.completion_tokens, one.finish_reason != "stop"))
    return found
