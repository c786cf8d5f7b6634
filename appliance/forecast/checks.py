"""Whether an answer is right, where that can be told without a judge. Pure and bounded.

A check is a JSON object with a `type` and what that type needs; docs/forecast.md lists them. The
instruction checks follow the meanings of IFEval (arXiv 2311.07911).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance.forecast.checkparts import (
    BadCheck,
    Check,
    bounded,
    number,
    text_of,
    texts_in,
    within,
)
from appliance.forecast.checkschema import conforms
from appliance.forecast.checktext import TEXT_CHECKS, unfenced

MOST = 65536
"""Characters of an answer that are looked at."""
DEEPEST = 4
"""Levels of `all` and `any`."""
MOST_CHECKS = 32
"""Of one `all` or `any`."""

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{1,20})?")
_LETTER = re.compile(
    r"\(([A-Z])\)|\b(?:answer|option|choice)\W{0,4}(?:is\W{0,4})?([A-Z])\b|^([A-Z])\b[.):]?"
)
_SPACE = re.compile(r"\s+")


def passed(check: Mapping[str, Any], text: str) -> bool:
    """Whether the answer does what the check asks. Raises BadCheck: the check makes no sense."""
    return _passed(check, text[:MOST].strip(), DEEPEST)


def _passed(check: Check, text: str, levels: int) -> bool:
    kind = text_of(check, "type")
    if kind in ("all", "any"):
        results = [_passed(part, text, levels - 1) for part in _parts(check, levels)]
        return all(results) if kind == "all" else any(results)
    found = _CHECKS.get(kind)
    if found is None:
        raise BadCheck(f"`{kind[:40]}` is no type of check: {', '.join(sorted(_CHECKS))}")
    return found(check, text)


def _parts(check: Check, levels: int) -> Sequence[Check]:
    parts = check.get("checks")
    if levels <= 1 or not isinstance(parts, list | tuple) or not 0 < len(parts) <= MOST_CHECKS:
        raise BadCheck(f"`checks` must be 1 to {MOST_CHECKS} checks, at most {DEEPEST} levels deep")
    if not all(isinstance(part, Mapping) for part in parts):
        raise BadCheck("every one of `checks` must be an object")
    return parts


def _number(check: Check, text: str) -> bool:
    """The last number of the answer is `value`, give or take `tolerance`."""
    wanted, off = number(check, "value"), number(check, "tolerance", 1e-6)
    found = _NUMBER.findall(text)
    return bool(found) and abs(float(found[-1].replace(",", "")) - wanted) <= off


def _exact(check: Check, text: str) -> bool:
    """The answer is one of `value`, but for case, spaces and the marks around it."""
    return _plain(text) in {_plain(one) for one in texts_in(check, "value")}


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip(" .!\"'`*“”。！").casefold()


def _choice(check: Check, text: str) -> bool:
    """The last letter that the answer chooses is `value`: (B), "answer is B", or "B" first."""
    letters = [next(filter(None, found)) for found in _LETTER.findall(text)]
    return bool(letters) and letters[-1] == text_of(check, "value").strip("()").upper()


def _label(check: Check, text: str) -> bool:
    """Of the words `among`, `value` is the last that the answer says."""
    value, among = text_of(check, "value"), texts_in(check, "among")
    if value not in among:
        raise BadCheck("`value` must be one of `among`")
    choices = "|".join(re.escape(one) for one in sorted(among, key=len, reverse=True))
    found = re.findall(rf"(?<!\w)(?:{choices})(?!\w)", text, re.IGNORECASE)
    return bool(found) and found[-1].casefold() == value.casefold()


def _json(check: Check, text: str) -> bool:
    """The answer, or the one code block that it is, is JSON."""
    return _parsed(text) is not _NOTHING


def _schema(check: Check, text: str) -> bool:
    """As `json`, and it fits `schema` (the keywords of `checkschema`)."""
    value = _parsed(text)
    schema = check.get("schema")
    if not isinstance(schema, Mapping | bool):
        raise BadCheck("`schema` must be a JSON schema")
    return conforms(schema, value) and value is not _NOTHING


_NOTHING = object()


def _parsed(text: str) -> Any:
    try:
        return json.loads(unfenced(text), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NOTHING


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _regex(check: Check, text: str) -> bool:
    """`pattern` is found in the first 4096 characters; patterns that may take long are refused."""
    return bounded(text_of(check, "pattern")).search(text[:4096]) is not None


def _words(check: Check, text: str) -> bool:
    """`min` to `max` words, a Chinese or Japanese character counting as one."""
    return within(check, len(re.findall(r"[一-鿿぀-ヿ]|[^\W一-鿿぀-ヿ]+(?:['’-]\w+)*", text)))


_CHECKS: dict[str, Callable[[Check, str], bool]] = {
    "number": _number,
    "exact": _exact,
    "choice": _choice,
    "label": _label,
    "json": _json,
    "schema": _schema,
    "regex": _regex,
    "words": _words,
    **TEXT_CHECKS,
}
TYPES = frozenset({"all", "any", *_CHECKS})
"""Every type of check."""
