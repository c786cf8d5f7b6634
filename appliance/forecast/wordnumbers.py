"""Numbers as people write them, in digits and in words, English and Chinese. Pure."""

from collections.abc import Sequence

LARGEST = 1_000_000
"""Larger numbers count as this: nobody is answered in more words."""

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {
    **{word: number for number, word in enumerate(_UNITS.split())},
    **{word: 10 * number for number, word in enumerate(_TENS.split(), start=2)},
    "single": 1,
    "both": 2,
    "pair": 2,
    "couple": 2,
    "few": 3,
    "several": 5,
}
_FACTORS = {"dozen": 12, "hundred": 100, "thousand": 1000, "k": 1000, "million": 1_000_000}
_ONE = {"a", "an"}
_JOINING = {"and", "of"}
NUMBER_WORDS = frozenset({*_SMALL, *_FACTORS})

_DIGITS = {
    **{char: number for number, char in enumerate("〇一二三四五六七八九")},
    **{char: number for number, char in enumerate("零壹贰叁肆伍陆柒捌玖")},
    "两": 2,
    "俩": 2,
    "几": 5,
}
_POWERS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_MYRIAD = {"万": 10_000, "萬": 10_000}
CHINESE = "".join((*_DIGITS, *_POWERS, *_MYRIAD))
"""The characters that a Chinese number is written with, digits aside."""


def digits(word: str) -> float | None:
    """`250`, `1,500`, `2.5`; None for anything else. At most LARGEST."""
    plain = word.replace(",", "").rstrip(".")
    if not plain.replace(".", "", 1).isdecimal() or len(plain) > 16:
        return None
    return min(float(plain), LARGEST)


def is_number(word: str) -> bool:
    """It may be part of an English number."""
    return word in NUMBER_WORDS or word[:1].isdecimal()


def numbers(words: Sequence[str]) -> list[int]:
    """The places of all that may be part of an English number."""
    return [at for at, word in enumerate(words) if word in NUMBER_WORDS or word[:1].isdecimal()]


def english(words: Sequence[str]) -> float | None:
    """The number that the words, in lower case, end with: `about two hundred and fifty` is 250,
    `half a dozen` 6. None when the last word is none.
    """
    start = len(words)
    while start and (is_number(words[start - 1]) or words[start - 1] in _JOINING | _ONE):
        start -= 1
    found = _spelled(words[start:])
    half = found is not None and start > 0 and words[start - 1] == "half"
    return found / 2 if found is not None and half else found


def _spelled(words: Sequence[str]) -> float | None:
    """All of the words; digits begin anew, so of `3 5` the last counts."""
    total, current, seen = 0.0, 0.0, False
    for word in words:
        number = digits(word)
        if number is not None:
            total, current, seen = 0.0, number, True
        elif word in _FACTORS:
            current = max(current, 1.0) * _FACTORS[word]
            if _FACTORS[word] >= 1000:
                total, current = total + current, 0.0
            seen = True
        elif word in _SMALL:
            current, seen = current + _SMALL[word], True
    return min(total + current, LARGEST) if seen else None


def chinese(text: str) -> float | None:
    """`两百` is 200, `一千五` 1500, `十二` 12, `3万` 30000, `800` 800; None for anything else."""
    if not text or len(text) > 16:
        return None
    lead = len(text) - len(text.lstrip("0123456789０１２３４５６７８９,."))
    number = digits(text[:lead]) if lead else 1.0
    if number is None or not lead:
        return _characters(text)
    for char in text[lead:]:
        factor = _POWERS.get(char) or _MYRIAD.get(char)
        if factor is None:
            return None
        number *= factor
    return min(number, LARGEST)


def _characters(text: str) -> float | None:
    total, section, current, last = 0, 0, 0, 1
    for char in text:
        if char in _DIGITS:
            current = _DIGITS[char]
        elif char in _POWERS:
            last = _POWERS[char]
            section, current = section + (current or 1) * last, 0
        elif char in _MYRIAD:
            last = _MYRIAD[char]
            total, section, current = (section + current or 1) * last, 0, 0
        else:
            return None
    # 一千五 leaves the hundred unsaid; 一百零五 says that it means the units.
    unsaid = current and last > 10 and not {"零", "〇"} & set(text)
    return float(min(total + section + (current * last // 10 if unsaid else current), LARGEST))
