"""Tools for models whose chat template does not speak of them: in Hermes' form, as plain text."""

import json
from collections.abc import Sequence
from typing import Any

from appliance.prepare.conversation import Message
from appliance.prepare.template import ChatTemplate

_OTHER_FORMS = ("<function=", "<arg_key>")
"""Marks of templates that use Hermes' tag around something other than JSON."""

_PROMPT = """\
You may call functions to answer the user. They are listed as JSON inside <tools></tools>:
<tools>
{tools}
</tools>
To call one, answer with its name and arguments as JSON inside <tool_call></tool_call>:
<tool_call>
{{"name": "function name", "arguments": {{"argument": "value"}}}}
</tool_call>"""


def speaks_hermes(template: ChatTemplate) -> bool:
    """Whether the template offers tools itself, in the form that we can constrain and parse."""
    source = template.source
    return (
        template.takes_tools
        and "<tool_call>" in source
        and "arguments" in source
        and not any(form in source for form in _OTHER_FORMS)
    )


def as_plain_text(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """The conversation with tools, calls and results written into the messages' text."""
    plain: list[Message] = []
    role = ""
    for message in messages:
        if message["role"] == "tool" and role == "tool":
            plain[-1]["content"] += "\n" + _result(message)
        else:
            plain.append(_plain(message))
        role = message["role"]
    return _with_prompt(plain, tools) if tools else plain


def _plain(message: Message) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": _result(message)}
    if "tool_calls" in message:
        return {"role": message["role"], "content": _with_calls(message)}
    return message


def _with_prompt(messages: list[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    prompt = _PROMPT.format(tools=listed)
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{prompt}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": prompt}, *messages]


def _with_calls(message: Message) -> str:
    calls = [_call(call["function"]) for call in message["tool_calls"]]
    return "\n".join(text for text in (message["content"], *calls) if text)


def _call(function: dict[str, Any]) -> str:
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def _result(message: Message) -> str:
    return f"<tool_response>\n{message['content']}\n</tool_response>"
