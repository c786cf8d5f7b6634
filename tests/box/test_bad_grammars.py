"""Grammars and schemas that nobody can obey, or not in time: the sender's fault, and nobody else's
trouble."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.box.neighbour import Neighbour, living_beside
from tests.box.running import RunningBox
from tests.box.wire import chat, check_next, events_of, refused, send


@pytest.fixture(scope="module", autouse=True)
def neighbour(box: RunningBox) -> Iterator[Neighbour]:
    with living_beside(box) as found:
        yield found


def regex(pattern: str) -> dict[str, Any]:
    return {"grammar": pattern, "grammar_type": "regex"}


def lark(grammar: str) -> dict[str, Any]:
    return {"grammar": grammar, "grammar_type": "lark"}


def schema(of: Any) -> dict[str, Any]:
    wanted = {"name": "x", "schema": of, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


NAMES = [f"W{i}" for i in range(300)]
LEXEMES = "\n".join(
    f"{name}: /[a-z ]*{chr(97 + i % 26)}[a-z ]{{0,{i}}}/" for i, name in enumerate(NAMES)
)

BRANCHES: dict[str, Any] = {"d40": {"type": "null"}}
for i in range(40):
    inner = {"$ref": f"#/$defs/d{i + 1}"}
    BRANCHES[f"d{i}"] = {"anyOf": [inner, {"type": "array", "items": inner}]}

TOO_MUCH = {
    "repeats of repeats": regex("((a|e|i|o|t| ).{0,60}){60}(x.{0,60}y){10}"),
    "too many words": lark(f"start: w+\nw: {' | '.join(NAMES)}\n{LEXEMES}"),
    "all of many patterns": schema(
        {"allOf": [{"type": "string", "pattern": f".*{chr(97 + i)}.*"} for i in range(20)]}
    ),
    "look-around": regex("(?=a)(?!b)a"),
    "a back-reference": regex(r"(a)\1"),
    "an open bracket": regex("([a-z"),
    "a rule of itself": {"grammar": "root ::= root"},
    "a rule that is missing": {"grammar": "root ::= nowhere"},
    "a grammar of zeros": {"grammar": "\0" * 100},
    "a reference to itself": schema({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
    "a reference to the web": schema({"$ref": "http://192.0.2.1/schema.json"}),
    "a reference to a file": schema({"$ref": "file:///etc/passwd"}),
    "what nothing satisfies": schema(
        {"type": "object", "properties": {"a": False}, "required": ["a"]}
    ),
    "a keyword that cannot be enforced": schema({"type": "array", "uniqueItems": True}),
    "a type that is none": schema({"type": "thing"}),
}

COSTLY = {
    "plus of plus": regex("(a+)+$"),
    "states beyond number": regex("(.*[aeiou ].{100}[aeiou ].*){5}"),
    "a million ways": regex("((a{1,100}){1,100}){1,100}"),
    "an automaton of 2^40 states": regex("(a|b)*a(a|b){40}"),
    "an ambiguous rule": lark('start: start start | "a" | '),
    "an ambiguous alternation": {"grammar": 'root ::= x x x x\nx ::= "" | [a-z] x | x [a-z] | x x'},
    "a very long string": schema({"type": "string", "minLength": 1_000_000}),
    "a very long list": schema({"type": "array", "minItems": 100_000}),
    "a thousand fields": schema({"properties": {f"p{i}": {} for i in range(999)}}),
    "branches of branches": schema({"$defs": BRANCHES, "$ref": "#/$defs/d0"}),
}


@pytest.mark.parametrize("fields", TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_grammar_that_cannot_be_kept_is_the_clients_fault(
    box: RunningBox, fields: dict[str, Any]
) -> None:
    answer = send(box, chat(**fields, max_tokens=16))
    assert answer.status_code == 400
    assert refused(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize("fields", COSTLY.values(), ids=COSTLY)
def test_a_costly_grammar_is_obeyed_or_refused_in_time(
    box: RunningBox, fields: dict[str, Any]
) -> None:
    answer = send(box, chat(**fields, max_tokens=8))
    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        refused(answer)


def test_a_grammar_that_fails_in_mid_answer_is_one_error_and_never_a_servers(
    box: RunningBox,
) -> None:
    """The grammar wants an "x" after "ab"; the biases forbid every token that begins with one."""
    (token,) = box.http.post("/tokenize", json={"content": "x"}).json()["tokens"]
    fields = {**regex("abx"), "logit_bias": [[token, False]]}
    whole = send(box, chat(**fields))
    assert whole.status_code == 400
    assert refused(whole)["code"] == "grammar_failed"
    stream = send(box, chat(**fields, stream=True))
    *_, last = events_of(stream.text)
    assert last["error"]["code"] == "grammar_failed"
    assert stream.text.count('"error"') == 1
    assert "[DONE]" not in stream.text
    check_next(box)
