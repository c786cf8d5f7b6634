"""Checks of answers: every type says yes and no where it should, none takes long, none guesses."""

import time

import pytest

from appliance.forecast.checkparts import BadCheck
from appliance.forecast.checks import TYPES, passed
from bench.forecast_checks import check_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
}

CASES = [
    ({"type": "number", "value": 1234.5}, "So 3 + 4 gives 1,234.5.", "1,234.5 is not 7"),
    ({"type": "number", "value": -8}, "It is -8", "It is 8"),
    ({"type": "number", "value": 3.14, "tolerance": 0.01}, "π ≈ 3.1416", "π ≈ 3.2"),
    ({"type": "number", "value": 57}, "最终价格是57美元。", "没有数字"),
    ({"type": "exact", "value": ["Paris", "paris, france"]}, '"Paris."', "Paris is it"),
    ({"type": "choice", "value": "B"}, "The answer is (B).", "(B) or rather (C)"),
    ({"type": "choice", "value": "(B)"}, "B. because", "Because"),
    (
        {"type": "label", "value": "invalid", "among": ["valid", "invalid"]},
        "It is Invalid",
        "valid",
    ),
    ({"type": "label", "value": "no", "among": ["yes", "no"]}, "No.", "I know nothing"),
    ({"type": "json"}, '```json\n{"a": [1, 2]}\n```', "{'a': 1}"),
    ({"type": "json"}, "[null]", "[NaN]"),
    ({"type": "schema", "schema": SCHEMA}, '{"name": "x", "tags": ["a"]}', '{"name": ""}'),
    (
        {"type": "schema", "schema": SCHEMA},
        '{"name": "x", "age": 3.0}',
        '{"name": "x", "age": true}',
    ),
    ({"type": "schema", "schema": SCHEMA}, '{"name": "x"}', '{"name": "x", "more": 1}'),
    ({"type": "schema", "schema": {"anyOf": [{"const": 1}, {"type": "null"}]}}, "1", "true"),
    ({"type": "regex", "pattern": r"\d{4}-\d\d"}, "on 2024-05", "on 24-05"),
    ({"type": "words", "min": 3, "max": 4}, "one two don't", "one two"),
    ({"type": "words", "count": 4}, "今天很好", "今天好"),
    ({"type": "sentences", "min": 2}, "One. Two!", "One, v1.5 of it."),
    ({"type": "sentences", "count": 2}, "好的。再见！", "好的。"),
    ({"type": "sentences", "max": 1}, "It is v1.5, so", "Well. So. There."),
    ({"type": "paragraphs", "count": 2}, "a\n\nb", "a\nb"),
    ({"type": "paragraphs", "count": 2, "stars": True}, "a\n***\nb", "a\n\nb"),
    ({"type": "paragraph_word", "nth": 2, "word": "then"}, "a\n\n**Then** b", "then\n\nb"),
    ({"type": "contains", "words": ["Red", "blue"]}, "RED and Blue", "red"),
    ({"type": "forbidden", "words": ["cat"]}, "concatenate", "a Cat."),
    ({"type": "forbidden", "words": [","]}, "no commas", "one, two"),
    ({"type": "frequency", "word": "ha", "min": 2}, "haha", "ha"),
    ({"type": "letters", "letter": "l", "max": 1}, "lo", "lol"),
    ({"type": "case", "is": "lower"}, "all small 1", "Not small"),
    ({"type": "case", "is": "upper"}, "ALL LARGE!", "123"),
    ({"type": "capitals", "min": 2}, "A BIG one", "a BIG one"),
    ({"type": "starts", "text": "Write a"}, "write a poem: ...", "A poem"),
    ({"type": "ends", "text": "The end."}, '"and so, the end."', "the end. Not"),
    ({"type": "quoted"}, '"all of it"', '"not" all'),
    ({"type": "title"}, "<<My day>>\ntext", "<< >> text"),
    ({"type": "highlights", "min": 2}, "*a* and **b**", "*a* and b"),
    ({"type": "bullets", "count": 2}, "* a\n- b", "1. a\n* b"),
    ({"type": "placeholders", "min": 1}, "Dear [name],", "Dear name,"),
    ({"type": "sections", "word": "SECTION", "min": 2}, "SECTION 1\nx\nSection 2", "SECTION 1"),
    ({"type": "responses", "count": 2}, "one******two", "one******one"),
    ({"type": "script", "name": "HAN"}, "今天很好 ok", "today 很好"),
    (
        {"type": "all", "checks": [{"type": "json"}, {"type": "contains", "words": ["a"]}]},
        '{"a": 1}',
        '{"b": 1}',
    ),
    ({"type": "any", "checks": [{"type": "json"}, {"type": "quoted"}]}, '"x', "x"),
]
CASES[-1] = (CASES[-1][0], '"x"', "x")


