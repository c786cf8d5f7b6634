"""Budgets through the official client and the real engine: answers that end where it was agreed."""

import json
from typing import Any

import openai
import pytest

from tests.box.running import RunningBox
from tests.box.wire import CHAT

ENDS = {"natural", "steered", "closed", "forced"}
STORY: list[Any] = [{"role": "user", "content": "Tell me a story about a lighthouse."}]
CODE: list[Any] = [
    {"role": "user", "content": "Write a long Python program that sorts numbers in three ways."}
]
CHINESE: list[Any] = [{"role": "user", "content": "请用中文介绍北京。"}]
REPEATING: list[Any] = [
    {"role": "user", "content": "Repeat this: " + "the box counts every token of it. " * 12}
]
PLACE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "sights": {"type": "array", "items": {"type": "string"}},
        "text": {"type": "string"},
    },
    "required": ["name", "sights", "text"],
    "additionalProperties": False,
}


def budget(tokens: int, mode: str = "strict") -> dict[str, Any]:
    return {"budget": {"tokens": tokens, "mode": mode}}


def ask(
    box: RunningBox, messages: list[Any], tokens: int, mode: str = "strict", **more: Any
) -> Any:
    extra = {**budget(tokens, mode), "return_token_ids": True, **more.pop("extra_body", {})}
    answer = box.client().chat.completions.create(
        model="default", messages=messages, extra_body=extra, **{"seed": 1, **more}
    )
    (choice,) = answer.choices
    kept = choice.budget  # type: ignore[attr-defined]
    assert kept["tokens"] == tokens
    assert answer.usage is not None
    ids = choice.token_ids  # type: ignore[attr-defined]
    assert kept["used"] == answer.usage.completion_tokens == len(ids)
    assert kept["within"] == (abs(kept["used"] - tokens) <= 3)
    assert choice.finish_reason == ("length" if kept["ended"] == "forced" else "stop")
    return choice


def strictly_kept(choice: Any) -> bool:
    return choice.budget["within"] and choice.budget["ended"] in ENDS


@pytest.mark.parametrize("tokens", [1, 12, 40, 120])
@pytest.mark.parametrize("temperature", [0, 0.9])
def test_a_strict_answer_always_ends_within_three_tokens(
    box: RunningBox, tokens: int, temperature: float
) -> None:
    for messages in (STORY, REPEATING):
        choice = ask(box, messages, tokens, temperature=temperature)
        assert strictly_kept(choice), choice.budget


def test_a_question_whose_answer_is_short_is_answered_at_length(box: RunningBox) -> None:
    question: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
    choice = ask(box, question, 60, temperature=0)
    assert strictly_kept(choice)
    assert "Paris" in choice.message.content


def test_a_stream_tells_the_outcome_in_its_last_chunk(box: RunningBox) -> None:
    stream = box.client().chat.completions.create(
        model="default", messages=STORY, seed=2, stream=True,
        stream_options={"include_usage": True},
        extra_body={**budget(50), "return_token_ids": True},
    )  # fmt: skip
    chunks = list(stream)
    told = [c.choices[0] for c in chunks if c.choices and getattr(c.choices[0], "budget", None)]
    (last,) = told
    assert last.finish_reason in ("stop", "length")
    ids = [
        token
        for chunk in chunks
        if chunk.choices
        for token in getattr(chunk.choices[0], "token_ids", None) or ()
    ]
    kept = last.budget  # type: ignore[attr-defined]
    usage = chunks[-1].usage
    assert usage is not None
    assert kept["used"] == len(ids) == usage.completion_tokens
    assert kept["within"]


def test_whole_and_streamed_are_the_same_answer(box: RunningBox) -> None:
    body = {"messages": STORY, "seed": 3, "exclusive": True, **budget(45), "max_tokens": 200}
    whole = box.http.post(CHAT, json=body).json()["choices"][0]
    with box.client().chat.completions.create(
        model="default", messages=STORY, seed=3, max_tokens=200, stream=True,
        extra_body={"exclusive": True, **budget(45)},
    ) as stream:  # fmt: skip
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == whole["message"]["content"]


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_an_exclusive_answer_with_a_seed_repeats_to_the_last_token(
    box: RunningBox, temperature: float
) -> None:
    answers = [
        ask(box, STORY, 60, temperature=temperature, seed=7, extra_body={"exclusive": True})
        for _ in range(2)
    ]
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].budget == answers[1].budget


