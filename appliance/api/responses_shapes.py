"""The body of POST /v1/responses: OpenAI's newer form of a chat, without anything that is kept."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, ValidationInfo, field_validator, model_validator

from appliance.api.chat_shapes import FunctionName
from appliance.api.responses_items import Item, item_kind
from appliance.api.shapes import (
    Bias,
    BudgetShape,
    Count,
    Loras,
    Metadata,
    Name,
    Pair,
    Seed,
    Shape,
    Texts,
)

LOGPROBS = "message.output_text.logprobs"
"""The only thing that `include` can add here."""
KEPT = {
    "background": "every answer is given on the connection that asks for it",
    "conversation": "no conversation is stored here: send all its items as input",
    "previous_response_id": "no response is stored here: send its items as input again",
    "prompt": "no prompt is stored here: send its text as instructions or input",
    "store": "no response is stored here: leave it out, or say false",
}
"""What OpenAI keeps on its servers, and what to do without it."""


class FunctionTool(Shape):
    """A function that the client runs."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_function(cls, data: Any) -> Any:
        """Told before its other fields are: those are not what is wrong with a web search."""
        kind = data.get("type", "function") if isinstance(data, dict) else "function"
        if kind != "function":
            raise ValueError(
                f"a tool of type {str(kind)[:100]!r} is run by OpenAI's servers: here tools are "
                "functions, which the client runs"
            )
        return data


class ChosenFunction(Shape):
    type: Literal["function"]
    name: FunctionName


class AllowedTools(Shape):
    """Some of the tools, as if the others were not there."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ChosenFunction], Field(min_length=1, fail_fast=True)]


class TextFormat(Shape):
    type: Literal["text", "json_object", "json_schema"]
    name: Annotated[str, Field(max_length=64)] | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _schema_fits_type(self) -> Self:
        if (self.type == "json_schema") != (self.schema_ is not None):
            raise ValueError("type json_schema needs the field schema, and no other type takes it")
        return self


class TextConfig(Shape):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ObfuscationOptions(Shape):
    include_obfuscation: bool | None = None


class ResponsesRequest(Shape):
    """POST /v1/responses."""

    model: Name | None = Field(None, description="`default`, the served model's name or an alias.")
    input: (
        str
        | Annotated[
            list[
                Annotated[
                    Item,
                    Discriminator(
                        item_kind,
                        custom_error_type="item_type",
                        custom_error_message="an item has type message, function_call, "
                        "function_call_output or reasoning; none can be referred to, since nothing "
                        "is stored here (store: false makes clients send them whole)",
                    ),
                ]
            ],
            Field(min_length=1, fail_fast=True),
        ]
    )
    instructions: str | None = Field(None, description="The first system message.")
    stream: bool | None = None
    stream_options: ObfuscationOptions | None = None
    max_output_tokens: Count | None = Field(None, description="0 generates nothing.")
    tools: Annotated[list[FunctionTool], Field(fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenFunction | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    include: Annotated[list[str], Field(max_length=16)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_tool_calls: Count | None = None
    metadata: Metadata | None = Field(None, description="Given back in the answer.")
    store: Literal[False] | None = Field(None, description="Nothing is ever stored.")
    service_tier: Literal["auto", "default", "priority", "flex"] | None = None
    user: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="Written to the log line of the request."
    )
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    background: Literal[False] | None = None
    conversation: None = None
    previous_response_id: None = None
    prompt: None = None

    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Count | None = Field(None, description="0: all tokens.")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    seed: Seed | None = Field(None, description="-1: a fresh one.")
    stop: str | Texts | None = None
    logit_bias: (
        dict[Annotated[str, Field(max_length=10)], Bias]
        | Annotated[list[Pair], Field(fail_fast=True)]
        | None
    ) = Field(None, description="Token ids to biases; false in a pair forbids the token.")
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    exclusive: bool | None = None
    lora: Loras | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=86400)] | None = Field(
        None, description="Seconds the request may take, waiting included."
    )
    budget: BudgetShape | None = Field(
        None, description="The answer ends within 3 tokens of so many, at a sentence's or line's."
    )
    return_forecast: bool | None = Field(
        None, description="Tell in the answer how long it was expected to become."
    )
    return_token_ids: bool | None = None

    HINTS = frozenset(
        {
            "reasoning",
            "max_tool_calls",
            "safety_identifier",
            "prompt_cache_key",
            "prompt_cache_retention",
        }
    )

    @field_validator(*KEPT, mode="before")
    @classmethod
    def _keeps_nothing(cls, value: Any, info: ValidationInfo) -> Any:
        """Whoever relies on what is kept has sent half a request."""
        if value not in (None, False):
            raise ValueError(f"cannot be used: {KEPT[str(info.field_name)]}")
        return value

    @model_validator(mode="after")
    def _tools_agree(self) -> Self:
        names = [tool.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            raise ValueError("tools: two functions share a name")
        if not self.chosen.issubset(names):
            raise ValueError("tool_choice: names a function that is not among the tools")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice: required needs tools")
        return self

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not isinstance(self.input, str) and all(one.type == "reasoning" for one in self.input):
            raise ValueError("input: holds reasoning alone, which is not read")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError(f"top_logprobs needs include: [{LOGPROBS!r}]")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        return self

    def without_effect(self) -> tuple[str, ...]:
        own = [f"include.{name}" for name in self.include or () if name != LOGPROBS]
        if self.truncation == "auto":
            own.append("truncation")
        if self.text is not None and self.text.verbosity is not None:
            own.append("text.verbosity")
        if self.stream_options is not None and self.stream_options.include_obfuscation:
            own.append("stream_options.include_obfuscation")
        return (*super().without_effect(), *own)

    @property
    def chosen(self) -> set[str]:
        """The functions that `tool_choice` names."""
        if isinstance(self.tool_choice, ChosenFunction):
            return {self.tool_choice.name}
        if isinstance(self.tool_choice, AllowedTools):
            return {tool.name for tool in self.tool_choice.tools}
        return set()

    @property
    def logprobs(self) -> bool:
        """Whether the answer's tokens shall come with theirs."""
        return LOGPROBS in (self.include or ())
