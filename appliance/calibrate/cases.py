"""What is learned from: prompts, each with the answers to it under one sampling."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.calibrate.answers import Sampling, Wanted
from appliance.calibrate.history import Past
from appliance.forecast.dataset import Answered, Prompt
from appliance.forecast.question import Question

LEAST_PROMPTS = 30
"""Parted into training, validation, calibration and test, fewer say nothing."""

LEAST_ANSWERS = 58
"""Of which a network can be made: it is fitted on seven tenths of them and wants forty."""


class TooFew(Exception):
    """There is not enough to learn from. Says how much there is, and what to do."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt and its answers."""

    name: str
    question: Question
    answers: tuple[Answered, ...]
    source: str = ""
    use: Literal["train", "evaluation"] = "train"
    check: Mapping[str, Any] | None = None


def of_prompts(
    prompts: Sequence[Prompt], answers: Iterable[Answered], questions: Mapping[str, Question]
) -> list[Case]:
    """Cases of the prompts that have answers, in the prompts' order."""
    grouped: dict[tuple[str, float, float, int], list[Answered]] = defaultdict(list)
    for one in answers:
        grouped[one.id, one.temperature, one.top_p, one.max_tokens].append(one)
    by_name = {prompt.id: prompt for prompt in prompts}
    place = {prompt.id: at for at, prompt in enumerate(prompts)}
    known = [key for key in grouped if key[0] in questions]
    return [
        _case(by_name[key[0]], questions[key[0]], tuple(grouped[key]))
        for key in sorted(known, key=lambda key: (place[key[0]], key))
    ]


def _case(prompt: Prompt, question: Question, answers: tuple[Answered, ...]) -> Case:
    drawn = answers[0]
    asked = replace(
        question,
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        max_tokens=drawn.max_tokens,
    )
    source = prompt.source or "prompts"
    return Case(prompt.id, asked, answers, source, prompt.use, prompt.check)


def of_past(past: Iterable[Past]) -> list[Case]:
    """Cases of the ledger; the same prompt asked again is the same case."""
    grouped: dict[tuple[object, ...], list[Past]] = defaultdict(list)
    for one in past:
        asked = one.question
        key = (asked.prompt, asked.temperature, asked.top_p, asked.max_tokens, asked.route)
        grouped[key].append(one)
    return [
        Case(
            name=f"ledger-{_hash(found[0].question)}",
            question=found[0].question,
            answers=tuple(answer for one in found for answer in one.answers),
            source=f"ledger:{found[0].question.route}",
        )
        for found in grouped.values()
    ]


def _hash(question: Question) -> str:
    text = f"{question.prompt} {question.temperature} {question.top_p} {question.max_tokens}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def worth_generating(
    prompts: Iterable[Prompt], known: Iterable[Answered], wanted: Iterable[Wanted], drawn: Sampling
) -> None:
    """Raises TooFew where it is sure, before an hour of generating, that all of it would be too
    little to learn from."""
    learnt = {prompt.id for prompt in prompts if prompt.use == "train"}
    to_come = [one.prompt.id for one in wanted if one.prompt.id in learnt]
    alike = (drawn.temperature, drawn.top_p, drawn.max_tokens)
    there = [(one.id, one.temperature, one.top_p, one.max_tokens) for one in known]
    there = [key for key in there if key[0] in learnt]
    cases = {*there, *((id, *alike) for id in to_come)}
    answers = len(there) + len(to_come)
    if len(cases) >= LEAST_PROMPTS and answers >= LEAST_ANSWERS:
        return
    raise TooFew(
        f"with all that is to be generated there were {answers} answers to {len(cases)} prompts, "
        f"too few to learn from: at least {LEAST_ANSWERS} answers to {LEAST_PROMPTS} prompts are "
        "needed, and a thousand prompts are where it gets good. Nothing was generated. Give more "
        "prompts with --prompts, or more --samples to each"
    )


def enough(cases: Sequence[Case], remedy: str) -> None:
    """Raises TooFew, with the remedy."""
    usable = [case for case in cases if case.use == "train"]
    if len(usable) >= LEAST_PROMPTS:
        return
    answers = sum(len(case.answers) for case in usable)
    raise TooFew(
        f"{answers} answers to {len(usable)} prompts are too few: at least {LEAST_PROMPTS} "
        f"prompts are needed, and a thousand is where it gets good. {remedy}"
    )
