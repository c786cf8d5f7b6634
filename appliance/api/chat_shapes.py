"""The body of a chat: messages, tools, and how the answer shall look."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from appliance.api.shapes import Count, OpenAiGeneration, Shape

FUNCTION_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
FunctionName = Annotated[str, Field(pattern=FUNCTION_NAME)]


class Part(Shape):
    """A piece of a message. The models served read text alone."""

    type: Literal["text", "refusal"]
    text: str | None = None
    refusal: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, data: Any) -> Any:
        """Told before its other fields are: those are not what is wrong with an image."""
        kind = data.get("type", "text") if isinstance(data, dict) else "text"
        if kind not in ("text", "refusal"):
            raise ValueError(
                f"a part of type {str(kind)[:100]!r} cannot be read: this model takes text alone"
            )
        return data

    @model_validator(mode="after")
    def _holds_its_type(self) -> Self:
        if getattr(self, self.type) is None:
            raise ValueError(f"a part of type {self.type} needs the field {self.type}")
        return self


class CalledFunction(Shape):
    name: FunctionName
    arguments: str


class Call(Shape):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class ChatMessage(Shape):
    """One message; which fields it needs depends on its role."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: Annotated[list[Call], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        said = self.content is not None or (self.role == "assistant" and self.refusal is not None)
        if not said and not (self.role == "assistant" and self.tool_calls):
            raise ValueError(f"a message of role {self.role} needs content")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of role {self.role} cannot hold tool_calls")
        return self

    def text(self) -> str | None:
        """The content as one text."""
        if not isinstance(self.content, list):
            return self.content if self.content is not None else self.refusal
        return "\n".join(part.text or part.refusal or "" for part in self.content)

    def plain(self) -> dict[str, Any]:
        """The message for the chat template: no nulls, content one text, role one it knows."""
        left_out = {"content", "refusal", "annotations", "audio", "function_call"}
        found = self.model_dump(exclude=left_out, exclude_none=True)
        found["content"] = self.text() or ""
        if found["role"] == "developer":
            found["role"] = "system"
        return found


class Function(Shape):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Shape):
    type: Literal["function"]
    function: Function


class NamedFunction(Shape):
    name: FunctionName


class NamedTool(Shape):
    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Shape):
    name: Annotated[str, Field(max_length=64)] | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Shape):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: dict[str, Any] | None = Field(
        None, alias="schema", description="llama-server's form, with type json_object."
    )

    @model_validator(mode="after")
    def _schema_fits_type(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None and self.schema_ is None:
            raise ValueError("type json_schema needs the field json_schema")
        if self.type != "json_schema" and self.json_schema is not None:
            raise ValueError("json_schema needs type json_schema")
        return self


class Templated(Shape):
    """What decides the prompt of a chat."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _tools_agree(self) -> Self:
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            raise ValueError("tools: two functions share a name")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError("tool_choice: names a function that is not among the tools")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice: required needs tools")
        return self

    @model_validator(mode="after")
    def _one_ending(self) -> Self:
        if self.add_generation_prompt and self.continue_final_message:
            raise ValueError("add_generation_prompt and continue_final_message exclude each other")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise ValueError("continue_final_message: the last message must be the assistant's")
        return self


class ChatRequest(Templated, OpenAiGeneration):
    """POST /v1/chat/completions."""

    max_completion_tokens: Count | None = None
    n_predict: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    prediction: dict[str, Any] | None = None
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = None
    reasoning_format: Literal["none", "auto", "deepseek", "deepseek-legacy"] | None = None

    HINTS = OpenAiGeneration.HINTS | {
        "reasoning_effort",
        "verbosity",
        "prediction",
        "reasoning_format",
    }

    @model_validator(mode="after")
    def _logprobs_first(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if self.grammar is not None and not self._plain_text:
            raise ValueError("give grammar or response_format, not both")
        return self

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        given = (self.max_tokens, self.max_completion_tokens, self.n_predict)
        if len({limit for limit in given if limit is not None}) > 1:
            raise ValueError("max_tokens, max_completion_tokens and n_predict disagree: give one")
        return self

    @property
    def _plain_text(self) -> bool:
        return self.response_format is None or self.response_format.type == "text"

    @property
    def limit(self) -> int | None:
        """Tokens per choice; None for the default."""
        for limit in (self.max_completion_tokens, self.max_tokens, self.n_predict):
            if limit is not None and limit >= 0:
                return limit
        return None


class RenderRequest(Templated):
    """POST /apply-template."""

    model: str | None = None
