"""Grammars: what they let through, what they refuse, and that hostile ones fail in time."""

import json
import time
from typing import Any

import numpy as np
import pytest
from llguidance import LLTokenizer

from appliance.engine.constrain import Constraint, ConstraintError
from appliance.errors import BadRequest
from appliance.prepare import grammar, toolgrammar
from appliance.prepare.conversation import Tool, read_tools
from appliance.prepare.references import endless_reference

MOST = 65536


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    """One token per byte."""
    return LLTokenizer("byte")


def accepts(tokenizer: LLTokenizer, source: str, text: str) -> bool:
    """Whether `text` is a whole answer under the grammar."""
    constraint = Constraint(tokenizer, source)
    return all(constraint.accept(byte) for byte in text.encode()) and constraint.can_end


def make_tools(*schemas: dict[str, Any] | None) -> list[Tool]:
    functions = [{"name": f"f{i}", "parameters": schema} for i, schema in enumerate(schemas)]
    return read_tools([{"type": "function", "function": f} for f in functions], 128)


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


# Constraint


def test_mask_forbids_and_leaves_the_rest_alone(tokenizer: LLTokenizer) -> None:
    constraint = Constraint(tokenizer, grammar.raw_grammar("ab?", "regex", MOST))
    logits = np.ones(tokenizer.vocab_size, dtype=np.float32)
    constraint.mask(logits)
    assert np.flatnonzero(np.isfinite(logits)).tolist() == [ord("a")]
    assert logits[ord("a")] == 1.0


def test_eos_is_allowed_exactly_where_the_grammar_accepts(tokenizer: LLTokenizer) -> None:
    constraint = Constraint(tokenizer, grammar.raw_grammar("ab?", "regex", MOST))
    eos = tokenizer.eos_token
    assert not constraint.allowed(tokenizer.vocab_size)[eos]
    assert constraint.accept(ord("a"))
    assert constraint.can_end
    assert not constraint.is_done
    assert constraint.allowed(tokenizer.vocab_size)[eos]
    assert constraint.accept(ord("b"))
    assert constraint.is_done


def test_forbidden_token_is_refused_and_changes_nothing(tokenizer: LLTokenizer) -> None:
    constraint = Constraint(tokenizer, grammar.raw_grammar("ab", "regex", MOST))
    assert not constraint.accept(ord("x"))
    assert constraint.accept(ord("a"))


def test_copy_and_rollback_are_independent(tokenizer: LLTokenizer) -> None:
    constraint = Constraint(tokenizer, grammar.raw_grammar("abc", "regex", MOST))
    twin = constraint.copy()
    assert all(twin.accept(byte) for byte in b"ab")
    assert not constraint.accept(ord("b"))
    twin.rollback(2)
    assert twin.accept(ord("a"))


def test_larger_vocabulary_than_the_tokenizers_is_forbidden(tokenizer: LLTokenizer) -> None:
    constraint = Constraint(tokenizer, grammar.raw_grammar(".*", "regex", MOST))
    logits = np.zeros(tokenizer.vocab_size + 100, dtype=np.float32)
    constraint.mask(logits)
    assert np.isneginf(logits[tokenizer.vocab_size :]).all()


# Schemas


def test_json_object_takes_objects_only(tokenizer: LLTokenizer) -> None:
    schema = grammar.response_schema({"type": "json_object"})
    assert schema is not None
    source = grammar.schema_grammar(schema, "response_format", MOST)
    assert accepts(tokenizer, source, '{"a": [1, null]}')
    assert not accepts(tokenizer, source, "[1]")


def test_schema_is_enforced(tokenizer: LLTokenizer) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": CITY, "strict": True}}
    schema = grammar.response_schema(wanted)
    assert schema == CITY
    source = grammar.schema_grammar(CITY, "p", MOST)
    assert accepts(tokenizer, source, '{\n  "city": "Köln"\n}')
    assert not accepts(tokenizer, source, '{"city": 3}')
    assert not accepts(tokenizer, source, "{}")


def test_white_space_is_bounded(tokenizer: LLTokenizer) -> None:
    source = grammar.schema_grammar(CITY, "p", MOST)
    assert not accepts(tokenizer, source, '{"city":' + " " * 30 + '"x"}')


