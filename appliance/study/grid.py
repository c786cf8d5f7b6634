"""`study grid`: how temperature and top_p change the length of answers.

Every cell of the grid asks the same prompts with the same seeds, so that cells differ by their
settings alone. At temperature 0 the likeliest token is taken whatever top_p is, and every sample
would be the same: there one answer per prompt stands for the whole row.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from appliance.forecast.dataset import Message, Prompt
from appliance.study.errors import StudyError
from appliance.study.running import Job
from appliance.study.store import Answer
from appliance.study.survival import Figures, figures, mean_interval, within_deviation


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of each prompt."""

    temperatures: tuple[float, ...] = (0.0, 0.4, 0.7, 1.0, 1.3)
    top_ps: tuple[float, ...] = (0.5, 0.8, 0.95, 1.0)
    samples: int = 4
    max_tokens: int = 512


QUICK = Settings((0.0, 0.7, 1.2), (0.8, 1.0), samples=2, max_tokens=256)
QUICK_PROMPTS = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """Lengths at one setting."""

    temperature: float
    top_p: float | None
    """None: any, at temperature 0."""
    lengths: Figures
    mean_low: float
    mean_high: float
    """95 % interval of the naive mean, prompts resampled."""
    within: float | None
    """Standard deviation between answers to one prompt; None with one sample each."""


@dataclass(frozen=True, slots=True)
class Report:
    model: str
    sha256: str
    prompts: int
    left_out: tuple[str, ...]
    """Prompts that the box refused at some setting: in none they count."""
    settings: Settings
    cells: tuple[Cell, ...]

    def at(self, temperature: float, top_p: float) -> Cell:
        """The cell that tells of this setting."""
        found = (c for c in self.cells if c.temperature == temperature)
        return next(c for c in found if c.top_p in (None, top_p))


def seed_of(prompt: str, sample: int) -> int:
    """The same in every cell, run and experiment."""
    digest = hashlib.sha256(f"{prompt}/{sample}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % 2**31


def encoded(messages: Sequence[Message]) -> list[dict[str, str]]:
    """As the box takes them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def jobs(prompts: Sequence[Prompt], settings: Settings) -> Iterator[Job]:
    """All requests, cell by cell inside each prompt: the box keeps its prompt cached."""
    for prompt in prompts:
        for temperature, top_p in _cells(settings):
            for sample in range(_samples(temperature, settings)):
                yield Job(
                    _key(prompt.id, temperature, top_p, sample),
                    {
                        "messages": encoded(prompt.messages),
                        "temperature": temperature,
                        "top_p": 1.0 if top_p is None else top_p,
                        "max_tokens": settings.max_tokens,
                        "seed": seed_of(prompt.id, sample),
                    },
                )


def report(
    model: str,
    sha256: str,
    prompts: Sequence[Prompt],
    settings: Settings,
    answers: Mapping[str, Answer],
) -> Report:
    """What the answers tell. Raises StudyError where no prompt was answered at every setting."""
    whole = [prompt for prompt in prompts if _whole(prompt.id, settings, answers)]
    if not whole:
        raise StudyError(f"no prompt was answered at every setting: {first_problem(answers)}")
    left_out = tuple(prompt.id for prompt in prompts if prompt not in whole)
    cells = tuple(
        _cell(temperature, top_p, [prompt.id for prompt in whole], settings, answers)
        for temperature, top_p in _cells(settings)
    )
    return Report(model, sha256, len(whole), left_out, settings, cells)


def first_problem(answers: Mapping[str, Answer]) -> str:
    """Why the box refused the first one that it did."""
    told = (answer.problem for answer in answers.values() if answer.problem)
    return next(told, "the box gave no answer")


def _cells(settings: Settings) -> Iterator[tuple[float, float | None]]:
    for temperature in settings.temperatures:
        if temperature == 0.0:
            yield temperature, None
        else:
            yield from ((temperature, top_p) for top_p in settings.top_ps)


def _samples(temperature: float, settings: Settings) -> int:
    return 1 if temperature == 0.0 else settings.samples


def _key(prompt: str, temperature: float, top_p: float | None, sample: int) -> str:
    return f"{prompt} T{temperature:g} P{'any' if top_p is None else f'{top_p:g}'} {sample}"


def _of(
    prompt: str,
    temperature: float,
    top_p: float | None,
    settings: Settings,
    answers: Mapping[str, Answer],
) -> list[Answer]:
    keys = (_key(prompt, temperature, top_p, i) for i in range(_samples(temperature, settings)))
    return [answers[key] for key in keys if key in answers and not answers[key].problem]


def _whole(prompt: str, settings: Settings, answers: Mapping[str, Answer]) -> bool:
    return all(
        len(_of(prompt, temperature, top_p, settings, answers)) == _samples(temperature, settings)
        for temperature, top_p in _cells(settings)
    )


def _cell(
    temperature: float,
    top_p: float | None,
    prompts: Sequence[str],
    settings: Settings,
    answers: Mapping[str, Answer],
) -> Cell:
    groups = [_of(prompt, temperature, top_p, settings, answers) for prompt in prompts]
    found = [answer for group in groups for answer in group]
    lengths = [[answer.tokens for answer in group] for group in groups]
    low, high = mean_interval(lengths)
    return Cell(
        temperature,
        top_p,
        figures([answer.tokens for answer in found], [answer.censored for answer in found]),
        low,
        high,
        within_deviation(lengths),
    )
