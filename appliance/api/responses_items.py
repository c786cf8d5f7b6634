"""The items of a response's input, and the chat's messages that they stand for."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Tag, model_validator

from appliance.api.chat_shapes import FunctionName
from appliance.api.shapes import Shape

Status = Literal["in_progress", "completed", "incomplete"]


class InputPart(Shape):
    """A piece of a message. The models served read text alone."""

    type: Literal["input_text", "output_text", "refusal"]
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, data: Any) -> Any:
        """Told before its other fields are: those are not what is wrong with an image."""
        kind = data.get("type", "input_text") if isinstance(data, dict) else "input_text"
        if kind not in ("input_text", "output_text", "refusal"):
            raise ValueError(
                f"a part of type {str(kind)[:100]!r} cannot be read: this model takes text alone "
                "(input_text, output_text, refusal)"
            )
        return data

    @model_validator(mode="after")
    def _holds_its_type(self) -> Self:
        field = "refusal" if self.type == "refusal" else "text"
        if getattr(self, field) is None:
            raise ValueError(f"a part of type {self.type} needs the field {field}")
        return self

    def plain(self) -> dict[str, Any]:
        """As a part of a chat's message."""
        if self.type == "refusal":
            return {"type": "refusal", "refusal": self.refusal}
        return {"type": "text", "text": self.text}


Content = str | Annotated[list[InputPart], Field(fail_fast=True)]


class MessageItem(Shape):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = None
    status: Status | None = None
    phase: str | None = None


class CallItem(Shape):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: FunctionName
    arguments: str
    id: str | None = None
    status: Status | None = None


class OutputItem(Shape):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content
    id: str | None = None
    status: Status | None = None


class ReasoningItem(Shape):
    """What another server's model thought. It is not read."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[Any] | None = None
    content: list[Any] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


Item = (
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[OutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
)


def item_kind(data: Any) -> str:
    """The type of an item; that of a message may be left out."""
    kind = data.get("type") if isinstance(data, dict) else getattr(data, "type", None)
    return str(kind or "message")


def messages_of(instructions: str | None, given: str | Sequence[Item]) -> list[dict[str, Any]]:
    """The messages of the chat. Calls that follow one another are one message of the assistant's,
    together with what it said before them."""
    found: list[dict[str, Any]] = []
    if instructions is not None:
        found.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    for item in given:
        if isinstance(item, MessageItem):
            found.append({"role": item.role, "content": _content(item.content)})
        elif isinstance(item, OutputItem):
            content = _content(item.output)
            found.append({"role": "tool", "content": content, "tool_call_id": item.call_id})
        elif isinstance(item, CallItem):
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant"})
            found[-1].setdefault("tool_calls", []).append(
                {
                    "id": item.call_id,
                    "type": "function",
                    "function": {"name": item.name, "arguments": item.arguments},
                }
            )
    return found


def _content(given: Content) -> str | list[dict[str, Any]]:
    return given if isinstance(given, str) else [part.plain() for part in given]
