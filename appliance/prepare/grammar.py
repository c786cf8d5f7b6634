"""Grammars for the engine's matcher, from what clients send: schemas, GBNF, Lark, regexes.

Fail closed: what llguidance cannot enforce is refused by name, never left out.
"""

import json
import re
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark, is_lark_syntax

from appliance.engine.constrain import Constraint, ConstraintError
from appliance.errors import BadRequest
from appliance.prepare.messages import GrammarType
from appliance.prepare.references import endless_reference

Schema = dict[str, Any]

WHITESPACE = r"[ \n\r\t]{0,20}"
"""Between JSON tokens. Bounded, because a small model may never stop writing spaces."""

_GUIDANCE: dict[str, Any] = {"whitespace_pattern": WHITESPACE, "lenient": False}
_GBNF_ROOT = re.compile(r"(?m)^\s*root\s*::=")
_UNSATISFIABLE = re.compile(r"^(NoExtension|NoExtensionBias)\b")
_JSON_OBJECT: Schema = {"type": "object"}


def response_schema(response_format: dict[str, Any] | None) -> Schema | None:
    """The schema that a response_format asks for; None for text."""
    if response_format is None or response_format.get("type") == "text":
        return None
    match response_format.get("type"):
        case "json_object":
            return _schema(response_format.get("schema", _JSON_OBJECT), "response_format.schema")
        case "json_schema":
            inner = response_format.get("json_schema")
            if not isinstance(inner, dict):
                raise _bad("response_format.json_schema must be an object", "json_schema")
            return _schema(inner.get("schema"), "response_format.json_schema.schema")
    raise _bad('response_format.type must be "text", "json_object" or "json_schema"', "type")


def _schema(value: Any, param: str) -> Schema:
    if not isinstance(value, dict):
        raise BadRequest(f"{param} must be a JSON Schema object", param=param)
    return value


def _bad(message: str, key: str) -> BadRequest:
    return BadRequest(message, param=f"response_format.{key}")


def schema_text(schema: Schema, param: str, most: int) -> str:
    """The schema as one line of JSON, with the box's own options; BadRequest when too large."""
    if "x-guidance" in schema:
        raise BadRequest(f"{param}: the keyword x-guidance is not supported", param=param)
    try:
        endless = endless_reference(schema)
        if endless is not None:
            raise invalid_schema(param, f"the reference {endless!r} leads nowhere")
        text = json.dumps({**schema, "x-guidance": _GUIDANCE}, allow_nan=False)
    except (RecursionError, ValueError) as error:
        raise invalid_schema(param, f"it cannot be written as JSON: {error}") from error
    limit(text, param, most)
    return text


def limit(text: str, param: str, most: int) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > most:
        raise BadRequest(
            f"{param} has {size} bytes; at most {most} are allowed (limits.grammar_bytes)",
            param=param,
            code="grammar_too_large",
        )


def schema_grammar(schema: Schema, param: str, most: int) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(schema_text(schema, param, most))
    except ValueError as error:
        raise invalid_schema(param, str(error)) from error


def raw_grammar(text: str, kind: GrammarType | None, most: int) -> str:
    """A client's own grammar. Without a kind, GBNF and Lark are told apart by their start rule."""
    limit(text, "grammar", most)
    if "\0" in text:
        raise invalid_grammar("it contains a NUL character")
    match kind or _kind(text):
        case "regex":
            return LLMatcher.grammar_from_regex(text)
        case "lark":
            # Wrapped, because a bare text that starts with "{" is read as llguidance's own JSON.
            return json.dumps({"grammars": [{"lark_grammar": text}]})
        case "gbnf":
            return LLMatcher.grammar_from_lark(_lark(text))


def _kind(text: str) -> GrammarType:
    # Without empty lines, over which both patterns would go again from each of them on.
    dense = "\n".join(line for line in map(str.strip, text.splitlines()) if line)
    if is_lark_syntax(dense):
        return "lark"
    if _GBNF_ROOT.search(dense):
        return "gbnf"
    raise BadRequest(
        'grammar has neither a "root ::=" rule (GBNF) nor a "start:" rule (Lark): '
        'set grammar_type to "gbnf", "lark" or "regex"',
        param="grammar_type",
    )


def _lark(gbnf: str) -> str:
    """The converter raises whatever it stumbles over."""
    try:
        return gbnf_to_lark(gbnf)
    except Exception as error:
        raise invalid_grammar(f"it is no valid GBNF: {error}") from error


def prove(tokenizer: LLTokenizer, grammar: str) -> None:
    """Compiles the grammar and takes its first step; raises ConstraintError."""
    constraint = Constraint(tokenizer, grammar)
    if not constraint.allowed(tokenizer.vocab_size).any():
        raise ConstraintError("NoExtension")


def invalid_schema(param: str, reason: str) -> BadRequest:
    return BadRequest(
        f"{param} cannot be enforced: {readable(reason)}", param=param, code="invalid_schema"
    )


def invalid_grammar(reason: str) -> BadRequest:
    return BadRequest(
        f"grammar cannot be used: {readable(reason)}", param="grammar", code="invalid_grammar"
    )


def readable(reason: str) -> str:
    """What llguidance said, fit for a client."""
    if _UNSATISFIABLE.match(reason):
        return "no answer can satisfy it"
    return reason.replace("<non-verbose/>", "").strip()[:1000]
