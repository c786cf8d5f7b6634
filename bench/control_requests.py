"""What is asked in the simulation: real answers' lengths, and what the packaged forecaster says of
them before they run.

Only prompts that the forecaster has not learned from are used. Without the prompts themselves
(STEELYARD_DATA) every answer of the released file is used, and of each only what is known of all.
"""

import math
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from appliance.calibrate.cases import Case
from appliance.calibrate.incumbent import fingerprint
from appliance.forecast.forecaster import Forecaster, Served
from appliance.forecast.hazard import EDGES, Lengths, fitted
from bench.forecast_answers import Released, load
from bench.forecast_cases import groups, prompts_of, served

ANSWERS = Path(__file__).with_name("data") / "forecast_answers.jsonl.gz"
TEMPERATURE = 0.7
"""Of the answers: two for most prompts."""
CAP = 512
"""Tokens: the limit that the answers were drawn under, and so every request's `max_tokens`."""
EQUAL = 256
"""Tokens of every answer, in the mix that is called so."""
MOST_BIAS = 0.7
"""Of the logarithm of a length: the box corrects no more."""
GRID = tuple(int(edge) for edge in EDGES[1:])


@dataclass(frozen=True, slots=True)
class Table:
    """P(an answer becomes longer than tokens[i]), as `messages.Expect` takes it."""

    tokens: tuple[int, ...]
    survival: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request without its time."""

    prompt_tokens: int
    length: int
    """Tokens that its answer has, under `max_tokens`."""
    table: Table | None
    """What was forecast; None: only what is known of all."""
    max_tokens: int = CAP

    def foreseen(self) -> "Asked":
        """By one who knows."""
        return replace(self, table=Table((self.length - 1, self.length), (1.0, 0.0)))


@dataclass(frozen=True, slots=True)
class Stock:
    """Requests to draw from."""

    asked: tuple[Asked, ...]
    everywhere: Table
    """Of all answers: what a box knows without a forecaster."""
    about: str

    def mix(self, name: str) -> "Stock":
        """all; ended: answers that ended by themselves; long: those that ran to the limit; equal:
        all of one length. What a box knows of all is of the same mix, as it would be in time, and
        the bias of the forecasts is corrected as far as the box does it."""
        if name == "all":
            return self
        if name == "equal":
            asked = tuple(replace(one, length=EQUAL) for one in self.asked)
        else:
            asked = tuple(one for one in self.asked if (one.length < CAP) == (name == "ended"))
        return replace(self, asked=_unbiased(asked), everywhere=_of(asked))

    def within(self, cells: int) -> "Stock":
        """Those that a box of so many cells would take: prompt and limit fit."""
        fit = tuple(one for one in self.asked if one.prompt_tokens + one.max_tokens <= cells)
        return replace(self, asked=fit)

    def draw(self, count: int, seed: int) -> list[Asked]:
        pick = random.Random(f"requests {seed}")
        return [pick.choice(self.asked) for _ in range(count)]


def table_of(lengths: Lengths) -> Table:
    return Table(GRID, tuple(float(one) for one in lengths.survival(GRID)))


def shuffled(asked: Sequence[Asked], seed: int) -> list[Asked]:
    """The same requests, each with another's forecast."""
    tables = [one.table for one in asked]
    random.Random(f"placebo {seed}").shuffle(tables)
    return [replace(one, table=table) for one, table in zip(asked, tables, strict=True)]


def released() -> list[Released]:
    return [one for one in load(ANSWERS) if one.temperature == TEMPERATURE]


def stock() -> Stock:
    """Raises BadDataset, BadModel."""
    answers = released()
    everywhere = _everywhere(answers)
    if not os.environ.get("STEELYARD_DATA"):
        about = (
            f"{len(answers)} answers without their prompts, since STEELYARD_DATA does not name the "
            "data folder: nothing is forecast but what is known of all"
        )
        return Stock(tuple(_asked(one, None) for one in answers), everywhere, about)
    found = tuple(_forecast(answers))
    about = f"{len(found)} answers to prompts that the packaged forecaster has not seen"
    return Stock(found, everywhere, about)


def _of(asked: Sequence[Asked]) -> Table:
    lengths = np.array([one.length for one in asked])
    return table_of(fitted(lengths, lengths >= CAP))


def _unbiased(asked: Sequence[Asked]) -> tuple[Asked, ...]:
    told = [one for one in asked if one.table is not None]
    if not told:
        return tuple(asked)
    off = median([math.log(one.length / min(_median(one.table), CAP)) for one in told])
    factor = math.exp(min(MOST_BIAS, max(-MOST_BIAS, off)))
    return tuple(replace(one, table=_stretched(one.table, factor)) for one in asked)


def _median(table: Table | None) -> float:
    assert table is not None
    falling = [-one for one in table.survival]
    return float(np.interp(-0.5, [-1.0, *falling], [0, *table.tokens]))


def _stretched(table: Table | None, factor: float) -> Table | None:
    """Every length multiplied, and still one after the other."""
    if table is None:
        return None
    found: list[int] = []
    for tokens in table.tokens:
        found.append(max(round(tokens * factor), found[-1] + 1 if found else 1))
    return Table(tuple(found), table.survival)


def _asked(answer: Released, table: Table | None) -> Asked:
    return Asked(answer.prompt_tokens, answer.completion_tokens, table)


def _everywhere(answers: Sequence[Released]) -> Table:
    lengths = np.array([one.completion_tokens for one in answers])
    return table_of(fitted(lengths, np.array([one.finish_reason != "stop" for one in answers])))


def _forecast(answers: Sequence[Released]) -> Iterator[Asked]:
    """The answers to unseen prompts. Nothing is learned from one to the next."""
    told = forecaster()
    for case in unseen(answers):
        table = table_of(told.answer(case.question).lengths)
        for one in case.answers:
            yield Asked(one.prompt_tokens, one.completion_tokens, table)


def unseen(answers: Sequence[Released]) -> Iterator[Case]:
    """Prompts that the packaged forecaster has not learned from, with their answers. Raises
    BadDataset without STEELYARD_DATA."""
    manifest = forecaster().manifest
    seen = frozenset(manifest.training.get("seen", ()) if manifest is not None else ())
    for _, cases, _ in groups(prompts_of(None), answers, served(None)):
        yield from (case for case in cases if fingerprint(case) not in seen)


def forecaster() -> Forecaster:
    """The packaged one: a state folder that is not there holds no other."""
    model = served(None)
    return Forecaster.open(Served(model.name, model.sha256, model.path, Path("/nonexistent")))
