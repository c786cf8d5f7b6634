"""Tools, schemas and grammars through the official client: an answer that parses, or an error."""

import json
from typing import Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel, Field

from tests.box.running import RunningBox
from tests.box.wire import CLOCK, HELLO, WEATHER, check_arguments

ASK: list[Any] = [{"role": "user", "content": "How is the weather in Rome? Use the tools."}]
TOOLS: Any = [WEATHER, CLOCK]
NAMED: Any = {"type": "function", "function": {"name": "get_time"}}
MODEL = "default"
ROOM = 400
"""More tokens than any of these answers can have: white space in them is bounded, too."""


class Trip(BaseModel):
    city: Literal["Oslo", "Bern"]
    days: int = Field(ge=1, le=30)
    by_train: bool


def check_calls(message: ChatCompletionMessage) -> list[str]:
    """Every call is complete and valid; returns the names."""
    calls: list[Any] = message.tool_calls or []
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert call.id.startswith("call_")
        assert call.type == "function"
        check_arguments(call.function.name, call.function.arguments)
    return [call.function.name for call in calls]


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_required_call_is_made_and_its_arguments_follow_the_schema(
    box: RunningBox, temperature: float
) -> None:
    (choice,) = box.client().chat.completions.create(
        model=MODEL, messages=ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False,
        temperature=temperature, max_tokens=ROOM,
    ).choices  # fmt: skip
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert len(check_calls(choice.message)) == 1


def test_a_named_call_is_that_of_the_name(box: RunningBox) -> None:
    (choice,) = box.client().chat.completions.create(
        model=MODEL, messages=ASK, tools=TOOLS, tool_choice=NAMED, max_tokens=ROOM
    ).choices  # fmt: skip
    assert choice.finish_reason == "tool_calls"
    assert check_calls(choice.message) == ["get_time"]


def test_with_auto_every_choice_is_text_or_valid_calls(box: RunningBox) -> None:
    answer = box.client().chat.completions.create(
        model=MODEL, messages=ASK, tools=TOOLS, tool_choice="auto", n=3, max_tokens=16,
        temperature=1.2, extra_body={"return_token_ids": True},
    )  # fmt: skip
    assert answer.usage is not None
    ids = [(choice.model_extra or {})["token_ids"] for choice in answer.choices]
    assert answer.usage.completion_tokens == sum(map(len, ids))
    for choice in answer.choices:
        assert choice.message.content is not None or choice.message.tool_calls
        if choice.finish_reason == "tool_calls":
            assert check_calls(choice.message)


def test_with_none_no_tool_is_called_or_offered(box: RunningBox) -> None:
    client = box.client()
    options: Any = {
        "model": MODEL, "messages": ASK, "max_tokens": 4, "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }  # fmt: skip
    (choice,) = client.chat.completions.create(**options, tools=TOOLS, tool_choice="none").choices
    assert choice.message.tool_calls is None
    assert choice.message.content
    plain = client.chat.completions.create(**options)
    offered = client.chat.completions.create(**options, tools=TOOLS, tool_choice="none")
    assert plain.usage is not None
    assert offered.usage is not None
    assert plain.usage.prompt_tokens == offered.usage.prompt_tokens


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_streamed_arguments_come_in_pieces_that_make_valid_json(
    box: RunningBox, choice: Any
) -> None:
    chunks = list(
        box.client().chat.completions.create(
            model=MODEL, messages=ASK, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False,
            max_tokens=ROOM, stream=True,
        )
    )  # fmt: skip
    deltas = [one.delta for chunk in chunks for one in chunk.choices]
    parts = [call for delta in deltas for call in delta.tool_calls or []]
    opening, *rest = parts
    assert opening.id is not None
    assert opening.function is not None
    assert opening.function.name in ("get_weather", "get_time")
    assert all(part.index == 0 for part in parts)
    assert all(part.id is None for part in rest), "the id is told once"
    assert len(rest) > 1, "arguments were not streamed"
    arguments = "".join(part.function.arguments or "" for part in parts if part.function)
    check_arguments(opening.function.name, arguments)
    assert not any(delta.content for delta in deltas)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_call_and_its_result_go_back_into_the_conversation(box: RunningBox) -> None:
    client = box.client()
    (choice,) = client.chat.completions.create(
        model=MODEL, messages=ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False,
        max_tokens=ROOM,
    ).choices  # fmt: skip
    (call,) = choice.message.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny-42"}
    follow: Any = [*ASK, choice.message, result]
    answer = client.chat.completions.create(
        model=MODEL, messages=follow, tools=TOOLS, tool_choice="none", max_tokens=4,
        temperature=0, extra_body={"return_token_ids": True, "ignore_eos": True},
    )  # fmt: skip
    assert answer.choices[0].message.content
    ids = (answer.model_extra or {})["prompt_token_ids"]
    prompt = box.http.post("/detokenize", json={"tokens": ids}).json()["content"]
    assert "Sunny-42" in prompt
    for name in json.loads(call.function.arguments):  # type: ignore[union-attr]
        assert f'"{name}"' in prompt


def test_an_answer_of_a_strict_schema_parses_into_its_model(box: RunningBox) -> None:
    answer = box.client().chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Plan a trip."}],
        response_format=Trip,
        max_tokens=ROOM,
    )
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(answer.choices[0].message.parsed, Trip)


