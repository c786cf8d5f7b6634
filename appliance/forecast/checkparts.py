"""What checks are made of: values read out of a check, and patterns that cannot take long."""

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

Check = Mapping[str, Any]

MOST_TEXTS = 64
MOST_CHARACTERS = 4096
"""Of one text in a check."""
MOST_PATTERN = 256
"""Characters of a pattern."""
MOST_STEPS = 50_000_000
"""Of a pattern over 4096 characters, at worst: about a second."""

_QUANTIFIER = re.compile(r"[*+?]|\{(\d*)(,?)(\d*)\}")


class BadCheck(ValueError):
    """A check that makes no sense. Says why."""


def text_of(check: Check, key: str) -> str:
    value = check.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= MOST_CHARACTERS:
        raise BadCheck(f"`{key}` must be a text of 1 to {MOST_CHARACTERS} characters")
    return value


def texts_in(check: Check, key: str) -> list[str]:
    """One text, or a list of them."""
    value = check.get(key)
    many = [value] if isinstance(value, str) else value
    if not isinstance(many, list | tuple) or not 0 < len(many) <= MOST_TEXTS:
        raise BadCheck(f"`{key}` must be 1 to {MOST_TEXTS} texts")
    return [text_of({key: one}, key) for one in many]


def number(check: Check, key: str, default: float | None = None) -> float:
    value = check.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadCheck(f"`{key}` must be a number")
    return float(value)


def whole(check: Check, key: str, default: int | None = None) -> int:
    """A whole number, not negative."""
    value = number(check, key, default)
    if value < 0 or value != int(value):
        raise BadCheck(f"`{key}` must be a whole number that is not negative")
    return int(value)


def within(check: Check, count: int) -> bool:
    """`min` <= count <= `max`; one of them, or `count` alone, must be there."""
    if "count" in check:
        return count == whole(check, "count")
    if "min" not in check and "max" not in check:
        raise BadCheck("`min`, `max` or `count` is missing")
    return whole(check, "min", 0) <= count and ("max" not in check or count <= whole(check, "max"))


@functools.lru_cache(maxsize=64)
def bounded(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled, if it cannot take long however it is met. Raises BadCheck.

    The engine of `re` goes back on its steps, so each repetition multiplies what it may take."""
    if len(pattern) > MOST_PATTERN:
        raise BadCheck(f"`pattern` is longer than {MOST_PATTERN} characters")
    if _steps(pattern) > MOST_STEPS:
        raise BadCheck(
            "`pattern` could take too long: repeat no group, and leave at most one `*` or `+` "
            "(two where it begins with \\A)"
        )
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadCheck(f"`pattern` is no regular expression: {error}") from error


def _steps(pattern: str) -> float:
    """How many steps a search may take at worst, roughly; infinite where that is not plain."""
    plain = re.sub(r"\\A", "^", pattern)
    if re.search(r"\\[1-9]|\(\?P=|\(\?[<(]", plain):
        return math.inf
    bare = re.sub(r"\\.", "x", plain)
    bare = re.sub(r"\[\^?\]?[^\]]*\]", "x", bare)
    bare = re.sub(r"\(\?(?:P<\w+>|[:=!])", "(", bare)
    if "[" in bare or "(?" in bare or re.search(r"\)[*+{]", bare):
        return math.inf
    steps = 1.0 if bare.startswith("^") and "|" not in bare else float(MOST_CHARACTERS)
    steps *= 1 + bare.count("|")
    for found in _QUANTIFIER.finditer(bare):
        steps *= _times(found)
    return steps


def _times(found: re.Match[str]) -> float:
    """In how many ways a repetition may match."""
    if found[0] in ("*", "+"):
        return MOST_CHARACTERS
    if found[0] == "?":
        return 2
    low, comma, high = found.groups()
    if not comma:
        return 1
    return min(float(high) if high else MOST_CHARACTERS, MOST_CHARACTERS) - float(low or 0) + 1
