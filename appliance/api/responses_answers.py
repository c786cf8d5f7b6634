"""What POST /v1/responses answers with: structs in the shapes of OpenAI's Responses API."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from appliance.api.answers import (
    CachedTokens,
    Expected,
    HiddenTokens,
    Judged,
    Landed,
    Logprob,
    Timings,
    Usage,
)
from appliance.api.digests import HEADER as DIGEST

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct):
    text: str = ""
    type: Literal["output_text"] = "output_text"
    annotations: list[Any] = msgspec.field(default_factory=list)
    logprobs: list[Logprob] = msgspec.field(default_factory=list)


class MessageOutput(msgspec.Struct):
    """A message of the model's. Its one part is there from its second event on."""

    id: str
    status: ItemStatus = "in_progress"
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = msgspec.field(default_factory=list)


class CallOutput(msgspec.Struct):
    """A function that the client shall run. `call_id` ties what it gives to it."""

    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: ItemStatus = "in_progress"
    type: Literal["function_call"] = "function_call"


Output = MessageOutput | CallOutput


class InputDetails(CachedTokens):
    cache_write_tokens: int = 0
    """OpenAI charges for these; here nothing is."""


class OutputDetails(HiddenTokens):
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


def renamed_usage(usage: Usage) -> ResponseUsage:
    """The same counts under the names of this route."""
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(usage.prompt_tokens_details.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(usage.completion_tokens_details.hidden_tokens),
        total_tokens=usage.total_tokens,
    )


class Incomplete(msgspec.Struct):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class Failure(msgspec.Struct):
    code: str
    message: str


class Answered(msgspec.Struct):
    """The response: begun, or as it ended."""

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    output: Sequence[Output]
    instructions: str | None
    max_output_tokens: int | None
    parallel_tool_calls: bool
    reasoning: Mapping[str, Any]
    service_tier: str
    temperature: float
    text: Mapping[str, Any]
    tool_choice: Any
    tools: Sequence[Mapping[str, Any]]
    top_logprobs: int
    top_p: float
    user: str | None
    metadata: Mapping[str, str]
    object: Literal["response"] = "response"
    background: bool = False
    error: Failure | None = None
    incomplete_details: Incomplete | None = None
    max_tool_calls: int | None = None
    previous_response_id: None = None
    store: bool = False
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | Mapping[str, int] | None = None
    completed_at: int | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    budget: Landed | UnsetType = UNSET
    confidence_after: Judged | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    forecast: Expected | UnsetType = UNSET
    digest: str | UnsetType = msgspec.field(default=UNSET, name=DIGEST)


class Happened(msgspec.Struct, omit_defaults=True):
    """One event of a stream; which members it has depends on its type."""

    type: str
    sequence_number: int | UnsetType = UNSET
    response: Answered | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    item: Output | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    part: OutputText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    logprobs: list[Logprob] | UnsetType = UNSET
    code: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET
    error: Any = UNSET
