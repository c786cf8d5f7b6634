"""POST /v1/responses of a real box, through the official client."""

import json
from typing import Any, Literal

import openai
import pytest
from openai.types.responses import Response, ResponseFunctionToolCall
from pydantic import BaseModel, Field

from tests.box.running import RunningBox
from tests.box.wire import CLOCK, WEATHER, check_arguments

QUESTION = "What is the capital of France?"
ASK: list[Any] = [{"role": "user", "content": "How is the weather in Rome? Use the tools."}]
TOOLS: Any = [{"type": "function", "strict": True, **tool["function"]} for tool in (WEATHER, CLOCK)]
ROOM = 400
"""More tokens than a call or an object here can have."""
ALONE = {"exclusive": True}
"""The same request then gives the same answer, whatever runs beside it."""


class Trip(BaseModel):
    city: Literal["Oslo", "Bern"]
    days: int = Field(ge=1, le=30)


def ask(box: RunningBox, **more: Any) -> Response:
    settings = {"model": "default", "temperature": 0, "max_output_tokens": 24, **more}
    found = box.client().responses.create(**settings)
    assert isinstance(found, Response)
    return found


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    """Every call is whole and valid."""
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        assert call.call_id.startswith("call_")
        check_arguments(call.name, call.arguments)
    return calls


def test_it_says_what_a_chat_says_and_counts_the_same(box: RunningBox) -> None:
    asked: Any = {"model": "default", "temperature": 0, "extra_body": ALONE}
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
    ]
    chat = box.client().chat.completions.create(messages=messages, max_tokens=24, **asked)
    told = ask(box, instructions="Be brief.", input=QUESTION, extra_body=ALONE)
    assert chat.usage is not None
    assert told.usage is not None
    assert told.output_text == chat.choices[0].message.content
    assert told.usage.input_tokens == chat.usage.prompt_tokens
    assert told.usage.output_tokens == chat.usage.completion_tokens


def test_a_stream_comes_to_the_same_answer(box: RunningBox) -> None:
    whole = ask(box, input=QUESTION, max_output_tokens=ROOM, extra_body=ALONE)
    manager = box.client().responses.stream(
        model="default", input=QUESTION, temperature=0, max_output_tokens=ROOM,
        extra_body=ALONE,
    )  # fmt: skip
    with manager as stream:
        said = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert said == final.output_text == whole.output_text
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.status == whole.status == "completed"


def test_a_stream_cut_by_its_limit_ends_with_an_incomplete_response(box: RunningBox) -> None:
    events = list(
        box.client().responses.create(
            model="default", input=QUESTION, stream=True, max_output_tokens=3,
            extra_body={"ignore_eos": True},
        )
    )  # fmt: skip
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.usage is not None
    assert last.response.usage.output_tokens == 3
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_calls_go_round_through_the_clients_own_objects(box: RunningBox, stream: bool) -> None:
    asked: Any = {"model": "default", "input": ASK, "tools": TOOLS, "temperature": 0,
                  "tool_choice": "required", "max_output_tokens": ROOM}  # fmt: skip
    if stream:
        with box.client().responses.stream(**asked) as events:
            first: Response = events.get_final_response()
    else:
        first = ask(box, **asked)
    calls = calls_of(first)
    assert calls
    history = [*ASK, *first.output]
    history += [
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        for call in calls
    ]
    second = ask(box, input=history, tools=TOOLS, tool_choice="none")
    assert second.output_text
    assert not calls_of(second)


def test_a_named_call_is_that_of_the_name(box: RunningBox) -> None:
    named = {"type": "function", "name": "get_time"}
    told = ask(box, input=ASK, tools=TOOLS, tool_choice=named, max_output_tokens=ROOM)
    assert {call.name for call in calls_of(told)} == {"get_time"}


def test_a_parsed_answer_follows_its_schema(box: RunningBox) -> None:
    told = box.client().responses.parse(
        model="default", input="Where to?", text_format=Trip, temperature=1.5,
        max_output_tokens=ROOM,
    )  # fmt: skip
    assert isinstance(told.output_parsed, Trip)


def test_a_schema_that_cannot_be_enforced_is_named_as_the_client_knows_it(box: RunningBox) -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "strin"}}
    with pytest.raises(openai.BadRequestError, match=r"^Error code: 400 - .*text\.format") as found:
        ask(box, input="Hi", text={"format": form})
    assert str(found.value.param).startswith("text.format")
    broken = {**TOOLS[0], "parameters": {"type": "strin"}}
    with pytest.raises(openai.BadRequestError) as found:
        ask(box, input="Hi", tools=[broken])
    assert str(found.value.param).startswith("tools[0].parameters")


def test_a_prompt_that_is_too_long_is_told_of_the_input(box: RunningBox) -> None:
    with pytest.raises(openai.BadRequestError) as found:
        ask(box, input="word " * 4000)
    assert (found.value.param, found.value.code) == ("input", "context_length_exceeded")


def test_an_error_amid_a_stream_is_raised_by_the_client(box: RunningBox) -> None:
    stream = box.client().responses.create(
        model="default", input="Go on.", stream=True, max_output_tokens=1500,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    begun = next(stream)
    assert begun.type == "response.created"
    assert box.admin("DELETE", f"/admin/requests/{begun.response.id}").status_code == 200
    kinds: list[str] = []
    with pytest.raises(openai.APIError, match="cancelled by the operator"):
        kinds.extend(event.type for event in stream)


def test_a_forecast_takes_the_same_body(box: RunningBox) -> None:
    body = {"instructions": "Be brief.", "input": QUESTION, "max_output_tokens": 9}
    told = box.http.post("/v1/forecast", json=body).json()
    found = box.http.post("/v1/responses", json=body)
    usage = json.loads(found.content)["usage"]
    assert told["prompt_tokens"] == usage["input_tokens"]
    assert found.headers["X-Forecast-Tokens"]
    both = box.http.post("/v1/forecast", json={**body, "prompt": "x"})
    assert (both.status_code, both.json()["error"]["param"]) == (400, "input")
