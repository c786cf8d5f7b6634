"""Numbers with their units in few cells, bands, sparklines. `?` unknown, never 0; `-` none."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from tui.lines import columns as columns

UNKNOWN = "?"
NONE = "-"
_LEVELS = ".:-=+*#"
_BRAILLE = 0x2800
_DOTS = ((0x40, 0x44, 0x46, 0x47), (0x80, 0xA0, 0xB0, 0xB8))
"""Of a Braille cell: its left and its right column, filled from below to four heights."""


def number(value: float | None, digits: int = 3) -> str:
    """With that many significant digits, and no more places than help: `212`, `4.1`, `0.42`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size >= 10 ** (digits - 1) or value == int(value):
        return f"{value:.0f}"
    power = math.floor(math.log10(size))
    places = digits - 1 - power if power >= 0 else min(9, digits - 2 - power)
    return f"{value:.{places}f}"


def count(value: float | None, width: int = 6) -> str:
    """A whole number in at most `width` cells: `20000`, `1.84M`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:.0f}"
    for power, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        if len(text) <= width:
            return text
        text = f"{_short(value / power, width - 1)}{letter}"
    return text if len(text) <= width else f"{value:.0e}"


def _short(value: float, width: int) -> str:
    for places in (2, 1):
        text = f"{value:.{places}f}"
        if len(text) <= width:
            return text
    return f"{value:.0f}"


def scaled(value: float | None, unit: str) -> str:
    """`1.84 Mtok`, `612 tok`, `?`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= power:
            return f"{number(value / (1e3 if letter == 'k' else power))} {letter}{unit}"
    return f"{number(value)} {unit}"


def with_unit(value: float | None, unit: str, digits: int = 3) -> str:
    """`212 t/s`; `?` stands without a unit."""
    text = number(value, digits)
    return text if text == UNKNOWN else f"{text} {unit}"


def percent(value: float | None) -> str:
    """`61 %`, `0.02 %`."""
    return with_unit(value, "%", 2 if value is not None and abs(value) >= 1 else 3)


def duration(ms: float | None) -> str:
    """`910 ms`, `4.1 s`, `12.7 s`, `22 min`, `3.5 h`, `3 d`."""
    if ms is None or not math.isfinite(ms):
        return UNKNOWN
    if ms < 999.5:
        return f"{ms:.0f} ms"
    for size, unit, upto in ((1e3, "s", 12e4), (6e4, "min", 72e5), (36e5, "h", 1728e5)):
        if ms < upto:
            return f"{_places(ms / size)} {unit}"
    return f"{ms / 864e5:.0f} d"


def seconds(ms: float | None) -> str:
    """The bare number of seconds, for a column that names the unit: `0.2`, `41`, `5400`."""
    return UNKNOWN if ms is None or not math.isfinite(ms) else _places(ms / 1e3)


