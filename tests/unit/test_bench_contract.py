"""The contract bench's figures, from answers made up for it."""

import json
from pathlib import Path
from typing import Any, cast

from appliance.engine.commands import Budget, Submit
from appliance.engine.reports import Counts, Finished, Landing
from bench.contract import OWN, Task, answers, at_boundary, quality, records, summary
from bench.contract_runs import Host, Ran

TASK = Task(prompt=(1, 2), tokens=40, seed=0, check={"type": "contains", "words": ["steel"]})


def ran(text: str, tokens: int, landing: Landing, tried: int = 0, logprob: float = -1.0) -> Ran:
    request = Submit(id="r", prompt=(1, 2), max_tokens=200, budget=Budget(40))
    counts = Counts(2, 0, tokens, 0, 0, 0, 0.0, 0.0, 0.0, 1, computed_tokens=tokens + tried)
    end = Finished("r", 0, "stop", "eos", "", counts, landing=landing)
    return Ran(request, text, list(range(tokens)), [logprob] * tokens, end)


def test_a_boundary_is_judged_by_the_text_alone() -> None:
    assert at_boundary(ran("It weighs.", 40, "forced"))
    assert not at_boundary(ran("It weighs", 40, "steered"))


def test_prompts_of_a_file_come_in_an_order_of_their_own_that_stays(tmp_path: Path) -> None:
    path, texts = tmp_path / "prompts_zh.jsonl", [f"第{number}个问题" for number in range(20)]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), "utf-8")
    found = [record["prompt"] for record in records(path)]
    assert sorted(found) == sorted(texts) != found
    assert found == [record["prompt"] for record in records(path)]
    assert [record["prompt"] for record in records(None)] == list(OWN)


def test_shares_are_of_all_answers() -> None:
    runs = [
        ran("It weighs.", 40, "steered", tried=40),
        ran("It weighs", 43, "forced"),
        ran("It weighs.", 60, "gave_way"),
        ran("It weighs.", 37, "natural"),
    ]
    free = [ran("It weighs. And on", 100, "", logprob=-2.0)] * 4
    found = summary(runs, free, [TASK] * 4)
    assert (found["answers"], found["within"], found["boundary"]) == (4, 0.75, 0.75)
    assert (found["cut"], found["mean_error"]) == (0.25, 5.0)
    assert found["tokens_computed_over_delivered"] == 1 + 40 / 180
    assert (found["logprob_per_token"], found["logprob_per_token_free"]) == (-1.0, -2.0)


def test_checks_are_counted_where_all_kinds_were_run() -> None:
    good, bad = ran("steel", 40, "steered"), ran("iron", 40, "steered")
    runs = {"strict": [good, bad, good], "free": [good, good]}
    assert quality([TASK] * 3, runs) == {"checked": 2, "strict": 0.5, "free": 1.0}


def test_a_soft_answer_is_made_only_where_the_strict_one_was_cut() -> None:
    asked: list[str] = []

    class Scripted:
        def run(self, requests: Any) -> list[Ran]:
            asked.extend(request.id for request in requests)
            return [ran("Late.", 50, "gave_way") for _ in requests]

    strict = [ran("It weighs.", 40, "steered"), ran("It weighs", 43, "forced")]
    tasks = [TASK, Task(prompt=(1,), tokens=40, seed=1)]
    soft = answers(cast(Host, Scripted()), tasks, "soft", strict)
    assert asked == ["soft-1"]
    assert [one.text for one in soft] == ["It weighs.", "Late."]