@pytest.mark.parametrize(("check", "right", "wrong"), CASES)
def test_a_check_passes_the_right_answer_and_fails_the_wrong_one(check, right, wrong):
    assert passed(check, right)
    assert not passed(check, wrong)


def test_every_type_is_tried_here():
    assert {check["type"] for check, _, _ in CASES} == TYPES


def test_an_empty_answer_passes_only_what_forbids_or_bounds_from_above():
    passing = {check["type"] for check, _, _ in CASES if passed(check, "")}
    assert passing <= {"forbidden", "sentences", "letters"}


@pytest.mark.parametrize(
    "check",
    [
        {},
        {"type": "vibes"},
        {"type": "number", "value": "7"},
        {"type": "number", "value": float("nan")},
        {"type": "exact", "value": []},
        {"type": "label", "value": "maybe", "among": ["yes", "no"]},
        {"type": "words"},
        {"type": "words", "min": -1},
        {"type": "words", "min": 1.5},
        {"type": "case", "is": "title"},
        {"type": "all", "checks": []},
        {"type": "all", "checks": ["json"]},
        {"type": "schema", "schema": {"$ref": "#/x"}},
        {"type": "schema", "schema": {"type": "thing"}},
        {"type": "schema", "schema": 7},
        {"type": "regex", "pattern": "("},
        {"type": "regex", "pattern": "x" * 300},
    ],
)
def test_a_check_that_makes_no_sense_is_refused(check):
    with pytest.raises(BadCheck):
        passed(check, "1")


def test_checks_nested_too_deep_are_refused():
    check = {"type": "json"}
    for _ in range(50):
        check = {"type": "all", "checks": [check]}
    with pytest.raises(BadCheck, match="levels"):
        passed(check, "1")


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"(a|aa)*b",
        r"(?:a|a)+$",
        r".*.*x",
        r"a*a*a*b",
        "a?" * 40 + "a" * 40,
        r"(a)\1",
        r"(?<=a)b",
        r"(?i:a)",
        r"a{1,3000}a{1,3000}b",
        r"[[]a+)+b",
    ],
)
def test_patterns_that_may_take_long_are_refused(pattern):
    with pytest.raises(BadCheck):
        passed({"type": "regex", "pattern": pattern}, "a" * 5000)


@pytest.mark.parametrize("pattern", [r"a*b", r"\Aa*a*b", r"(?:one|two) \w+ end", r"x{3}y?z?"])
def test_plain_patterns_are_let_through_and_end_soon(pattern):
    began = time.process_time()
    passed({"type": "regex", "pattern": pattern}, "a" * 100_000)
    assert time.process_time() - began < 10


HOSTILE = ["." * 70_000 + "x", "<<" + "a" * 70_000, "[" * 70_000, "*" * 70_000, "\n " * 35_000]
HOSTILE += ['{"a":' * 14_000, "1," * 35_000, "(" * 70_000 + "A)", "9" * 70_000, "'a" * 35_000]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_answer_makes_a_check_take_long(text):
    began = time.process_time()
    for check, _, _ in CASES:
        passed(check, text)
    assert time.process_time() - began < 20


# -- the bench's own data --------------------------------------------------------------------------


def test_references_become_checks_by_what_they_look_like():
    def kind(ref):
        return check_of({"source": "bbh", "ref": ref})["type"]

    assert [kind(r) for r in ("(C)", "-55", "No", "valid", "bate callous")] == [
        "choice",
        "number",
        "label",
        "label",
        "contains",
    ]
    assert check_of({"source": "gsm8k", "ref": "1,198"}) == {"type": "number", "value": 1198.0}
    assert check_of({"source": "truthfulqa", "ref": "Waugh"}) is None
    assert check_of({"source": "x", "target_words": 100})["max"] == 120
    assert check_of({"source": "x", "target_words": 5000}) is None


def test_instructions_become_checks_and_an_unknown_one_leaves_none():
    ids = ["length_constraints:number_words", "keywords:letter_frequency"]
    kwargs = [
        {"relation": "less than", "num_words": 150},
        {"let_relation": "at least", "letter": "l", "let_frequency": 15},
    ]
    check = check_of({"instruction_ids": ids, "instruction_kwargs": kwargs})
    assert check["checks"] == [
        {"type": "words", "max": 149},
        {"type": "letters", "min": 15, "letter": "l"},
    ]
    assert check_of({"instruction_ids": ["new:thing"], "instruction_kwargs": [{}]}) is None
    french = {"instruction_ids": ["language:response_language"]}
    assert check_of({**french, "instruction_kwargs": [{"language": "fr"}]}) is None
    assert check_of({**french, "instruction_kwargs": [{"language": "kn"}]})["name"] == "KANNADA"
