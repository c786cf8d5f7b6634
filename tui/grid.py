"""The columns of a table: which fit, how wide they get, and how head and rows are set."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tui.cells import pad
from tui.lines import Line, Span, line
from tui.view import View

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column. `rank` 0 always stays; of the others the highest goes first."""

    title: str
    """Key of its word."""
    width: int
    text: Callable[[T, View], str]
    """The cell, of clean text."""
    right: bool = False
    rank: int = 0
    most: int = 0
    """It takes what is left over, up to so many cells."""


class Grid(Generic[T]):
    """Columns that fit into `width` cells, with a blank between them."""

    def __init__(self, columns: Sequence[Column[T]], width: int) -> None:
        kept = list(columns)
        while len(kept) > 1 and _taken(kept) > width:
            kept.remove(max(reversed(kept), key=lambda column: column.rank))
        self.columns = tuple(kept)
        self.widths = _grown(kept, width - _taken(kept))

    def head(self, view: View) -> Line:
        """The titles, behind the cursor's cell."""
        titles = (view.words(column.title) for column in self.columns)
        return line(Span(f" {self._set(titles)}", "bold"))

    def row(self, row: T, view: View) -> Line:
        return line(self._set(column.text(row, view) for column in self.columns))

    def _set(self, texts: Iterable[str]) -> str:
        cells = zip(self.columns, self.widths, texts, strict=True)
        return " ".join(pad(text, width, right=column.right) for column, width, text in cells)


def _taken(columns: Sequence[Column[T]]) -> int:
    return sum(column.width for column in columns) + len(columns) - 1


def _grown(columns: Sequence[Column[T]], left: int) -> tuple[int, ...]:
    """Widths with what is left over given to those that want it, first come."""
    widths = []
    for column in columns:
        more = max(0, min(left, column.most - column.width))
        widths.append(column.width + more)
        left -= more
    return tuple(widths)