@pytest.mark.parametrize("tokens", [40, 90])
def test_json_is_valid_whatever_the_budget_is(box: RunningBox, tokens: int) -> None:
    asked: list[Any] = [{"role": "user", "content": "Describe Paris at length, as JSON."}]
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE}}
    for form in (wanted, {"type": "json_object"}):
        choice = ask(box, asked, tokens, response_format=form)
        found = json.loads(choice.message.content)
        assert isinstance(found, dict)
        if form is wanted:
            assert set(found) == set(PLACE["required"])  # type: ignore[arg-type]
        assert choice.budget["within"] or choice.budget["ended"] == "gave_way"
        assert choice.budget["used"] <= tokens + 3


def test_a_stop_string_goes_before_the_budget(box: RunningBox) -> None:
    choice = ask(box, STORY, 80, stop=[" the"])
    assert " the" not in choice.message.content
    assert choice.budget["ended"] in (ENDS if choice.budget["within"] else {"gave_way"})


@pytest.mark.parametrize("tokens", [30, 70])
def test_code_is_never_left_open(box: RunningBox, tokens: int) -> None:
    for seed in (1, 2):
        choice = ask(box, CODE, tokens, seed=seed)
        assert strictly_kept(choice)
        assert choice.message.content.count("```") % 2 == 0


@pytest.mark.parametrize("tokens", [25, 26, 27, 60])
def test_chinese_ends_with_whole_characters(box: RunningBox, tokens: int) -> None:
    choice = ask(box, CHINESE, tokens)
    assert strictly_kept(choice)
    assert "\ufffd" not in choice.message.content


def test_log_probabilities_belong_to_the_tokens_that_are_shown(box: RunningBox) -> None:
    choice = ask(box, STORY, 40, logprobs=True)
    tokens = [entry.token for entry in choice.logprobs.content]
    assert "".join(tokens) == choice.message.content


def test_a_completion_has_a_budget_too(box: RunningBox) -> None:
    answer = box.client().completions.create(
        model="default", prompt="The lighthouse stood", seed=1, extra_body=budget(40)
    )
    (choice,) = answer.choices
    assert choice.budget["within"]  # type: ignore[attr-defined]


def test_a_soft_answer_says_so_where_it_ended_outside(box: RunningBox) -> None:
    for seed in range(4):
        choice = ask(box, STORY, 50, "soft", seed=seed)
        assert choice.budget["within"] or choice.budget["ended"] in ("gave_way", "forced")
        assert choice.budget["used"] <= 50 + 64 + 3


def test_what_was_tried_is_counted_apart(box: RunningBox) -> None:
    body = {"messages": STORY, "seed": 5, "max_tokens": 200, **budget(60)}
    answer = box.http.post(CHAT, json=body).json()
    (found,) = box.admin("GET", f"/v1/audit/{answer['id']}").json()["requests"]
    used = answer["usage"]["completion_tokens"]
    row = found["request"]
    assert row["completion_tokens"] == used <= row["computed_tokens"]
    assert row["choices"][0]["landing"] == answer["choices"][0]["budget"]["ended"]


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_replay_contradicts_nothing(box: RunningBox, temperature: float) -> None:
    body = {
        "messages": STORY, "seed": 6, "max_tokens": 200, "temperature": temperature,
        "exclusive": True, **budget(60),
    }  # fmt: skip
    answer = box.http.post(CHAT, json=body).json()
    told = box.admin("POST", f"/admin/audit/{answer['id']}/replay", json={})
    assert told.status_code == 200, told.text
    assert told.json()["replay"] in ("identical", "inconclusive")
    equal = [step["equal"] for step in told.json()["report"]["steps"]]
    assert all(equal[: 60 - 24])


def test_what_cannot_be_kept_is_refused_before_it_runs(box: RunningBox) -> None:
    long = {"type": "object", "properties": {"a": {"type": "array", "minItems": 40}}}
    form: Any = {
        "type": "json_schema",
        "json_schema": {"name": "long", "schema": {**long, "required": ["a"]}},
    }
    for more, said in (
        ({"response_format": form}, "shortest answer"),
        ({"max_tokens": 19}, "max_tokens"),
        ({"n": 2}, "leave n out"),
        ({"extra_body": {"ignore_eos": True}}, "ignore_eos"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(box, STORY, 20, **more)
        assert said in str(caught.value)
