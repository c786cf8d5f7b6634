"""`study prompts`: how the wording around a question changes the length of its answer.

Each prompt is asked in every way of `perturbations`, several times; the spread of log length is
then parted into prompts, perturbations, their interaction, and chance.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from appliance.forecast.dataset import Prompt
from appliance.study.errors import StudyError
from appliance.study.grid import encoded, first_problem, seed_of
from appliance.study.perturbations import ALL, QUICK, REFERENCE, Perturbation
from appliance.study.running import Job
from appliance.study.store import Answer
from appliance.study.survival import Figures, figures
from appliance.study.variance import Components, Effect, components, effects

LEAST_PROMPTS = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of each prompt."""

    perturbations: tuple[str, ...] = tuple(p.name for p in ALL)
    temperature: float = 0.7
    top_p: float = 0.95
    samples: int = 3
    max_tokens: int = 512


QUICK_SETTINGS = Settings(tuple(p.name for p in QUICK), samples=2, max_tokens=256)
QUICK_PROMPTS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One perturbation, over all prompts."""

    name: str
    about: str
    lengths: Figures
    effect: Effect
    """Against the plain question."""


@dataclass(frozen=True, slots=True)
class Report:
    model: str
    sha256: str
    prompts: int
    left_out: tuple[str, ...]
    settings: Settings
    rows: tuple[Row, ...]
    components: Components
    cut: float
    """Share of answers that ran into the limit and count as that long: with many, every component
    is too small."""


def jobs(prompts: Sequence[Prompt], settings: Settings) -> Iterator[Job]:
    """All requests."""
    for prompt in prompts:
        for way in _ways(settings):
            for sample in range(settings.samples):
                yield Job(
                    _key(prompt.id, way, sample),
                    {
                        "messages": encoded(way.apply(prompt.messages)),
                        "temperature": settings.temperature,
                        "top_p": settings.top_p,
                        "max_tokens": settings.max_tokens,
                        "seed": seed_of(f"{prompt.id}/{way.name}", sample),
                    },
                )


def report(
    model: str,
    sha256: str,
    prompts: Sequence[Prompt],
    settings: Settings,
    answers: Mapping[str, Answer],
) -> Report:
    """What the answers tell. Raises StudyError where too few prompts were answered in every way."""
    ways = _ways(settings)
    found = {prompt.id: _of(prompt.id, ways, settings.samples, answers) for prompt in prompts}
    whole = [table for table in found.values() if table is not None]
    if len(whole) < LEAST_PROMPTS:
        raise StudyError(
            f"fewer than {LEAST_PROMPTS} prompts were answered in every way: "
            f"{first_problem(answers)}"
        )
    logs = np.log(np.array([[[a.tokens for a in cell] for cell in table] for table in whole]))
    changed = effects(logs, REFERENCE)
    return Report(
        model,
        sha256,
        len(whole),
        tuple(name for name, table in found.items() if table is None),
        settings,
        tuple(
            Row(way.name, way.about, _figures([table[i] for table in whole]), changed[i])
            for i, way in enumerate(ways)
        ),
        components(logs),
        float(np.mean([answer.censored for table in whole for cell in table for answer in cell])),
    )


def _ways(settings: Settings) -> list[Perturbation]:
    return [way for way in ALL if way.name in settings.perturbations]


def _key(prompt: str, way: Perturbation, sample: int) -> str:
    return f"{prompt} {way.name} {sample}"


def _of(
    prompt: str, ways: Sequence[Perturbation], samples: int, answers: Mapping[str, Answer]
) -> list[list[Answer]] | None:
    """Its answers by perturbation; None where one is missing, or has no token to take the log
    of."""
    table = []
    for way in ways:
        cell = [answers.get(_key(prompt, way, sample)) for sample in range(samples)]
        kept = [answer for answer in cell if answer is not None and answer.tokens > 0]
        if len(kept) < samples:
            return None
        table.append(kept)
    return table


def _figures(cells: Sequence[Sequence[Answer]]) -> Figures:
    found = [answer for cell in cells for answer in cell]
    return figures([answer.tokens for answer in found], [answer.censored for answer in found])
