"""What kinds of characters a text is made of, counted in one pass. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

_RANGES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "chinese": ((0x3400, 0x9FFF),),
    "kana_hangul": ((0x3040, 0x30FF), (0xAC00, 0xD7AF)),
    "other": ((0x00C0, 0x2FFF), (0xF900, 0xFDFF)),
    "symbols": ((0x200B, 0x200F), (0x2190, 0x2BFF), (0xFE00, 0xFE0F), (0x1F000, 0x1FAFF)),
    "digits": ((0x30, 0x39),),
    "capitals": ((0x41, 0x5A),),
    "unknown": ((0x80, 0x2FFF), (0xA000, 0xABFF), (0xF900, 0xFDFF), (0xFF10, 0xFF19),
                (0xFF21, 0xFF3A), (0x10000, 0x10FFFF)),
}  # fmt: skip
"""First and last code point. unknown: digits and capitals of other scripts may be there."""
_DIGITS = b"0123456789"
_CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_STARTS = sorted({0} | {at for ranges in _RANGES.values() for a, b in ranges for at in (a, b + 1)})
_KINDS = np.array(
    [[any(a <= start <= b for a, b in ranges) for ranges in _RANGES.values()] for start in _STARTS],
    dtype=np.int64,
)
"""[stretches, kinds]: whether a stretch of code points is of a kind."""
_INNER = np.array(_STARTS[1:], dtype=np.uint32)


class Letters(NamedTuple):
    """How many characters are of each kind; one may be of several."""

    chinese: int
    kana_hangul: int
    other: int
    symbols: int
    digits: int
    capitals: int


def letters(text: str) -> Letters:
    """Of a bounded text."""
    if text.isascii():
        raw = text.encode()
        digits = len(raw) - len(raw.translate(None, _DIGITS))
        return Letters(0, 0, 0, 0, digits, len(raw) - len(raw.translate(None, _CAPITALS)))
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    stretches = np.bincount(_INNER.searchsorted(codes, side="right"), minlength=len(_STARTS))
    *counts, unknown = (stretches @ _KINDS).tolist()
    found = Letters(*counts)
    if not unknown:
        return found
    return found._replace(digits=sum(map(str.isdigit, text)), capitals=sum(map(str.isupper, text)))