def test_text_format_needs_no_grammar() -> None:
    assert grammar.response_schema(None) is None
    assert grammar.response_schema({"type": "text"}) is None


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "x"}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": []}},
        {"type": "json_object", "schema": 3},
    ],
)
def test_bad_response_format_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        grammar.response_schema(wanted)
    assert str(caught.value.param).startswith("response_format")


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE: list[dict[str, Any]] = [
    {"not": {}},
    {"type": "object", "propertyNames": {"pattern": "^a"}},
    {"type": "array", "uniqueItems": True},
    {"if": {"type": "string"}, "then": {"minLength": 2}},
    {"type": "string", "format": "no-such-format"},
    {"type": "nothing"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/$defs/missing"},
    {"$ref": "http://example.com/schema.json"},
    {"type": "string", "pattern": "(("},
    {"type": "string", "pattern": "(?!a)b"},
    {"type": "string", "pattern": r"(a)\1"},
    {"enum": []},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"type": "integer", "minimum": 2, "maximum": 1},
    {"x-guidance": {"lenient": True}, "not": {}},
    {"minimum": float("nan")},
    {"enum": [f"a long value, number {i}" for i in range(10_000)]},
    nested(500),
    nested(5000),
    {
        "allOf": [
            {
                "anyOf": [
                    {"type": "object", "properties": {f"{i}_{j}": {"type": "integer"}}}
                    for j in range(6)
                ]
            }
            for i in range(8)
        ]
    },
]


@pytest.mark.parametrize("schema", HOSTILE, ids=lambda schema: next(iter(schema)))
def test_schema_that_cannot_be_enforced_is_refused_in_time(
    tokenizer: LLTokenizer, schema: dict[str, Any]
) -> None:
    begun = time.process_time()
    with pytest.raises((BadRequest, ConstraintError)):
        grammar.prove(tokenizer, grammar.schema_grammar(schema, "p", MOST))
    assert time.process_time() - begun < 2.0


def test_unsupported_keyword_is_named(tokenizer: LLTokenizer) -> None:
    source = grammar.schema_grammar({"not": {}}, "p", MOST)
    with pytest.raises(ConstraintError, match="not"):
        grammar.prove(tokenizer, source)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a{1,1000}){1,1000}", "(a?){5000}a{5000}", "(.*a){20}", "(a|b)*a(a|b){20}"],
)
def test_catastrophic_regex_is_compiled_or_refused_in_time(
    tokenizer: LLTokenizer, pattern: str
) -> None:
    for source in (
        grammar.raw_grammar(pattern, "regex", MOST),
        grammar.schema_grammar({"type": "string", "pattern": pattern}, "p", MOST),
    ):
        begun = time.process_time()
        try:
            constraint = Constraint(tokenizer, source)
            for byte in b'"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa':
                constraint.allowed(tokenizer.vocab_size)
                constraint.accept(byte)
        except ConstraintError:
            pass
        assert time.process_time() - begun < 2.0


LIST = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}},
    "required": ["next"],
}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/list", "$defs": {"list": LIST}},
        {"properties": {"a": {"$ref": "#"}}},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}},
        {"const": {"$ref": "#/nowhere"}},
        {"$defs": {"unused": {"$ref": "#/$defs/unused"}}},
        {"$ref": "#/anyOf/1/items", "anyOf": [True, {"items": {"type": "string"}}]},
    ],
)
def test_reference_that_some_value_satisfies_is_fine(schema: dict[str, Any]) -> None:
    assert endless_reference(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "other.json"},
        {"$ref": "#/$defs/x/0", "$defs": {"x": []}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}},
        },
        {"anyOf": [{"$ref": "#/anyOf/1"}, {"$ref": "#/anyOf/0"}]},
    ],
)
def test_reference_without_an_end_is_found(schema: dict[str, Any]) -> None:
    assert endless_reference(schema) is not None


# Grammars of the client's own


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('root ::= "yes" | "no"', None),
        ('root ::= "yes" | "no"', "gbnf"),
        ('start: "yes" | "no"', None),
        ('start: "yes" | "no"', "lark"),
        ("yes|no", "regex"),
    ],
)
def test_every_kind_of_grammar_works(tokenizer: LLTokenizer, source: str, kind: Any) -> None:
    built = grammar.raw_grammar(source, kind, MOST)
    assert accepts(tokenizer, built, "yes")
    assert not accepts(tokenizer, built, "maybe")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("yes|no", None),
        ("root ::= (", "gbnf"),
        ("root ::= missing", "gbnf"),
        ("x" * (MOST + 1), "regex"),
        ("a\0b", "lark"),
        ("", None),
    ],
)
def test_unusable_grammar_is_a_bad_request(tokenizer: LLTokenizer, source: str, kind: Any) -> None:
    with pytest.raises((BadRequest, ConstraintError)):
        grammar.prove(tokenizer, grammar.raw_grammar(source, kind, MOST))


