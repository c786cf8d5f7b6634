"""Text while it is typed: one line or several, any signs, a cursor. Knows no terminal.

The cursor stands between code points; what cannot be drawn shows escaped and is deleted whole.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tui.cells import cells
from tui.lines import Line, Span, fill, line

Clean = Callable[[str], str]
"""Makes text of others drawable: `View.foreign`."""


@dataclass(slots=True)
class _Row:
    """One row as it is drawn."""

    start: int
    """The place of its first sign in the text."""
    signs: list[str]
    goes_on: bool = False
    """The next row is of the same line."""

    def cell(self, at: int) -> int:
        """Where the sign at that place of the text begins."""
        return sum(cells(sign) for sign in self.signs[: at - self.start])

    def nearest(self, cell: int) -> int:
        """The place in the text at that cell, or the row's last one."""
        used = 0
        for at, sign in enumerate(self.signs):
            if used >= cell:
                return self.start + at
            used += cells(sign)
        # Behind the last sign of a row that goes on is the beginning of the next one.
        return self.start + len(self.signs) - (1 if self.goes_on else 0)

    def line(self, cursor: int | None) -> Line:
        """With the cursor, if it is here: reverse on a sign, `_` behind the last one."""
        if cursor is None:
            return line("".join(self.signs))
        at = cursor - self.start
        under = self.signs[at] if at < len(self.signs) else "_"
        before, after = "".join(self.signs[:at]), "".join(self.signs[at + 1 :])
        return line(before, Span(under, "select"), after)


class Field:
    """A text and the cursor in it."""

    def __init__(self, text: str = "", *, many: bool = False, most: int = 200) -> None:
        """`many`: it may have several lines. `most`: signs it takes."""
        self.text = ""
        self.at = 0
        self.full = False
        """Something did not fit and was left out."""
        self._many = many
        self._most = most
        self._width = 40
        self._top = 0
        self._clean: Clean = str
        self._laid: tuple[object, list[_Row]] = (None, [])
        self.insert(text)

    def insert(self, text: str) -> None:
        """Put text at the cursor; line ends become blanks where there is one line only."""
        text = text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = text if self._many else text.replace("\n", " ")
        room = self._most - len(self.text)
        self.full = len(text) > room
        text = text[: max(0, room)]
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)

    def set(self, text: str) -> None:
        """Other text, the cursor behind it."""
        self.text, self.at = "", 0
        self.insert(text)

    def press(self, key: str) -> bool:
        """Whether the key was one for the text: a sign itself, else Textual's name of a key."""
        action = _ACTIONS.get(key)
        if action is not None:
            action(self)
            return True
        if key == "ctrl+j":
            return self._newline()
        if key in ("up", "down"):
            return self._step(-1 if key == "up" else 1)
        sign = " " if key == "space" else key
        if len(sign) == 1 and sign.isprintable():
            self.insert(sign)
            return True
        return False

    def _newline(self) -> bool:
        if self._many:
            self.insert("\n")
        return self._many

    # -- moving and taking away --------------------------------------------------------------------

    def left(self) -> None:
        self.at = max(0, self.at - 1)

    def right(self) -> None:
        self.at = min(len(self.text), self.at + 1)

    def home(self) -> None:
        """To the beginning of the line."""
        self.at = self.text.rfind("\n", 0, self.at) + 1

    def end(self) -> None:
        """To the end of the line."""
        found = self.text.find("\n", self.at)
        self.at = len(self.text) if found < 0 else found

    def word_left(self) -> None:
        at = self.at
        while at > 0 and self.text[at - 1].isspace():
            at -= 1
        while at > 0 and not self.text[at - 1].isspace():
            at -= 1
        self.at = at

    def word_right(self) -> None:
        at, end = self.at, len(self.text)
        while at < end and self.text[at].isspace():
            at += 1
        while at < end and not self.text[at].isspace():
            at += 1
        self.at = at

    def backspace(self) -> None:
        self._cut(max(0, self.at - 1), self.at)

    def delete(self) -> None:
        self._cut(self.at, self.at + 1)

    def cut_word(self) -> None:
        """Take away the word before the cursor."""
        end = self.at
        self.word_left()
        self._cut(self.at, end)

    def cut_before(self) -> None:
        """Take away the line before the cursor."""
        end = self.at
        self.home()
        self._cut(self.at, end)

    def cut_after(self) -> None:
        """Take away the line behind the cursor."""
        start = self.at
        self.end()
        self._cut(start, self.at)

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.at, self.full = start, False

    def _step(self, by: int) -> bool:
        """One row up or down, in the same cell; False at the first and last row."""
        rows = self._rows()
        row = self._row_of(rows)
        if not 0 <= row + by < len(rows):
            return False
        self.at = rows[row + by].nearest(rows[row].cell(self.at))
        return True

    # -- drawing -----------------------------------------------------------------------------------

    def height(self, clean: Clean, width: int) -> int:
        """Rows that all of it takes."""
        self._clean, self._width = clean, width
        return len(self._rows())

    def draw(self, clean: Clean, width: int, height: int, *, focus: bool = True) -> list[Line]:
        """Exactly `height` lines of `width` cells, those around the cursor."""
        self._clean, self._width = clean, width
        rows = self._rows()
        here = self._row_of(rows)
        self._top = max(here - height + 1, min(self._top, here, max(0, len(rows) - height)))
        seen = list(enumerate(rows))[self._top : self._top + height]
        lines = (row.line(self.at if focus and at == here else None) for at, row in seen)
        return fill(lines, width, height)

    def _row_of(self, rows: list[_Row]) -> int:
        """Which row the cursor is in."""
        return next(at for at in reversed(range(len(rows))) if rows[at].start <= self.at)

    def _rows(self) -> list[_Row]:
        """The text in rows; each keeps a cell for the cursor behind its last sign."""
        key = (self.text, self._width, self._clean("\u00e9"))
        if self._laid[0] != key:
            self._laid = (key, _laid(self.text, self._width - 1, self._clean))
        return self._laid[1]


def _laid(text: str, width: int, clean: Clean) -> list[_Row]:
    rows = [_Row(0, [])]
    used = 0
    for at, sign in enumerate(text):
        if sign == "\n":
            rows.append(_Row(at + 1, []))
            used = 0
            continue
        shown = clean(sign)
        size = cells(shown)
        if rows[-1].signs and used + size > width:
            rows[-1].goes_on = True
            rows.append(_Row(at, []))
            used = 0
        rows[-1].signs.append(shown)
        used += size
    return rows


_ACTIONS: dict[str, Callable[[Field], None]] = {
    "left": Field.left,
    "right": Field.right,
    "home": Field.home,
    "ctrl+a": Field.home,
    "end": Field.end,
    "ctrl+e": Field.end,
    "ctrl+left": Field.word_left,
    "ctrl+right": Field.word_right,
    "backspace": Field.backspace,
    "ctrl+h": Field.backspace,
    "delete": Field.delete,
    "ctrl+d": Field.delete,
    "ctrl+w": Field.cut_word,
    "ctrl+u": Field.cut_before,
    "ctrl+k": Field.cut_after,
}
