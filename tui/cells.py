"""How many terminal cells a sign takes, and which signs may be shown at all.

Only ASCII, Braille and Wide or Fullwidth signs are drawn: every terminal agrees on their width.
East-Asian-ambiguous ones (box lines, arrows, the degree sign) are double in some Chinese terminals,
so of those only letters of foreign text are shown, and only where the console speaks English.
"""

import unicodedata
from functools import lru_cache

_BRAILLE = range(0x2800, 0x2900)
_JOINING = (range(0x1100, 0x1200), range(0xA960, 0xA980), range(0xD7B0, 0xD800))
"""Hangul parts: terminals join them, or do not."""
_SKIN = range(0x1F3FB, 0x1F400)
"""Emoji modifiers: terminals merge them with the sign before, or do not."""
_WIDE = ("W", "F")
_LEFT_TO_RIGHT = ("L", "EN", "ES", "ET", "CS", "ON")


@lru_cache(maxsize=8192)
def drawn(sign: str) -> bool:
    """Whether every terminal gives the sign the width that `cell` says."""
    code = ord(sign)
    if code < 0x7F:
        return code >= 0x20
    if code in _BRAILLE:
        return True
    return unicodedata.east_asian_width(sign) in _WIDE and _stands_alone(sign)


@lru_cache(maxsize=8192)
def letter(sign: str) -> bool:
    """A letter, digit or punctuation of a left-to-right script, one cell wide where the terminal
    is not a Chinese one."""
    if ord(sign) >= 0x10000 or not _stands_alone(sign):
        return False
    if unicodedata.east_asian_width(sign) in _WIDE:
        return False
    if unicodedata.category(sign)[0] not in "LNP" and sign not in "°±×÷€£§":
        return False
    return unicodedata.bidirectional(sign) in _LEFT_TO_RIGHT


def _stands_alone(sign: str) -> bool:
    """False: a mark on its neighbour, a control, or no sign at all."""
    code = ord(sign)
    if code in _SKIN or any(code in part for part in _JOINING):
        return False
    return unicodedata.category(sign)[0] not in "CM" and sign not in "\u2028\u2029\u3164\uffa0"


@lru_cache(maxsize=8192)
def cell(sign: str) -> int:
    """1 or 2."""
    return 2 if ord(sign) >= 0x1100 and unicodedata.east_asian_width(sign) in _WIDE else 1


def cells(text: str) -> int:
    """How many cells clean text takes."""
    return len(text) if text.isascii() else _cells(text)


@lru_cache(maxsize=4096)
def _cells(text: str) -> int:
    """Most lines are the same in the next drawing."""
    return sum(map(cell, text))


def clip(text: str, width: int) -> str:
    """As much of the text's beginning as fits; never half of a wide sign."""
    if text.isascii():
        return text[: max(0, width)]
    if cells(text) <= width:
        return text
    used = 0
    for at, sign in enumerate(text):
        used += cell(sign)
        if used > width:
            return text[:at]
    return text


def skip(text: str, width: int) -> str:
    """The text without its first `width` cells; a blank stands for half a wide sign."""
    if text.isascii():
        return text[max(0, width) :]
    used = 0
    for at, sign in enumerate(text):
        if used >= width:
            return " " * (used - width) + text[at:]
        used += cell(sign)
    return " " * max(0, used - width)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` cells: cut, or filled with blanks (in front, with `right`)."""
    cut = clip(text, width)
    blanks = " " * (width - cells(cut))
    return blanks + cut if right else cut + blanks


def foreign(text: str, *, letters: bool = False) -> str:
    r"""Text of others as text: what could act on a terminal or has no sure width shows as `\x1b`.

    With `letters`, letters of other left-to-right scripts stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(sign if _shown(sign, letters) else _escape(sign) for sign in text)


def _shown(sign: str, letters: bool) -> bool:
    return drawn(sign) or (letters and letter(sign))


def _escape(sign: str) -> str:
    code = ord(sign)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
