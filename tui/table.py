"""A list with a cursor. Nothing moves under it: it rests on the first row until it is moved, then
it follows that row's id; when the row has gone it stays at its place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tui.filters import Field, matches, parse
from tui.lines import Line, Span, fill, paint

T = TypeVar("T")
Order = Callable[[T], Any] | None
"""A sort key; None: as the box sent it."""

_PAGE = 10


class Table(Generic[T]):
    """Rows of one kind, filtered and sorted; `id_of` names a row for the cursor."""

    def __init__(
        self,
        id_of: Callable[[T], str],
        fields: Callable[[T], Mapping[str, Field]] | None = None,
        orders: Mapping[str, Order[T]] | None = None,
    ) -> None:
        self._id_of = id_of
        self._fields = fields or (lambda row: {"id": id_of(row)})
        self._orders = dict(orders or {"order": None})
        self.order = next(iter(self._orders))
        self.filter = ""
        self.rows: tuple[T, ...] = ()
        """What is shown: filtered, sorted."""
        self.total = 0
        """Rows before the filter."""
        self.at = 0
        self.moved = False
        self._id: str | None = None
        self._top = 0
        self._page = _PAGE
        self._given: Sequence[T] = ()

    def show(self, rows: Sequence[T]) -> None:
        """Take new rows; the cursor stays on its id."""
        self._given = rows
        terms = parse(self.filter)
        kept = [row for row in rows if matches(terms, self._fields(row))] if terms else list(rows)
        order = self._orders[self.order]
        self.rows = tuple(kept if order is None else sorted(kept, key=order))
        self.total = len(rows)
        self._follow()

    def _follow(self) -> None:
        if not self.moved:
            self.at = 0
        elif self._id is not None:
            places = (at for at, row in enumerate(self.rows) if self._id_of(row) == self._id)
            self.at = next(places, self.at)
        self.at = max(0, min(self.at, len(self.rows) - 1))
        self._id = self._id_of(self.rows[self.at]) if self.rows and self.moved else self._id

    @property
    def current(self) -> T | None:
        """The row under the cursor."""
        return self.rows[self.at] if self.rows else None

    def press(self, key: str) -> bool:
        """Whether the key moved the cursor."""
        step = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -self._page, "pagedown": self._page}
        if key in step:
            return self.move(self.at + step[key])
        if key in ("home", "g"):
            return self.move(0)
        return self.move(len(self.rows)) if key in ("end", "G") else False

    def move(self, to: int) -> bool:
        if not self.rows:
            return False
        self.at = max(0, min(to, len(self.rows) - 1))
        self._id = self._id_of(self.rows[self.at])
        self.moved = True
        return True

    def select(self, id: str) -> bool:
        """Put the cursor on that row, if it is there."""
        for at, row in enumerate(self.rows):
            if self._id_of(row) == id:
                return self.move(at)
        return False

    def find(self, text: str) -> None:
        """Filter by `key:crm state:wait wait>10` or any words."""
        self.filter = text
        self.show(self._given)

    def next_order(self) -> str:
        """Sort by the next order; returns its name."""
        names = list(self._orders)
        self.order = names[(names.index(self.order) + 1) % len(names)]
        self.show(self._given)
        return self.order

    def window(self, height: int) -> tuple[tuple[T, bool], ...]:
        """The rows that fit, each with whether the cursor is on it."""
        self._page = max(1, height - 1)
        if self.at < self._top or self.at >= self._top + height:
            self._top = self.at - (height - 1 if self.at >= self._top + height else 0)
        self._top = max(0, min(self._top, len(self.rows) - height))
        shown = self.rows[self._top : self._top + height]
        return tuple((row, self._top + at == self.at) for at, row in enumerate(shown))

    def draw(
        self, width: int, height: int, cells: Callable[[T], Line], *, focus: bool = True
    ) -> list[Line]:
        """Exactly `height` lines: `>` before the row under the cursor, a scroll bar at the right
        when there are more rows than lines."""
        body = width - 1 if len(self.rows) > height else width
        lines = fill((_row(cells(row), on, focus) for row, on in self.window(height)), body, height)
        if body == width:
            return lines
        bar = self._bar(height)
        return [(*line, Span(sign)) for line, sign in zip(lines, bar, strict=True)]

    def _bar(self, height: int) -> str:
        """`|` the track, `#` what is seen of it."""
        size = max(1, height * height // len(self.rows))
        rest = max(1, len(self.rows) - height)
        top = round(self._top / rest * (height - size))
        return "".join("#" if top <= at < top + size else "|" for at in range(height))


def _row(line: Line, on: bool, focus: bool) -> Line:
    if not on:
        return (Span(" "), *line)
    marked = (Span(">"), *line)
    return paint(marked, "select") if focus else marked
