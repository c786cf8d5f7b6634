"""What a request has generated, drawn against what was forecast for it. Pure.

`(` p10, `|` p50, `)` p90, `#` generated, `!` past the p90, which stands in the same cell of every
bar, so that bars compare down a column.
"""

WIDTH = 15
_PAST = 2
"""Cells behind the p90."""


def expected(
    generated: int | None, p10: int | None, p50: int | None, p90: int | None, width: int = WIDTH
) -> str:
    """The bar, in `width` cells; `-` where nothing was forecast."""
    if not p90 or p90 < 0:
        return "-".ljust(width)
    end = width - _PAST - 1
    cells = ["#"] * _filled(generated or 0, p90, end, width)
    cells += ["."] * (width - len(cells))
    for sign, value in (("(", p10), ("|", p50), (")", p90)):
        if value is not None:
            cells[_place(value, p90, end)] = sign
    if generated is not None and generated > p90:
        cells[_filled(generated, p90, end, width) - 1] = "!"
    return "".join(cells)


def _place(value: int, p90: int, end: int) -> int:
    """The cell of a forecast; none is behind the p90's."""
    return max(0, min(end, value * end // p90))


def _filled(generated: int, p90: int, end: int, width: int) -> int:
    if generated > p90:
        return max(end + 2, min(width, generated * end // p90 + 1))
    return min(end, -(-generated * end // p90))
