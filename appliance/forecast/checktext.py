"""Checks of how an answer is written: counts, words, case, marks, layout."""

import re
import unicodedata
from collections.abc import Callable

from appliance.forecast.checkparts import BadCheck, Check, text_of, texts_in, whole, within

_FENCE = re.compile(r"\A```[A-Za-z0-9_+-]*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
_SENTENCE = re.compile(r"[.!?](?=[\s\"'”’)*.!?]|\Z)|[。！？]|\n\s*\n")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_BULLET = re.compile(r"^[ \t]*[-*][ \t]+\S", re.MULTILINE)
_HIGHLIGHT = re.compile(r"\*[^*\n]+\*")
_STARS = re.compile(r"\s?\*\*\*\s?")
_SCRIPT_SHARE = 0.6
"""Of the letters, to be written in a script."""


def unfenced(text: str) -> str:
    """What is inside, where the whole answer is one code block."""
    found = _FENCE.match(text.strip())
    return found[1] if found else text


def _sentences(check: Check, text: str) -> bool:
    """`min` to `max` sentences."""
    return within(check, sum(bool(_WORD.search(part)) for part in _SENTENCE.split(text)))


def _paragraphs(check: Check, text: str) -> bool:
    """`min` to `max` paragraphs, parted by empty lines, or by `***` where `stars` is true."""
    parts = _STARS.split(text) if check.get("stars") else re.split(r"\n\s*\n", text)
    return within(check, sum(bool(part.strip()) for part in parts))


def _paragraph_word(check: Check, text: str) -> bool:
    """Paragraph `nth` begins with the word `word`."""
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    nth = whole(check, "nth")
    if not 1 <= nth <= len(parts):
        return False
    first = _WORD.search(parts[nth - 1])
    return first is not None and first[0].casefold() == text_of(check, "word").casefold()


def _contains(check: Check, text: str) -> bool:
    """All of `words` are in it, whatever their case."""
    return all(word.casefold() in text.casefold() for word in texts_in(check, "words"))


def _forbidden(check: Check, text: str) -> bool:
    """None of `words` is in it as a word of its own; marks, such as a comma, anywhere."""
    return not any(_times(word, text) for word in texts_in(check, "words"))


def _frequency(check: Check, text: str) -> bool:
    """`word` is in it `min` to `max` times, also within other words."""
    return within(check, text.casefold().count(text_of(check, "word").casefold()))


def _times(word: str, text: str) -> int:
    left = r"(?<!\w)" if word[:1].isalnum() and word.isascii() else ""
    right = r"(?!\w)" if word[-1:].isalnum() and word.isascii() else ""
    return len(re.findall(left + re.escape(word) + right, text, re.IGNORECASE))


def _letters(check: Check, text: str) -> bool:
    """The character `letter` is in it `min` to `max` times, whatever its case."""
    return within(check, text.lower().count(text_of(check, "letter").lower()))


def _case(check: Check, text: str) -> bool:
    """Every letter that has a case is `upper` or `lower`, as `is` says, and there is one."""
    wanted = text_of(check, "is")
    if wanted not in ("upper", "lower"):
        raise BadCheck("`is` must be `upper` or `lower`")
    return text.isupper() if wanted == "upper" else text.islower()


def _capitals(check: Check, text: str) -> bool:
    """`min` to `max` words are in capitals."""
    return within(check, sum(word.isupper() for word in _WORD.findall(text)))


def _starts(check: Check, text: str) -> bool:
    """It begins with `text`, whatever the case."""
    return text.casefold().startswith(text_of(check, "text").strip().casefold())


def _ends(check: Check, text: str) -> bool:
    """It ends with `text`, whatever the case; quotation marks around the answer do not count."""
    return text.strip('"').strip().casefold().endswith(text_of(check, "text").strip().casefold())


def _quoted(check: Check, text: str) -> bool:
    """The whole of it stands in double quotation marks."""
    return len(text) > 1 and text[0] in '"“' and text[-1] in '"”'


def _title(check: Check, text: str) -> bool:
    """There is a title in double angle brackets."""
    return any(_WORD.search(found) for found in re.findall(r"<<([^<>\n]+)>>", text))


def _highlights(check: Check, text: str) -> bool:
    """`min` to `max` parts between asterisks."""
    return within(check, len(_HIGHLIGHT.findall(text.replace("**", "*"))))


def _bullets(check: Check, text: str) -> bool:
    """`min` to `max` list items that begin with `*` or `-`."""
    return within(check, len(_BULLET.findall(text)))


def _placeholders(check: Check, text: str) -> bool:
    """`min` to `max` placeholders in square brackets."""
    return within(check, len(re.findall(r"\[[^\[\]\n]+\]", text)))


def _sections(check: Check, text: str) -> bool:
    """`min` to `max` sections that begin with `word` and a number."""
    marker = re.escape(text_of(check, "word"))
    return within(check, len(re.findall(rf"{marker}\s{{0,4}}\d+", text, re.IGNORECASE)))


def _responses(check: Check, text: str) -> bool:
    """`count` different answers, parted by six asterisks."""
    parts = [part.strip() for part in text.split("******") if part.strip()]
    return len(parts) == len(set(parts)) == whole(check, "count")


def _script(check: Check, text: str) -> bool:
    """Most letters are of the script that `name` says, as Unicode names them: HAN, KANNADA..."""
    wanted = text_of(check, "name").upper()
    letters = [char for char in text if char.isalpha()]
    return sum(_script_of(char) == wanted for char in letters) > _SCRIPT_SHARE * len(letters)


def _script_of(char: str) -> str:
    first = unicodedata.name(char, "?").split()[0]
    return "HAN" if first == "CJK" else first


TEXT_CHECKS: dict[str, Callable[[Check, str], bool]] = {
    "sentences": _sentences,
    "paragraphs": _paragraphs,
    "paragraph_word": _paragraph_word,
    "contains": _contains,
    "forbidden": _forbidden,
    "frequency": _frequency,
    "letters": _letters,
    "case": _case,
    "capitals": _capitals,
    "starts": _starts,
    "ends": _ends,
    "quoted": _quoted,
    "title": _title,
    "highlights": _highlights,
    "bullets": _bullets,
    "placeholders": _placeholders,
    "sections": _sections,
    "responses": _responses,
    "script": _script,
}