def test_the_clients_tool_parser_takes_our_calls(box: RunningBox) -> None:
    tool: Any = openai.pydantic_function_tool(Trip)
    answer = box.client().chat.completions.parse(
        model=MODEL, messages=HELLO, tools=[tool], tool_choice="required",
        parallel_tool_calls=False, max_tokens=ROOM,
    )  # fmt: skip
    (call,) = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Trip)


def test_the_clients_stream_helper_assembles_a_schemas_answer(box: RunningBox) -> None:
    with box.client().chat.completions.stream(
        model=MODEL, messages=HELLO, response_format=Trip, max_tokens=ROOM
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Trip)


async def test_the_asynchronous_client_parses_schemas_and_streams_calls(box: RunningBox) -> None:
    async with box.async_client() as client:
        answer = await client.chat.completions.parse(
            model=MODEL, messages=HELLO, response_format=Trip, max_tokens=ROOM
        )
        assert isinstance(answer.choices[0].message.parsed, Trip)
        chunks = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[CLOCK], tool_choice="required",
            parallel_tool_calls=False, max_tokens=ROOM, stream=True,
        )  # fmt: skip
        parts = [
            call.function
            async for chunk in chunks
            for choice in chunk.choices
            for call in choice.delta.tool_calls or []
        ]
    assert [part.name for part in parts if part and part.name] == ["get_time"]
    check_arguments("get_time", "".join(part.arguments or "" for part in parts if part))


def test_a_schema_holds_in_every_choice(box: RunningBox) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    wanted: Any = {"name": "verdict", "strict": True, "schema": schema}
    answer = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, n=2, max_tokens=ROOM, temperature=1.5,
        response_format={"type": "json_schema", "json_schema": wanted},
    )  # fmt: skip
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert type(json.loads(choice.message.content or "")["ok"]) is bool


def test_json_mode_begins_an_object_and_can_end_it(box: RunningBox) -> None:
    client = box.client()
    ids = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1, response_format={"type": "json_object"},
    )  # fmt: skip
    assert (ids.choices[0].message.content or "").startswith("{")
    (brace,) = box.http.post("/tokenize", json={"content": "}"}).json()["tokens"]
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=ROOM, temperature=0, logit_bias={str(brace): 100},
        response_format={"type": "json_object"},
    )  # fmt: skip
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


@pytest.mark.parametrize(
    ("grammar", "kind"),
    [
        ('root ::= "<" [a-c] [0-9] ">"', "gbnf"),
        ('root ::= "<" [a-c] [0-9] ">"', None),
        ('start: "<" /[a-c][0-9]/ ">"', "lark"),
        ('start: "<" /[a-c][0-9]/ ">"', None),
        ("<[a-c][0-9]>", "regex"),
    ],
)
def test_a_grammar_of_any_kind_is_obeyed(box: RunningBox, grammar: str, kind: Any) -> None:
    body = {"grammar": grammar} | ({"grammar_type": kind} if kind else {})
    (choice,) = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=12, temperature=1.5, extra_body=body
    ).choices  # fmt: skip
    text = choice.message.content or ""
    assert choice.finish_reason == "stop"
    assert len(text) == 4
    assert text[0] + text[3] == "<>"
    assert text[1] in "abc"
    assert text[2].isdecimal()


def test_a_completion_obeys_its_grammar_too(box: RunningBox) -> None:
    (choice,) = box.client().completions.create(
        model=MODEL, prompt="Yes or no?", max_tokens=8,
        extra_body={"grammar": "yes|no", "grammar_type": "regex"},
    ).choices  # fmt: skip
    assert choice.text in ("yes", "no")


def test_a_call_cut_off_by_the_limit_is_an_answer_and_no_error(box: RunningBox) -> None:
    client = box.client()
    for limit in (1, 4, 12):
        options: Any = {
            "model": MODEL, "messages": ASK, "tools": TOOLS, "tool_choice": "required",
            "max_tokens": limit,
        }  # fmt: skip
        whole = client.chat.completions.create(**options)
        assert whole.choices[0].finish_reason == "length"
        assert whole.usage is not None
        assert whole.usage.completion_tokens == limit
        *_, last = client.chat.completions.create(**options, stream=True)
        assert last.choices[0].finish_reason == "length"


def test_what_looks_like_a_call_and_is_none_stays_text(box: RunningBox) -> None:
    """The model is made to write a broken call; a grammar is refused along with tools, so it comes
    as the beginning of its own answer."""
    begun: Any = {"role": "assistant", "content": '<tool_call>\n{"name": get_weather, "argu'}
    (choice,) = box.client().chat.completions.create(
        model=MODEL, messages=[*ASK, begun], tools=TOOLS, max_tokens=8, temperature=2,
        extra_body={"continue_final_message": True},
    ).choices  # fmt: skip
    assert choice.message.content is not None
    assert choice.finish_reason in ("stop", "length")


@pytest.mark.parametrize(
    "wrong",
    [
        {"tools": [], "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}},
        {"tools": [WEATHER, WEATHER]},
        {"tools": [{"type": "function", "function": {"name": "bad name"}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 3}}}]},
        {"tools": TOOLS, "extra_body": {"grammar": "root ::= x"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 1}}},
        {"response_format": {"type": "yaml"}},
        {"extra_body": {"grammar_type": "regex"}},
        {"extra_body": {"grammar": "a", "grammar_type": "ebnf"}},
    ],
)
def test_tools_and_formats_that_make_no_sense_are_refused(box: RunningBox, wrong: Any) -> None:
    with pytest.raises(openai.BadRequestError):
        box.client().chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1, **wrong)
