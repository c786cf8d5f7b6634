"""How long an answer the prompt asks for: "in 3 sentences", "不超过两百字", "five ideas". Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from appliance.forecast.wordnumbers import CHINESE, chinese, english, numbers

REACH = 3
"""Words between a number and what it counts, at most: `3 very short poems`."""
MOST_MENTIONS = 16
"""Numbers looked at in one prompt."""
MOST_ITEMS = 200

WORDS, SENTENCES, PARAGRAPHS, ITEMS = range(4)

_ENGLISH = {
    **dict.fromkeys(("word", "words"), WORDS),
    **dict.fromkeys(("character", "characters", "letters"), WORDS),
    **dict.fromkeys(("sentence", "sentences", "line", "lines"), SENTENCES),
    **dict.fromkeys(("paragraph", "paragraphs", "page", "pages", "sections"), PARAGRAPHS),
    **dict.fromkeys(("bullet", "bullets", "points", "items", "ideas", "steps", "tips"), ITEMS),
    **dict.fromkeys(("examples", "ways", "reasons", "questions", "titles", "names"), ITEMS),
}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NOT_ITEMS = _set(
    """years months weeks days hours minutes seconds dollars cents euros pounds miles feet inches
    meters metres kilometers percent degrees times plus minus is has was this children students
    people"""
)
_LISTING = _set(
    "list give suggest provide generate write name create recommend tell come make find"
)
_UPPER = _set("most under within maximum max below fewer less limit exceed exceeding")
_LOWER = _set("least minimum over above")
_NOT = _set("no not")

_CHINESE_UNITS = {
    **dict.fromkeys("字词", WORDS),
    **dict.fromkeys(("句", "行"), SENTENCES),
    **dict.fromkeys(("段", "页", "章"), PARAGRAPHS),
    **dict.fromkeys("个条点种项篇首道步", ITEMS),
}
# It begins with the number, so that the search runs from one numeral to the next.
_CHINESE = re.compile(
    rf"(?P<number>[0-9０-９{CHINESE}](?<![第{CHINESE}0-9.].)[0-9０-９,{CHINESE}]{{0,12}})"
    r"\s?(?:多|来|余|左右)?个?(?P<unit>[字词句行段页章条点种项篇首道步]|(?<=个))"
    r"(?:符|子|话)?(?P<after>以内|以下|之内|左右|以上)?"
)
_BOUNDS = ("不超过", "不多于", "不少于", "少于", "最多", "以内", "至少", "超过")
"""Right before a number; the longer ones first, which hold shorter ones."""
_CHINESE_UPPER = frozenset(("不超过", "不多于", "少于", "最多", "以内", "以下", "之内"))
_CHINESE_LOWER = frozenset(("至少", "不少于", "超过", "以上"))


@dataclass(slots=True)
class Asked:
    """What was asked for; 0: nothing said."""

    amounts: list[float]
    """Words (or 字), sentences, paragraphs, items: the largest of each."""
    upper: bool = False
    """At most that."""
    lower: bool = False
    """At least that."""

    def note(self, kind: int, number: float) -> None:
        if number >= 1 and (kind != ITEMS or (number <= MOST_ITEMS and number % 1 == 0)):
            self.amounts[kind] = max(self.amounts[kind], number)


def asked(words: Sequence[str], text: str, *, has_chinese: bool) -> Asked:
    """`words` are those of `text` in lower case, numbers among them."""
    found = Asked([0.0] * 4)
    _from_english(words, found)
    if has_chinese:
        _from_chinese(text, found)
    return found


def _from_english(words: Sequence[str], found: Asked) -> None:
    places = numbers(words)
    if not places:
        return
    listing = not _LISTING.isdisjoint(words)
    ends = [at for at, after in zip_longest(places, places[1:]) if after != at + 1]
    for at in ends[:MOST_MENTIONS]:
        kind = _counted(words[at + 1 : at + 1 + REACH], listing)
        number = english(words[max(0, at - 5) : at + 1])
        if kind is not None and number is not None:
            found.note(kind, number)
            _bounds(words[max(0, at - 5) : at], found)


def _bounds(before: Sequence[str], found: Asked) -> None:
    upper, denied = not _UPPER.isdisjoint(before), not _NOT.isdisjoint(before)
    less = "less" in before or "fewer" in before
    found.upper |= upper and not (denied and less)
    found.lower |= not _LOWER.isdisjoint(before) or (denied and less)


def _counted(after: Sequence[str], listing: bool) -> int | None:
    """What the number counts, from the words after it."""
    for word in after:
        kind = _ENGLISH.get(word)
        if kind is not None:
            return kind
        if word in _NOT_ITEMS:
            return None
        if listing and len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
            return ITEMS
    return None


def _from_chinese(text: str, found: Asked) -> None:
    done = 0
    for match in islice(_CHINESE.finditer(text), MOST_MENTIONS):
        start, number = match.start(), chinese(match["number"])
        before = next((bound for bound in _BOUNDS if text.endswith(bound, done, start)), None)
        done = match.end()
        # 一个, 一种, 一点 mean "a": only from two on are things counted.
        kind = _CHINESE_UNITS.get(match["unit"] or "个", ITEMS)
        if number is None or (kind == ITEMS and number < 2):
            continue
        found.note(kind, number)
        bounds = {before, match["after"]}
        found.upper |= not _CHINESE_UPPER.isdisjoint(bounds)
        found.lower |= not _CHINESE_LOWER.isdisjoint(bounds)
