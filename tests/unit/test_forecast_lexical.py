"""What the words of a prompt tell: numbers as people write them, tasks, sizes, and bad input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.forecast.letters import letters
from appliance.forecast.lexical import HEAD, NAMES, TAIL, lexical
from appliance.forecast.question import Question, Turn
from appliance.forecast.wordnumbers import LARGEST, chinese, english


def asking(text: str, **others: Any) -> Question:
    turns = (*others.pop("before", ()), Turn("user", text))
    return Question(turns=turns, prompt=(1, 2, 3), **others)


def features(text: str, **others: Any) -> dict[str, float]:
    return dict(zip(NAMES, map(float, lexical(asking(text, **others))), strict=True))


def amount(text: str, unit: str) -> float:
    return round(float(np.expm1(features(text)[f"asked_{unit}"])))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("about two hundred and fifty", 250),
        ("half a dozen", 6),
        ("a dozen", 12),
        ("1,500", 1500),
        ("a couple of", 2),
        ("two thousand five hundred", 2500),
        ("two million three hundred thousand", LARGEST),
        ("12345678901234567890", None),
        ("hello", None),
        ("a", None),
        ("", None),
    ],
)
def test_english_numbers_are_read(text: str, number: float | None) -> None:
    assert english(text.split()) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("两百", 200),
        ("一千五", 1500),
        ("一百零五", 105),
        ("十二", 12),
        ("二十", 20),
        ("3万", 30000),
        ("一万五千", 15000),
        ("３００", 300),
        ("百", 100),
        ("千万", LARGEST),
        ("一二三x", None),
        ("", None),
        ("1" * 20, None),
    ],
)
def test_chinese_numbers_are_read(text: str, number: float | None) -> None:
    assert chinese(text) == number


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("Explain tides in 3 sentences.", "sentences", 3),
        ("Write a 500-word essay on tides.", "words", 500),
        ("Describe it in two hundred and fifty words", "words", 250),
        ("Give me a dozen ideas for a party", "items", 12),
        ("Suggest five wonderful places in Rome", "items", 5),
        ("Use exactly four short paragraphs.", "paragraphs", 4),
        ("Answer in one paragraph", "paragraphs", 1),
        ("List 3 bullet points", "items", 3),
        ("写一篇不超过两百字的短文", "words", 200),
        ("写一篇800字左右的作文", "words", 800),
        ("用三句话介绍北京", "sentences", 3),
        ("分五段说明", "paragraphs", 5),
        ("列出10个要点", "items", 10),
        ("He was 12 years old and had 30 dollars. What is the list?", "items", 0),
        ("慈善法第八十一条的内容是什么", "items", 0),
        ("给我一个建议", "items", 0),
    ],
)
def test_lengths_asked_for_become_numbers(text: str, unit: str, number: float) -> None:
    assert amount(text, unit) == number


@pytest.mark.parametrize(
    ("text", "upper", "lower"),
    [
        ("Use at most 50 words", 1, 0),
        ("in less than 6 sentences", 1, 0),
        ("no less than 2000 words", 0, 1),
        ("at least 800 words", 0, 1),
        ("in 40 words", 0, 0),
        ("不超过200字", 1, 0),
        ("200字以内", 1, 0),
        ("不少于1500字", 0, 1),
        ("400字以上", 0, 1),
    ],
)
def test_bounds_are_told_apart(text: str, upper: float, lower: float) -> None:
    found = features(text)
    assert (found["asked_upper"], found["asked_lower"]) == (upper, lower)


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("Why is the sky blue?", "task_why"),
        ("为什么天空是蓝色的？", "task_why"),
        ("Summarise this text", "task_shorten"),
        ("请翻译成英文：你好", "task_translate"),
        ("Write a poem about rain", "task_write"),
        ("写一首诗", "task_write"),
        ("Write a Python function", "task_code"),
        ("def add(a, b):\n    return a", "code"),
        ("Is water wet?", "yes_no"),
        ("水是湿的吗？", "yes_no"),
        ("Which?\nA) one\nB) two", "choice"),
        ("Is it so?", "ends_question"),
    ],
)
def test_tasks_and_shapes_are_seen_in_both_languages(text: str, feature: str) -> None:
    assert features(text)[feature] == 1
    assert features("The cat sat on the mat.")[feature] == 0


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        ("Ab 12", "digits", 2),
        ("Ab 12", "capitals", 1),
        ("我有12个 Apple", "digits", 2),
        ("我有12个 Apple", "capitals", 1),
        ("我有12个 Apple", "chinese", 3),
        ("１２ Ⅻ É", "digits", 2),
        ("１２ Ⅻ É", "capitals", 2),
        ("ひらカナ 한글", "kana_hangul", 6),
        ("naïve Привет", "other", 7),
        ("a → 👩\u200b", "symbols", 3),
        ("half \ud83d", "digits", 0),
        ("", "capitals", 0),
    ],
)
def test_characters_are_counted_by_kind(text: str, kind: str, count: int) -> None:
    assert getattr(letters(text), kind) == count


@given(st.text(max_size=60))
def test_digits_and_capitals_are_those_of_python(text: str) -> None:
    found = letters(text)
    assert found.digits == sum(map(str.isdigit, text))
    assert found.capitals == sum(map(str.isupper, text))


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("A) one B) two", 1),
        ("is it (a: yes or (b: no", 1),
        ("xA) one yB) two", 0),
        ("A) one", 0),
        ("A、甲\nB、乙", 1),
    ],
)
def test_choices_are_seen_at_the_start_of_a_word_alone(text: str, seen: float) -> None:
    assert features(text)["choice"] == seen


@pytest.mark.parametrize("text", ["x = {\n", "a;  \nb", "f() and g", "#include <x>", "a </b>"])
def test_code_is_seen_by_its_signs(text: str) -> None:
    assert features(text)["code"] == 1


@pytest.mark.parametrize("text", ["{a}", "import", "a; b", "returned", "undef x", "subclass"])
def test_what_only_looks_like_code_is_none(text: str) -> None:
    assert features(text)["code"] == 0


def test_a_conversation_tells_how_long_its_answers_are() -> None:
    before = (
        Turn("system", "Be kind."),
        Turn("user", "Hello"),
        Turn("assistant", "x" * 99),
    )
    found = features("And now?", before=before)
    assert found["log_last_answer"] == found["log_mean_answer"] == pytest.approx(np.log(100))
    assert found["log_answers"] == pytest.approx(np.log(2))
    assert found["log_system"] == pytest.approx(np.log(9))
    assert found["log_others"] == pytest.approx(np.log1p(104))


def test_the_request_itself_is_seen() -> None:
    found = features("x", max_tokens=99, temperature=0.0, top_p=0.5, format="tools", route="text")
    assert found["log_max_tokens"] == pytest.approx(np.log(100))
    assert (found["greedy"], found["top_p"], found["temperature"]) == (1, 0.5, 0)
    assert (found["format_tools"], found["format_text"], found["chat_route"]) == (1, 0, 0)


HOSTILE = {
    "empty": "",
    "long": "write five hundred words please " * 40_000,
    "emoji and zero-width runs": "😀\u200b\ufe0f" * 100_000,
    "lone surrogates": "\ud800\udfff" * 10_000,
    "an unknown language": "ཨོཾ་མ་ཎི་པདྨེ་ཧཱུྃ " * 100,
    "digits": "1 2 3 " * 100_000,
    "commas": "1,1,1,1" * 100_000,
    "chinese numbers": "一二三四五六七八九十百千万" * 50_000,
    "blanks": " \n" * 500_000,
    "brackets": "([{<" * 200_000,
    "choices": "A) " * 200_000,
    "controls": "\0\x1b[31m" * 10_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_gives_finite_features_within_bounds(name: str) -> None:
    found = lexical(asking(HOSTILE[name]))
    assert found.dtype == np.float32
    assert found.shape == (len(NAMES),)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 20


def test_of_a_long_text_only_head_and_tail_are_read() -> None:
    middle = "in 3 sentences, 不超过两百字 ```def f():``` why? "
    ours, others = ("a" * HEAD + " " + part * 1000 + "z" * TAIL for part in (middle, "m" * 36))
    assert len(ours) - 1000 * len(middle) == len(others) - 1000 * 36
    skipped = NAMES.index("log_last")
    found, expected = lexical(asking(ours)), lexical(asking(others))
    np.testing.assert_array_equal(np.delete(found, skipped), np.delete(expected, skipped))


def test_numbers_that_are_none_leave_no_trace() -> None:
    found = lexical(asking("x", temperature=float("nan"), top_p=float("inf"), max_tokens=-5))
    assert np.isfinite(found).all()


def test_no_turn_and_no_token_is_a_question_too() -> None:
    assert np.isfinite(lexical(Question(turns=(), prompt=()))).all()


def test_ten_thousand_turns_cost_what_the_last_ones_do() -> None:
    turns = (Turn("user", "hello"), Turn("assistant", "hi")) * 5_000
    found = lexical(Question(turns=turns, prompt=tuple(range(100_000))))
    assert found[NAMES.index("log_turns")] == pytest.approx(np.log(65))