def test_empty_lines_are_not_searched_from_each_of_them_on(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(grammar, "is_lark_syntax", searched.append)
    with pytest.raises(BadRequest, match="neither"):
        grammar.raw_grammar("\n" * 60_000 + " \n x\n\n", None, MOST)
    assert searched == ["x"]


@pytest.mark.parametrize("source", ["start: missing", "start: %%", "start: /((/", "start: start"])
def test_lark_that_does_not_compile_is_refused(tokenizer: LLTokenizer, source: str) -> None:
    with pytest.raises(ConstraintError):
        grammar.prove(tokenizer, grammar.raw_grammar(source, "lark", MOST))


def test_grammar_that_looks_like_llguidance_json_is_read_as_lark(tokenizer: LLTokenizer) -> None:
    source = json.dumps({"grammars": [{"json_schema": {"x-guidance": {"lenient": True}}}]})
    with pytest.raises(ConstraintError):
        grammar.prove(tokenizer, grammar.raw_grammar(source, "lark", MOST))


# Tools


def test_forced_call_takes_valid_arguments_of_its_own_function(tokenizer: LLTokenizer) -> None:
    source = toolgrammar.forced(make_tools(CITY, None), parallel=False, most=MOST)
    assert accepts(tokenizer, source, '{"name": "f0", "arguments": {"city": "x"}}')
    assert accepts(tokenizer, source, '{"name": "f1", "arguments": {}}')
    assert not accepts(tokenizer, source, '{"name": "f1", "arguments": {"city": "x"}}')
    assert not accepts(tokenizer, source, '{"name": "f0", "arguments": {}}')
    assert not accepts(tokenizer, source, '[{"name": "f1", "arguments": {}}]')
    assert not accepts(tokenizer, source, "hello")


def test_forced_calls_may_be_a_list_when_parallel(tokenizer: LLTokenizer) -> None:
    source = toolgrammar.forced(make_tools(None), parallel=True, most=MOST)
    one = '{"name": "f0", "arguments": {}}'
    assert accepts(tokenizer, source, one)
    assert accepts(tokenizer, source, f"[{one}, {one}]")


def tagged(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize("parallel", [True, False])
def test_optional_call_leaves_text_free_and_calls_strict(
    tokenizer: LLTokenizer, parallel: bool
) -> None:
    source = toolgrammar.optional(make_tools(CITY), parallel, MOST, None)
    good = tagged('{"name": "f0", "arguments": {"city": "x"}}')
    assert accepts(tokenizer, source, "just < text <tool_")
    assert accepts(tokenizer, source, good)
    assert accepts(tokenizer, source, f"Let me see.\n{good}")
    assert not accepts(tokenizer, source, "<tool_call>hello")
    assert not accepts(tokenizer, source, tagged('{"name": "f0", "arguments": {"city": 1}}'))
    assert not accepts(tokenizer, source, tagged('{"name": "g", "arguments": {}}'))
    assert accepts(tokenizer, source, f"{good}\n{good}") is parallel


def test_optional_call_with_a_schema_is_either_of_them(tokenizer: LLTokenizer) -> None:
    answer = ({"type": "object", "properties": {"n": {"type": "integer"}}}, "response_format")
    source = toolgrammar.optional(make_tools(None), True, MOST, answer)
    call = tagged('{"name": "f0", "arguments": {}}')
    assert accepts(tokenizer, source, '{"n": 1}')
    assert accepts(tokenizer, source, call)
    assert accepts(tokenizer, source, f"{call}\n{call}")
    assert not accepts(tokenizer, source, "text")
    assert not accepts(tokenizer, source, '{"n": "x"}')


def test_references_inside_parameters_resolve(tokenizer: LLTokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "required": ["a"],
        "$defs": {"n": {"type": "integer"}},
    }
    source = toolgrammar.forced(make_tools(schema), parallel=False, most=MOST)
    assert accepts(tokenizer, source, '{"name": "f0", "arguments": {"a": 1}}')


def test_tool_at_fault_is_named(tokenizer: LLTokenizer) -> None:
    tools = make_tools(CITY, {"type": "object", "propertyNames": {"pattern": "a"}})
    with pytest.raises(BadRequest, match="propertyNames") as caught:
        toolgrammar.check(tokenizer, tools, MOST)
    assert caught.value.param == "tools[1].function.parameters"


def test_too_many_schemas_together_are_refused() -> None:
    tools = make_tools(*({**CITY, "description": "x" * 900} for _ in range(10)))
    with pytest.raises(BadRequest) as caught:
        toolgrammar.forced(tools, False, 1200)
    assert caught.value.code == "grammar_too_large"
