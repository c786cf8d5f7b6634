"""The mouse, where it is switched on: what a click or the wheel means, as keys.

Everything works without it. A click can do what a key can: name a screen in row 1, press a key of
row 24, put the cursor on a row, open the row that has it.
"""

import re
from collections.abc import Sequence

from tui.cells import cells
from tui.keymap import name_of
from tui.lines import Line, text_of
from tui.place import Place

WHEEL_ROWS = 3
_SCREEN = re.compile(r"([1-9])([> ]?\w|$)")
"""A screen as row 1 names it."""


def click(desk: Place, lines: Sequence[Line], x: int, y: int) -> None:
    """The left button at that cell of what `lines` shows."""
    if not 0 <= y < len(lines):
        return
    if y == len(lines) - 1:
        if key := key_at(lines[y], x):
            desk.typed(name_of(key))
    elif y == 0 and desk.box is None:
        if screen := screen_at(lines[y], x):
            desk.press(screen)
    elif desk.box is None and not desk.filtering:
        _row(desk, lines, y)


def wheel(desk: Place, step: int) -> None:
    """Down (1) or up (-1)."""
    for _ in range(WHEEL_ROWS):
        desk.press("down" if step > 0 else "up")


def screen_at(header: Line, x: int) -> str:
    """The number of the screen named there; empty: none."""
    at = _span_at(header, x)
    found = _SCREEN.match(header[at].text) if at is not None else None
    return found[1] if found else ""


def key_at(keys: Line, x: int) -> str:
    """The key of the hint there, as it is printed; empty: none."""
    at = _span_at(keys, x)
    if at is None:
        return ""
    if keys[at].role == "bold":
        return keys[at].text
    # On the word behind a key, and not on the blanks behind the word.
    start = sum(cells(span.text) for span in keys[:at])
    on_word = x < start + cells(keys[at].text.rstrip())
    return keys[at - 1].text if at and on_word and keys[at - 1].role == "bold" else ""


def _row(desk: Place, lines: Sequence[Line], y: int) -> None:
    """The cursor goes to the row that was clicked; where it is already, that is Enter."""
    table = desk.screen.table
    here = next((at for at, row in enumerate(lines) if _chosen(row)), None)
    if table is None or here is None:
        return
    if y == here:
        desk.press("enter")
        return
    target = table.at + y - here
    if 0 <= target < len(table.rows) and text_of(lines[y]).strip():
        table.move(target)


def _chosen(row: Line) -> bool:
    """Whether a table drew it as the row under its cursor."""
    return bool(row) and row[0].role == "select" and row[0].text.startswith(">")


def _span_at(row: Line, x: int) -> int | None:
    end = 0
    for at, span in enumerate(row):
        end += cells(span.text)
        if x < end:
            return at
    return None
