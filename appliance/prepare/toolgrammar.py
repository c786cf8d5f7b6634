"""Grammars for answers that may, or must, call tools.

A call is always `{"name": …, "arguments": {…}}` in this order, so that arguments can be streamed
as they are written, and its arguments are valid under the function's own schema.
"""

import json
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer

from appliance.engine.constrain import ConstraintError
from appliance.errors import BadRequest
from appliance.prepare.conversation import Tool
from appliance.prepare.grammar import Schema, invalid_schema, prove, schema_grammar, schema_text

MOST_CALLS = 16
"""Calls in one forced answer."""
SCHEMAS_FACTOR = 4
"""All tools' schemas together may be this many times as large as one."""

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


def forced(tools: Sequence[Tool], parallel: bool, most: int) -> str:
    """The whole answer is one call or, if `parallel`, perhaps a list of them."""
    calls = f'call | "[" call (", " call){{0,{MOST_CALLS - 1}}} "]"' if parallel else "call"
    return _lark(f"start: {calls}\n{_rules(tools, most)}")


def optional(
    tools: Sequence[Tool], parallel: bool, most: int, answer: tuple[Schema, str] | None
) -> str:
    """Text with calls in it; with `answer` (schema, param) either calls alone or that JSON."""
    body = f'"\\n" call {_quote(_NEWLINE_CLOSE)}'
    if answer is not None:
        schema = schema_text(*answer, most)
        many = f'("\\n" {_quote(_OPEN)} {body})*' if parallel else ""
        start = f"start: {_quote(_OPEN)} {body} {many} | answer\nanswer: %json {schema}\n"
        return _lark(start + _rules(tools, most))
    # `lazy`: as soon as the tag is complete, what follows is a call and nothing else.
    start = "start: called* TEXT" if parallel else "start: called | TEXT"
    return _lark(
        f"{start}\ncalled: trigger {body}\n"
        f"trigger[lazy]: TEXT {_quote(_OPEN)}\nTEXT: /(.|\\n)*/\n{_rules(tools, most)}"
    )


_NEWLINE_CLOSE = "\n" + _CLOSE


def _lark(rules: str) -> str:
    return LLMatcher.grammar_from_lark("%llguidance {}\n" + rules)


def _quote(text: str) -> str:
    return json.dumps(text)


def _rules(tools: Sequence[Tool], most: int) -> str:
    schemas = [schema_text(tool.parameters, tool.param, most) for tool in tools]
    total = sum(map(len, schemas))
    if total > SCHEMAS_FACTOR * most:
        raise BadRequest(
            f"the tools' schemas have {total} bytes together; at most {SCHEMAS_FACTOR * most} "
            f"are allowed ({SCHEMAS_FACTOR} times limits.grammar_bytes)",
            param="tools",
            code="grammar_too_large",
        )
    lines = ["call: " + " | ".join(f"call_{i}" for i in range(len(tools)))]
    for i, (tool, schema) in enumerate(zip(tools, schemas, strict=True)):
        head = _quote('{"name": ' + _quote(tool.name) + ', "arguments": ')
        lines.append(f'call_{i}: {head} args_{i} "}}"\nargs_{i}: %json {schema}')
    return "\n".join(lines) + "\n"


def check(tokenizer: LLTokenizer, tools: Sequence[Tool], most: int) -> None:
    """Proves each schema on its own: inside a grammar with a choice, a dead end would go unseen.

    Raises BadRequest naming the tool.
    """
    for tool in tools:
        try:
            prove(tokenizer, schema_grammar(tool.parameters, tool.param, most))
        except ConstraintError as reason:
            raise invalid_schema(tool.param, str(reason)) from reason
