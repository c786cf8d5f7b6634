"""What the words of a prompt tell of the length of its answer. Pure; English and Chinese.

Only the head and the tail of what the user said last are read, so that any prompt costs the same.
"""

import re
from collections.abc import Sequence
from math import log1p

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.askedlength import asked
from appliance.forecast.letters import Letters, letters
from appliance.forecast.question import Question, Turn
from appliance.forecast.taskwords import NAMES as TASKS
from appliance.forecast.taskwords import tasks

HEAD, TAIL = 900, 500
"""Characters of the last user turn that are read."""
TURNS = 64
"""Turns looked at, the last ones."""
CAP = 1e7
"""Tokens: no limit counts as more."""

_WORDS = re.compile(r"[a-z]+|[0-9][0-9,.]*")
_CODE = re.compile(r"```|\bdef |\bclass \w|\breturn\b|#include|\bimport \w|[;{}]\s*\n|</\w|=>|\(\)")
_CODE_SIGNS = ("```", "def ", "class ", "return", "#include", "import ", "</", "=>", "()")
_CODE_ENDS = (";", "{", "}")
"""What `_CODE` needs, looked for first: most texts have none of it."""
_CHOICES = tuple(re.compile(rf"[{one}](?<![^\s(（][{one}])[).、．:：]") for one in ("Aa", "Bb"))

_OPENERS = "is are am was were do does did can could will would should has have had may might"
_YES_NO = frozenset(_OPENERS.split())

NAMES: tuple[str, ...] = (
    "log_prompt", "log_max_tokens", "temperature", "top_p", "greedy", "ignore_eos", "chat_route",
    "format_text", "format_tools", "log_turns", "log_answers", "log_system", "log_last",
    "log_others", "log_mean_answer", "log_last_answer",
    "chinese", "kana_hangul", "other_letters", "symbols", "digits", "capitals", "log_lines",
    "log_words", "ends_question", "ends_colon", "ends_stop", "log_questions", "yes_no", "code",
    "choice", "asked_words", "asked_sentences", "asked_paragraphs", "asked_items", "asked_upper",
    "asked_lower",
    *(f"task_{name}" for name in TASKS),
)  # fmt: skip
"""Of the features, in order. Sizes are log(1 + n), texts' in characters; shares are 0..1."""


def lexical(question: Question) -> NDArray[np.float32]:
    """float32 [len(NAMES)]: finite, mostly within 0..10. Cost is bounded for any prompt."""
    turns = question.turns[-TURNS:]
    last = _last(turns)
    text = last if len(last) <= HEAD + TAIL else f"{last[:HEAD]}\n{last[-TAIL:]}"
    found = letters(text)
    values = (
        *_request(question),
        *_sizes(turns, last),
        *_shape(text, found),
        *_content(text, has_chinese=found.chinese > 0),
    )
    return np.array(values, dtype=np.float32)


def _last(turns: Sequence[Turn]) -> str:
    """What the user said last."""
    for turn in reversed(turns):
        if turn.role == "user":
            return turn.text
    return ""


def _within(value: float, most: float) -> float:
    """0 for what is no number."""
    return min(max(value, 0.0), most) if value == value else 0.0


def _request(question: Question) -> tuple[float, ...]:
    return (
        log1p(len(question.prompt)),
        log1p(min(max(question.max_tokens, 0), CAP)),
        _within(question.temperature, 2.0),
        _within(question.top_p, 1.0),
        question.temperature <= 0,
        question.ignore_eos,
        question.route == "chat",
        question.format == "text",
        question.format == "tools",
    )


def _sizes(turns: Sequence[Turn], last: str) -> tuple[float, ...]:
    answers, system, everything = list[int](), 0, 0
    for turn in turns:
        size = len(turn.text)
        everything += size
        if turn.role == "assistant":
            answers.append(size)
        elif turn.role == "system":
            system += size
    return (
        log1p(len(turns)),
        log1p(len(answers)),
        log1p(system),
        log1p(len(last)),
        log1p(everything - system - len(last)),
        log1p(sum(answers) / len(answers)) if answers else 0.0,
        log1p(answers[-1]) if answers else 0.0,
    )


def _shape(text: str, found: Letters) -> tuple[float, ...]:
    size = max(len(text), 1)
    end = text.rstrip()[-1:]
    return (
        found.chinese / size,
        found.kana_hangul / size,
        found.other / size,
        found.symbols / size,
        found.digits / size,
        found.capitals / size,
        log1p(text.count("\n")),
        log1p(text.count(" ")),
        end in "?？" if end else 0.0,
        end in ":：" if end else 0.0,
        end in ".。!！" if end else 0.0,
        log1p(text.count("?") + text.count("？")),
    )


def _content(text: str, *, has_chinese: bool) -> tuple[float, ...]:
    words = _WORDS.findall(text.lower())
    wanted = asked(words, text, has_chinese=has_chinese)
    return (
        (words[:1] != [] and words[0] in _YES_NO) or (has_chinese and "吗" in text),
        _has_code(text),
        _CHOICES[0].search(text) is not None and _CHOICES[1].search(text) is not None,
        *map(log1p, wanted.amounts),
        wanted.upper,
        wanted.lower,
        *tasks(frozenset(words), text if has_chinese else ""),
    )


def _has_code(text: str) -> bool:
    for sign in _CODE_SIGNS:
        if sign in text:
            return _CODE.search(text) is not None
    ends_a_line = "\n" in text and any(map(text.__contains__, _CODE_ENDS))
    return ends_a_line and _CODE.search(text) is not None
