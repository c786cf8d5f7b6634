"""Structures that are closed in time: the output stays valid whatever the budget is."""

import json
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLTokenizer

from appliance.engine.closing import Closing, Quotes, orders_of
from appliance.engine.closing_answer import PATIENCE_S, ClosingAnswer
from appliance.engine.commands import Budget, Sampling
from appliance.engine.constrain import Constraint
from appliance.engine.landing import SLACK
from appliance.engine.sequence import End
from appliance.engine.vocab import Vocab
from appliance.prepare import grammar
from tests.unit.engine_parts import make_sequence

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 3}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PEOPLE = {"type": "object", "properties": {"people": {"type": "array", "items": PERSON}}}
KINDS: list[dict[str, Any]] = [
    {"type": "object"},
    PERSON,
    {**PEOPLE, "required": ["people"]},
    {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 2},
    {"type": "string", "pattern": "^[a-z]{4,}$"},
    {"anyOf": [{"type": "null"}, PERSON]},
]


@cache
def tokenizer() -> LLTokenizer:
    """One token per byte."""
    return LLTokenizer("byte")


class Bytes:
    """Its vocabulary."""

    def __init__(self) -> None:
        self.n_tokens = tokenizer().vocab_size
        self.eogs = self.hidden = frozenset(range(256, self.n_tokens))

    def piece(self, token: int, special: bool = False) -> bytes:
        return bytes([token]) if token < 256 else b""


VOCAB = cast(Vocab, Bytes())


def constraint(schema: dict[str, Any]) -> Constraint:
    return Constraint(tokenizer(), grammar.schema_grammar(schema, "schema", 65536))


def closing(schema: dict[str, Any], text: str = "") -> Closing:
    """After this much of an answer."""
    state = constraint(schema)
    made = Closing(orders_of(VOCAB), VOCAB, state)
    for byte in text.encode():
        path = made.after(byte)
        assert state.accept(byte)
        made.take(byte, path)
    return made


def shown(path: tuple[int, ...] | None) -> str:
    assert path is not None
    return bytes(path).decode()


@pytest.mark.parametrize(
    ("schema", "text", "rest"),
    [
        (KINDS[0], "", "{}"),
        (KINDS[0], '{"a":[1,{"b', '":""}]}'),
        (KINDS[0], '{"a":"}', '"}'),
        (KINDS[0], '{"a":"\\"', '"}'),
        (KINDS[2], '{"people":[', "]}"),
        (KINDS[2], '{"people":[{"name":"Anna","age":3', "}]}"),
        (KINDS[3], '["red"', ',"green"]'),
    ],
)
def test_the_way_out_is_short_and_valid(schema: dict[str, Any], text: str, rest: str) -> None:
    assert shown(closing(schema, text).path) == rest


def test_what_is_required_is_part_of_the_way_out() -> None:
    whole = json.loads(shown(closing(PERSON).path))
    assert set(whole) == {"name", "age"}
    assert len(whole["name"]) == 3


def test_the_way_out_becomes_shorter_as_the_answer_supplies_what_is_required() -> None:
    texts = ("", '{"name":"', '{"name":"Anna', '{"name":"Anna","age":', '{"name":"Anna","age":3')
    lengths = [len(closing(PERSON, text).path or ()) for text in texts]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == 1


def test_quotes_know_what_is_escaped() -> None:
    quotes = Quotes()
    inside = []
    for piece in (b'{"a', b'\\"b', b"\\\\", b'"'):
        quotes.feed(piece)
        inside.append(quotes.inside)
    assert inside == [True, True, True, False]


def answered(
    schema: dict[str, Any],
    tokens: int,
    seed: int,
    wish: str = "",
    most: int = 400,
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[ClosingAnswer, End]:
    """An answer of a model that writes `wish`, then whatever the grammar lets it. On a machine that
    takes no time, unless `clock` tells of some."""
    source = grammar.schema_grammar(schema, "schema", 65536)
    sequence = make_sequence(
        max_tokens=most, grammar=source, budget=Budget(tokens, "strict"),
        sampling=Sampling(temperature=0.0),
    )  # fmt: skip
    answer = ClosingAnswer(sequence, VOCAB, tokenizer, orders_of(VOCAB), clock)
    rows = np.random.default_rng(seed)
    end = None
    while end is None:
        row = rows.normal(size=VOCAB.n_tokens).astype(np.float32)
        row[97:123] += 3
        place = sequence.generated
        if place < len(wish):
            row[ord(wish[place])] = 50.0
        end = answer.take(row, 10_000)
    return answer, end


def text_of(answer: ClosingAnswer) -> str:
    sequence = answer.sequence
    return bytes(t for t in sequence.tokens[sequence.n_prompt :] if t < 256).decode(
        "utf-8", "replace"
    )


@settings(max_examples=80)
@given(st.sampled_from(KINDS), st.integers(30, 120), st.integers(0, 2**32 - 1))
def test_whatever_the_model_wants_the_answer_is_valid_and_in_time(
    schema: dict[str, Any], tokens: int, seed: int
) -> None:
    answer, end = answered(schema, tokens, seed)
    assert end.reason == "stop"
    length = answer.sequence.generated
    assert length <= tokens + SLACK
    assert json.loads(text_of(answer)) is not Ellipsis
    inside = tokens - SLACK <= length
    assert (answer.landing in ("closed", "natural")) == inside
    assert (answer.landing == "gave_way") == (not inside)


def test_an_answer_that_is_complete_early_is_not_made_longer() -> None:
    answer, _ = answered(PERSON, 100, 1, '{"name":"Anna","age":3}')
    assert text_of(answer) == '{"name":"Anna","age":3}'
    assert answer.landing == "gave_way"


def test_what_could_not_be_closed_in_time_is_not_opened() -> None:
    answer, _ = answered(KINDS[2], 45, 3, '{"people":[{"name":"Anna","age":3},{"name":"')
    assert json.loads(text_of(answer))
    assert answer.sequence.generated <= 45 + SLACK


def test_a_grammar_that_takes_long_is_closed_by_the_way_that_is_known() -> None:
    """Each look at the clock takes `PATIENCE_S` of a whole answer, a thirtieth part."""
    ticks = count()
    wish = '{"people":[' + '{"name":"Anna","age":3},' * 10
    answer, end = answered(KINDS[2], 200, 1, wish, clock=lambda: next(ticks) * PATIENCE_S / 30)
    assert end.reason == "stop"
    assert answer.landing == "gave_way"
    assert json.loads(text_of(answer))["people"] is not None
    assert answer.sequence.generated < 100
    patient, _ = answered(KINDS[2], 200, 1, wish)
    assert patient.landing == "closed"


def test_the_search_for_a_way_out_ends_in_time() -> None:
    ticks = count()
    long = {"type": "array", "items": {"type": "integer"}, "minItems": 100}
    state = constraint({"anyOf": [{"enum": ["a"]}, long]})
    made = Closing(orders_of(VOCAB), VOCAB, state, clock=lambda: float(next(ticks)))
    assert shown(made.path) == '"a"'
    assert len(made.after(ord("[")) or ()) > 100
    before = next(ticks)
    assert made.after(ord("["), until=before + 5.0) is None
    assert next(ticks) - before < 20


def test_a_value_is_cut_between_words() -> None:
    wish = '{"a":"one two three four five six seven eight nine ten'
    answer, _ = answered(KINDS[0], 40, 1, wish)
    assert json.loads(text_of(answer)) == {"a": "one two three four five six seven"}
    assert answer.landing == "closed"
