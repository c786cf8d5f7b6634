"""Lines of cells: what every screen draws, `status` prints and the terminal paints."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tui.cells import cells, clip, drawn, letter, pad, skip

Role = Literal["plain", "dim", "bold", "alarm1", "alarm2", "alarm3", "select"]
"""What a text means, never how it looks; a theme decides. The text itself says it too."""


@dataclass(frozen=True, slots=True)
class Span:
    """Clean text (tui/cells.py) in one role."""

    text: str
    role: Role = "plain"


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """A line of texts; a bare string is plain."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def blank(width: int) -> Line:
    return (Span(" " * width),)


def text_of(line: Line) -> str:
    """The line without its roles."""
    return "".join(span.text for span in line)


def width_of(line: Line) -> int:
    """In cells."""
    return sum(cells(span.text) for span in line)


def fit(line: Line, width: int, *, right: bool = False) -> Line:
    """Exactly `width` cells: cut, or filled with blanks (in front, with `right`)."""
    kept, missing = line, width - width_of(line)
    if missing < 0:
        kept = head(line, width)
        missing = width - width_of(kept)
    if not missing:
        return kept
    gap = Span(" " * missing)
    return (gap, *kept) if right else (*kept, gap)


def head(line: Line, width: int) -> Line:
    """At most the first `width` cells; never half of a wide sign."""
    kept: list[Span] = []
    left = width
    for span in line:
        cut = clip(span.text, left)
        if cut:
            kept.append(Span(cut, span.role))
        left -= cells(cut)
        if cut != span.text:
            break
    return tuple(kept)


def tail(line: Line, width: int) -> Line:
    """The line without its first `width` cells; a blank stands for half a wide sign."""
    kept: list[Span] = []
    left = width
    for span in line:
        size = cells(span.text)
        if size > left:
            kept.append(Span(skip(span.text, left), span.role))
        left = max(0, left - size)
    return tuple(kept)


def overlay(under: Line, over: Line, at: int) -> Line:
    """`over` upon `under`, from cell `at` on."""
    after = tail(under, at + width_of(over))
    return (*fit(under, at), *over, *after)


def paint(line: Line, role: Role) -> Line:
    """The whole line in one role."""
    return (Span(text_of(line), role),)


def fill(lines: Iterable[Line], width: int, height: int) -> list[Line]:
    """Exactly `height` lines of `width` cells."""
    kept = [fit(line, width) for line in lines][: max(0, height)]
    return kept + [blank(width)] * (height - len(kept))


def wrap(text: str, width: int) -> list[str]:
    """The text in rows of at most `width` cells, broken at blanks where there are any."""
    rows: list[str] = []
    for paragraph in text.split("\n"):
        rows.extend(_wrapped(paragraph, max(2, width)))
    return rows


def _wrapped(rest: str, width: int) -> list[str]:
    rows: list[str] = []
    while len(row := clip(rest[:width], width)) < len(rest):
        at = row.rfind(" ")
        if rest[len(row)] != " " and at > 0:
            row = row[:at]
        rows.append(row.rstrip())
        rest = rest[len(row) :].lstrip(" ")
    return [*rows, rest]


def safe(line: Line) -> Line:
    """The last net: a sign that no screen may draw becomes `?`."""
    return tuple(
        span
        if span.text.isascii() and span.text.isprintable()
        else Span(_safe(span.text), span.role)
        for span in line
    )


@lru_cache(maxsize=4096)
def _safe(text: str) -> str:
    """Most lines are the same in the next drawing."""
    return "".join(sign if drawn(sign) or letter(sign) else "?" for sign in text)


def beside(left: Iterable[Line], right: Iterable[Line], width: int, gap: int = 2) -> list[Line]:
    """Two panes in one; the left one is `width` cells wide."""
    ours, theirs = list(left), list(right)
    rows = max(len(ours), len(theirs))
    ours += [()] * (rows - len(ours))
    theirs += [()] * (rows - len(theirs))
    return [
        (*fit(one, width), Span(" " * gap), *two) for one, two in zip(ours, theirs, strict=True)
    ]


def columns(texts: Iterable[str | Span], widths: Iterable[int], aligns: str) -> Line:
    """One row of a table, a blank between columns. `aligns`: `<` or `>` for each column."""
    spans: list[Span] = []
    for part, width, align in zip(texts, widths, aligns, strict=True):
        span = Span(part) if isinstance(part, str) else part
        spans += [Span(pad(span.text, width, right=align == ">"), span.role), Span(" ")]
    return tuple(spans[:-1])
