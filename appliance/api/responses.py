"""POST /v1/responses: a chat in OpenAI's newer form. Nothing is kept between two of them.

The body becomes that of a chat and goes the same way as one; only what is told differs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.bodies import ignored_header, parse, read_shape
from appliance.api.box import box_of
from appliance.api.chat import taken_aboard, terms_of
from appliance.api.chat_shapes import ChatRequest
from appliance.api.digests import HEADER
from appliance.api.gather import gather
from appliance.api.replies import json_response, pieces_of
from appliance.api.responses_items import messages_of
from appliance.api.responses_shapes import AllowedTools, ChosenFunction, ResponsesRequest
from appliance.api.responses_stream import ResponseStream, ResponseWriter
from appliance.api.responses_telling import Telling
from appliance.errors import ApiError

_SAME = {
    "model", "stream", "parallel_tool_calls", "metadata", "service_tier", "user",
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repeat_penalty", "seed", "stop", "logit_bias", "ignore_eos", "cache_prompt", "exclusive",
    "lora", "chat_template_kwargs", "deadline_s", "budget", "return_forecast", "return_token_ids",
}  # fmt: skip
"""Fields that mean in a chat what they mean here."""
_NAMES = {
    "response_format.json_schema.schema": "text.format.schema",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
}
"""A chat's fields, and what a client of this route knows them by."""
_FUNCTION = re.compile(r"^(tools\[\d+\])\.function")
"""Here a tool is its function."""


async def respond(request: Request) -> Response:
    """A chat in the form of OpenAI's Responses API. Nothing is stored: previous_response_id,
    conversation and background are refused."""
    box = box_of(request)
    asked, ignored = await read_shape(request, ResponsesRequest)
    with _renamed():
        shape = chat_of(asked)
        terms = replace(terms_of(shape), prefix="resp_", param="input")
        prepared, flight = await taken_aboard(request, shape, terms)
    telling = Telling(box, asked, prepared, flight)
    headers = ignored_header(ignored)
    if asked.stream:
        headers |= await flight.headers()
        writer = ResponseWriter(telling)
        ping_s = box.config.server.sse_ping_s
        return ResponseStream(flight, writer, pieces_of(request), ping_s, headers)
    (gathered,) = await gather(flight, request.receive, pieces_of(request))
    headers |= await flight.headers()  # first: the body tells the same forecast
    body = telling.whole(gathered)
    return json_response(body, {**headers, HEADER: telling.digests.all})


def chat_of(asked: ResponsesRequest) -> ChatRequest:
    """The chat that asks the same. Raises BadRequest."""
    data = asked.model_dump(include=_SAME, exclude_none=True)
    data["messages"] = messages_of(asked.instructions, asked.input)
    data["max_completion_tokens"] = asked.max_output_tokens
    if asked.logprobs:
        data |= {"logprobs": True, "top_logprobs": asked.top_logprobs or 0}
    if asked.tools:
        data |= _tools(asked)
    data["response_format"] = _format(asked)
    return parse(ChatRequest, data, report=False)[0]


def _tools(asked: ResponsesRequest) -> dict[str, Any]:
    choice: Any = asked.tool_choice
    tools = asked.tools or []
    if isinstance(choice, AllowedTools):
        tools = [tool for tool in tools if tool.name in asked.chosen]
        choice = choice.mode
    elif isinstance(choice, ChosenFunction):
        choice = {"type": "function", "function": {"name": choice.name}}
    functions = [tool.model_dump(exclude={"type"}, exclude_none=True) for tool in tools]
    return {
        "tools": [{"type": "function", "function": function} for function in functions],
        "tool_choice": choice,
    }


def _format(asked: ResponsesRequest) -> dict[str, Any] | None:
    wanted = asked.text.format if asked.text is not None else None
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    schema = wanted.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)
    return {"type": "json_schema", "json_schema": schema}


@contextmanager
def _renamed() -> Iterator[None]:
    """Faults name the fields of this route."""
    try:
        yield
    except ApiError as fault:
        param = fault.param or ""
        fault.param = _renamed_path(param) or None
        if param and fault.message.startswith(param):
            fault.message = _renamed_path(param) + fault.message.removeprefix(param)
        raise


def _renamed_path(path: str) -> str:
    """A chat's path to a field as this route has it. Which of the items a message was made of is
    not told: they are counted otherwise."""
    for theirs, ours in _NAMES.items():
        if path.startswith(theirs):
            return ours if ours == "input" else ours + path.removeprefix(theirs)
    return _FUNCTION.sub(r"\1", path)
