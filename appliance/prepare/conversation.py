"""Messages and tools as clients send them, checked and brought into the form templates expect."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.errors import BadRequest

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_KEYS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"})
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Message = dict[str, Any]


def bad(message: str, param: str, code: str | None = None) -> BadRequest:
    return BadRequest(message, param=param, code=code)


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that the model may call."""

    name: str
    parameters: dict[str, Any]
    """A JSON Schema of type object."""
    offer: dict[str, Any]
    """The tool as the client sent it, for the template."""
    param: str
    """Where in the request it stands."""


def normalise(messages: Sequence[Any]) -> list[Message]:
    """Checked messages: role known, content a string. Raises BadRequest naming the message."""
    if not messages:
        raise bad("messages is empty: send at least one", "messages")
    names: dict[str, str] = {}
    return [_message(item, f"messages[{i}]", names) for i, item in enumerate(messages)]


def _message(raw: Any, where: str, names: dict[str, str]) -> Message:
    if not isinstance(raw, dict):
        raise bad(f"{where} must be an object", where)
    role = raw.get("role")
    if not isinstance(role, str) or role not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise bad(f"{where}.role must be one of {known}", f"{where}.role")
    _refuse_unknown(raw, where)
    message: Message = {"role": role, "content": _content(raw, role, where)}
    for key in ("name", "tool_call_id", "reasoning_content"):
        if raw.get(key) is not None:
            message[key] = _string(raw[key], f"{where}.{key}")
    if raw.get("tool_calls"):
        message["tool_calls"] = _tool_calls(raw["tool_calls"], role, f"{where}.tool_calls")
        names |= {call["id"]: call["function"]["name"] for call in message["tool_calls"]}
    if role == "tool" and "name" not in message and message.get("tool_call_id") in names:
        message["name"] = names[message["tool_call_id"]]
    return message


def _refuse_unknown(raw: Message, where: str) -> None:
    """Empty extras pass: SDKs send them back when an answer becomes history."""
    for key, value in raw.items():
        if key not in _KEYS and value not in (None, [], {}, ""):
            raise bad(f"{where}.{key} is not supported", f"{where}.{key}")


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise bad(f"{where} must be a string", where)
    return value


def _content(raw: Message, role: str, where: str) -> str:
    content = raw.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        if role == "assistant" and raw.get("tool_calls"):
            return ""
        raise bad(f"{where}.content is missing", f"{where}.content")
    if not isinstance(content, list):
        raise bad(f"{where}.content must be a string or a list of parts", f"{where}.content")
    return "\n".join(_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        raise bad(f"{where} is not a text part: this box takes text only", where)
    return _string(part.get("text"), f"{where}.text")


def _tool_calls(calls: Any, role: str, where: str) -> list[dict[str, Any]]:
    if role != "assistant":
        raise bad(f"{where} belongs to assistant messages only", where)
    if not isinstance(calls, list):
        raise bad(f"{where} must be a list", where)
    return [_tool_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise bad(f"{where}.function must be an object", f"{where}.function")
    name = _string(function.get("name"), f"{where}.function.name")
    arguments = _arguments(function.get("arguments", "{}"), f"{where}.function.arguments")
    identity = _string(call.get("id") or "", f"{where}.id")
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _arguments(value: Any, where: str) -> Any:
    """Templates expect an object; clients send its JSON. What is no object stays text, and so does
    one with half a character in it (an escaped lone surrogate), which no prompt can hold."""
    if isinstance(value, dict):
        return value
    text = _string(value, where)
    try:
        parsed = json.loads(text)
        json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text


def with_text_arguments(messages: Sequence[Message]) -> list[Message]:
    """The messages with call arguments as JSON text, for the few templates that expect that."""

    def text(call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        arguments = function["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}

    return [_map_calls(message, text) for message in messages]


def _map_calls(message: Message, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Message:
    if "tool_calls" not in message:
        return message
    return {**message, "tool_calls": [change(call) for call in message["tool_calls"]]}


def read_tools(tools: Sequence[Any] | None, most: int) -> list[Tool]:
    """Checked tools; raises BadRequest naming the one at fault."""
    tools = tools or []
    if len(tools) > most:
        raise bad(f"{len(tools)} tools; at most {most} are allowed (limits.tools)", "tools")
    read = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    seen: set[str] = set()
    for tool in read:
        if tool.name in seen:
            raise bad(f"{tool.param}: the name {tool.name!r} is taken", f"{tool.param}.function")
        seen.add(tool.name)
    return read


def _tool(raw: Any, where: str) -> Tool:
    function = raw.get("function") if isinstance(raw, dict) else None
    if not isinstance(function, dict) or raw.get("type", "function") != "function":
        raise bad(f'{where} must be {{"type": "function", "function": {{…}}}}', where)
    name = function.get("name")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise bad(
            f"{where}.function.name must be 1 to 64 letters, digits, '_', '-' or '.'",
            f"{where}.function.name",
        )
    parameters = _parameters(function.get("parameters"), f"{where}.function.parameters")
    return Tool(name, parameters, raw, f"{where}.function.parameters")


def _parameters(schema: Any, where: str) -> dict[str, Any]:
    """OpenAI: no schema means a function without parameters."""
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(schema, dict):
        raise bad(f"{where} must be a JSON Schema object", where)
    if schema.get("type", "object") != "object":
        raise bad(f'{where}.type must be "object"', f"{where}.type")
    return {"type": "object", **schema}
