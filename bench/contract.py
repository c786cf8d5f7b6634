"""Does an answer end where it was agreed to? Budgets on the default model, soft and strict.

usage: python -m bench.contract [--prompts 306] [--compared 102] [--chinese] [--json out.json]

Every prompt is answered with a strict budget, and with a soft one where the strict answer was cut:
else the two are the same answer (tests/unit/test_landing_answer.py). The budgets go from 32 to 400
tokens. Some are answered freely too, with the same seed, and where an answer can be checked, cut
off by `max_tokens` where its budget is. Prompts come from the folder that STEELYARD_DATA names
(prompts_general.jsonl; with --chinese prompts_zh.jsonl), else from a short list of its own.
"""

import argparse
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from appliance import models
from appliance.config import ModelConfig
from appliance.engine.commands import Budget, Sampling, Submit
from appliance.engine.landing import LEAD, SLACK
from appliance.engine.landing_text import Prose
from appliance.forecast.checks import passed
from appliance.prepare.messages import ChatJob
from appliance.prepare.prompt import Prompter
from bench.contract_runs import Host, Ran
from bench.forecast_checks import check_of

BUDGETS = (32, 36, 40, 48, 56, 64, 80, 96, 112, 128, 160, 200, 256, 320, 400)
LONGEST_PROMPT = 400
FREE_TOKENS = 512
"""What a free answer may have at most."""
AT_ONCE = 16
PART = 34
"""Prompts after which there is a report, so that a run that is broken off was not in vain."""
CONTEXT = 16384
OWN = (
    "Explain how a steelyard weighs things.", "Write a short story about a lighthouse.",
    "List ten uses of vinegar.", "How do I boil an egg?", "Why is the sky blue?",
    "Write a Python function that reverses a string.", "What makes bread rise?",
    "Describe a sunset.", "Give me a plan for learning chess.", "Compare cats and dogs.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    prompt: tuple[int, ...]
    tokens: int
    """Of its budget."""
    seed: int
    check: dict[str, Any] | None = None


def tasks(host: Host, count: int, prompts: Path | None) -> list[Task]:
    """Prompts in a fixed random order, each with the next budget."""
    prompter, found = Prompter(host.vocab), list[Task]()
    for record in records(prompts):
        chat = ChatJob(messages=[{"role": "user", "content": record["prompt"]}])
        ids = tuple(prompter.tokenize(prompter.render(chat, ())))
        if len(ids) <= LONGEST_PROMPT:
            budget = BUDGETS[len(found) % len(BUDGETS)]
            found.append(Task(ids, budget, len(found), check_of(record)))
        if len(found) == count:
            break
    return found


def records(prompts: Path | None) -> list[dict[str, Any]]:
    """Of a file, in that order; without one our own. Raises OSError."""
    if prompts is None:
        return [{"prompt": text} for text in OWN]
    with prompts.open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    random.Random(20).shuffle(found)
    return found


def requests(tasks: Sequence[Task], kind: str) -> list[Submit]:
    """`kind`: free, soft, strict, or cut (by max_tokens)."""
    return [
        Submit(
            id=f"{kind}-{task.seed}",
            prompt=task.prompt,
            max_tokens=_most(kind, task),
            sampling=Sampling(seed=task.seed, logprobs=-1 if kind == "cut" else 0),
            budget=_budget(kind, task.tokens),
            cache_prompt=False,
        )
        for task in tasks
    ]


def answers(host: Host, part: Sequence[Task], kind: str, strict: Sequence[Ran]) -> list[Ran]:
    """Of one kind; those that a strict answer stands for are not made again."""
    if kind != "soft":
        return host.run(requests(part, kind))
    again = [task for task, ran in zip(part, strict, strict=False) if landing_of(ran) == "forced"]
    made = iter(host.run(requests(again, kind)))
    return [
        next(made) if landing_of(ran) == "forced" else ran
        for _, ran in zip(part, strict, strict=False)
    ]


def landing_of(ran: Ran) -> str:
    return ran.end.landing if ran.end is not None else ""


def _most(kind: str, task: Task) -> int:
    if kind == "cut":
        return task.tokens if task.check is not None else 0
    if kind == "free" and task.check is None:  # only the part beside the others is looked at
        return task.tokens + LEAD + SLACK
    return FREE_TOKENS


def _budget(kind: str, tokens: int) -> Budget | None:
    match kind:
        case "soft" | "strict":
            return Budget(tokens, kind)
        case _:
            return None


def at_boundary(ran: Ran) -> bool:
    """By the text alone, whatever the engine says of it; or the model ended it itself."""
    end = ran.end
    if end is not None and end.counts.hidden_tokens and end.stop_type == "eos":
        return True
    prose = Prose()
    prose.feed(ran.text.encode())
    return bool(prose.boundary)


def summary(runs: Sequence[Ran], free: Sequence[Ran], tasks: Sequence[Task]) -> dict[str, Any]:
    """Of one mode beside the free answers to the same prompts."""
    ends = [ran.end for ran in runs if ran.end is not None]
    landings = Counter(end.landing for end in ends)
    off = [len(ran.tokens) - task.tokens for ran, task in zip(runs, tasks, strict=True)]
    natural = [
        at_boundary(ran) and end.landing != "forced" for ran, end in zip(runs, ends, strict=True)
    ]
    extra = [end.counts.computed_tokens - end.counts.completion_tokens for end in ends]
    pairs = list(zip(runs, free, tasks, strict=False))
    longer = [len(one.tokens) > task.tokens + SLACK for _, one, task in pairs]
    return {
        "answers": len(runs),
        "within": _share(abs(by) <= SLACK for by in off),
        "mean_error": _mean(off),
        "boundary": _share(natural),
        "cut": _share(end.landing == "forced" for end in ends),
        "landings": dict(landings),
        "free_answer_was_longer": _share(longer),
        "tokens_computed_over_delivered": 1 + sum(extra) / sum(len(ran.tokens) for ran in runs),
        "logprob_per_token": _mean(_mean(ran.logprobs) for ran, _, _ in pairs),
        "logprob_per_token_free": _mean(
            _mean(one.logprobs[: len(ran.tokens)]) for ran, one, _ in pairs
        ),
        "logprob_of_ending": _mean(_mean(ran.logprobs[-LEAD:]) for ran in runs),
        "compared": len(pairs),
        "logprob_of_ending_where_free_was_longer": _ending(pairs, budgeted=True),
        "logprob_free_at_that_place": _ending(pairs, budgeted=False),
    }


def _ending(pairs: Sequence[tuple[Ran, Ran, Task]], *, budgeted: bool) -> float:
    """Of the last tokens, where the free answer went on beyond them."""
    longer = [(a, b) for a, b, task in pairs if len(b.tokens) > task.tokens + SLACK]
    return _mean(_mean((a if budgeted else b).logprobs[: len(a.tokens)][-LEAD:]) for a, b in longer)


def quality(tasks: Sequence[Task], runs: Mapping[str, Sequence[Ran]]) -> dict[str, Any]:
    """Checks passed, by how the answer was ended, where the answer can be checked."""
    compared = min(map(len, runs.values()))
    checked = [(i, task.check) for i, task in enumerate(tasks[:compared]) if task.check is not None]
    found: dict[str, Any] = {"checked": len(checked)}
    for kind, ran in runs.items():
        found[kind] = _share(passed(check, ran[i].text) for i, check in checked if check)
    return found


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fmean(found) if found else 0.0


def _share(flags: Any) -> float:
    return round(_mean(map(float, flags)), 4)


def report(tasks: Sequence[Task], runs: Mapping[str, Sequence[Ran]]) -> dict[str, Any]:
    modes = {kind: summary(runs[kind], runs["free"], tasks) for kind in ("soft", "strict")}
    return {**modes, "quality": quality(tasks, runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=306)
    parser.add_argument("--compared", type=int, default=102, help="with free answers, at most")
    parser.add_argument("--chinese", action="store_true", help="Chinese prompts and answers")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    data, name = os.environ.get("STEELYARD_DATA"), "zh" if arguments.chinese else "general"
    if arguments.chinese and not data:
        parser.error("Chinese prompts are in the data folder: name it in STEELYARD_DATA")
    host = Host(models.locate(ModelConfig()), CONTEXT, AT_ONCE)
    asked = tasks(host, arguments.prompts, Path(data) / f"prompts_{name}.jsonl" if data else None)
    runs: dict[str, list[Ran]] = {"strict": [], "soft": [], "free": [], "cut": []}
    for kinds, count in ((("strict", "soft"), len(asked)), (("free", "cut"), arguments.compared)):
        for start in range(0, min(count, len(asked)), PART):
            part = asked[start : min(start + PART, count)]
            for kind in kinds:
                runs[kind] += answers(host, part, kind, runs["strict"][start:])
            done = asked[: len(runs["soft"])]
            text = json.dumps(report(done, runs), indent=2)
            if arguments.json:
                arguments.json.write_text(text + "\n")
            print(kinds, start + len(part), file=sys.stderr, flush=True)
    print(text)
    host.close()


if __name__ == "__main__":
    main()