def _places(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 99.95 and value != int(value) else f"{value:.0f}"


def age(seconds: float | None) -> str:
    """`0.1s`, `42s`, `3min`, `2h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 120:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}min" if seconds < 7200 else f"{seconds / 3600:.0f}h"


def money(value: float | None) -> str:
    """Two places; a small amount shows its first digits: `0.0004`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0 or abs(value) >= 0.1:
        return f"{value:.2f}"
    return f"{value:.{min(9, 1 - math.floor(math.log10(abs(value))))}f}"


def bounds(lo: float | None, hi: float | None) -> str:
    """`>150`, `<2000`, `5-35`, `-`."""
    if lo is not None and hi is not None:
        return f"{number(lo)}-{number(hi)}"
    if lo is not None:
        return f">{number(lo)}"
    return NONE if hi is None else f"<{number(hi)}"


def outside(value: float | None, lo: float | None, hi: float | None) -> bool:
    """Whether a known value is beyond its band."""
    if value is None:
        return False
    return (lo is not None and value < lo) or (hi is not None and value > hi)


def band(value: float | None, lo: float | None, hi: float | None, width: int = 10) -> str:
    """`(==o==)..`: brackets the band, `o` now, `!` outside; unknown: no sign in it."""
    if (lo is None and hi is None) or width < 6:
        return " " * width
    first = 0 if lo is None else 1 if hi is not None else 2
    last = width - 3 if hi is not None else width
    signs = ["."] * width
    signs[first + 1 : last] = "=" * (last - first - 1)
    signs[first] = "("
    if hi is not None:
        signs[last] = ")"
    if value is not None and math.isfinite(value):
        at = _place(value, lo, hi, first, last, width)
        signs[at] = "!" if outside(value, lo, hi) else "o"
    return "".join(signs)


def _place(
    value: float, lo: float | None, hi: float | None, first: int, last: int, width: int
) -> int:
    """The cell of a value: inside the brackets, or among the dots beyond them."""
    if lo is not None and value < lo:
        return max(0, first - 1)
    if hi is not None and value > hi:
        return min(width - 1, last + 1 + (value > hi + (hi - (lo or 0.0)) / 2))
    low, inner = 0.0 if lo is None else lo, last - first - 1
    if hi is None:
        share = 1 - low / value if low > 0 else 0.5
    else:
        share = (value - low) / (hi - low) if hi > low else 0.5
    return first + 1 + min(inner - 1, int(min(1.0, max(0.0, share)) * inner))


def spark(values: Sequence[float | None], width: int, ascii: bool) -> str:
    """The values in `width` cells, oldest first, from 0 to their highest; unknown is a gap."""
    rows = plot(values, width, 1, ascii)
    return rows[0] if rows else ""


def centred(values: Sequence[float | None], width: int, ascii: bool) -> str:
    """A curve in one row whose zero is half way up."""
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    most = max(known, default=0.0) or 1.0
    lifted = [None if value is None else value + most for value in values]
    return plot(lifted, width, 1, ascii, top=2 * most)[0]


def plot(
    values: Sequence[float | None], width: int, height: int, ascii: bool, top: float | None = None
) -> list[str]:
    """A filled curve in `height` rows, the highest first; `top` is the value at its upper edge."""
    if width <= 0 or height <= 0:
        return [""] * max(0, height)
    return list(_drawn(tuple(values), width, height, ascii, top))


@lru_cache(maxsize=64)
def _drawn(
    values: tuple[float | None, ...], width: int, height: int, ascii: bool, top: float | None
) -> tuple[str, ...]:
    """Plots change once a second and are drawn more often."""
    points = _resampled(values, width if ascii else 2 * width)
    known = [abs(value) for value in points if value is not None]
    scale = top or max(known, default=0.0) or 1.0
    steps = (len(_LEVELS) if ascii else 4) * height
    filled = [_steps(value, scale, steps) for value in points]
    draw = _ascii_row if ascii else _braille_row
    return tuple(draw(filled, row) for row in reversed(range(height)))


def _steps(value: float | None, scale: float, steps: int) -> int:
    """How many steps of the column are filled; 0 for unknown, at least 1 else."""
    return 0 if value is None else min(steps, max(1, math.ceil(abs(value) / scale * steps)))


def _ascii_row(filled: Sequence[int], row: int) -> str:
    size = len(_LEVELS)
    return "".join(
        " " if part <= 0 else _LEVELS[min(part, size) - 1]
        for part in (steps - row * size for steps in filled)
    )


def _braille_row(filled: Sequence[int], row: int) -> str:
    signs = []
    for at in range(0, len(filled), 2):
        dots = 0
        for side, steps in zip(_DOTS, filled[at : at + 2], strict=True):
            part = min(4, steps - row * 4)
            dots |= side[part - 1] if part > 0 else 0
        signs.append(chr(_BRAILLE + dots) if dots else " ")
    return "".join(signs)


def _resampled(values: Sequence[float | None], slots: int) -> list[float | None]:
    """As many values as slots: means of neighbours, or gaps before the first."""
    known = [value if value is None or math.isfinite(value) else None for value in values]
    if len(known) <= slots:
        return [None] * (slots - len(known)) + known
    edges = [round(at * len(known) / slots) for at in range(slots + 1)]
    return [_mean(known[a:b]) for a, b in pairwise(edges)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def bar(share: float | None, width: int) -> str:
    """`[######....]`, `width` cells with its brackets."""
    inner = max(0, width - 2)
    if share is None or not math.isfinite(share):
        return f"[{'?' * min(1, inner):<{inner}}]"
    full = round(min(1.0, max(0.0, share)) * inner)
    return f"[{'#' * full}{'.' * (inner - full)}]"
