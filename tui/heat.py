"""Tokens of an answer and how little each was expected, as digits under its text. Pure.

A digit is the surprise in whole bits: 0, likelier than one in two; 9, rarer than one in 512.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tui.cells import cells as width
from tui.cells import foreign
from tui.lines import Line, Span

HOT = 5
"""From here on a token is set in bold."""
UNKNOWN = " "


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer."""

    text: str
    logprob: float | None = None
    """Natural logarithm; None: not known."""


def digit(logprob: float | None) -> str:
    """The surprise of a token; blank where it is not known."""
    if logprob is None:
        return UNKNOWN
    return str(max(0, min(9, int(-logprob / math.log(2)))))


def heat(tokens: Sequence[Token], cells: int, show: Callable[[str], str] = foreign) -> list[Line]:
    """The tokens in lines of at most `cells`, each with a line of digits below where any is known.
    A digit stands under its token's first cell. `show` makes their text clean."""
    known = any(token.logprob is not None for token in tokens)
    lines: list[Line] = []
    for row in _rows(tokens, cells, show):
        lines.append(tuple(_text(text, token) for text, token in row))
        if known:
            lines.append((Span("".join(_under(text, token) for text, token in row), "dim"),))
    return lines


def _text(text: str, token: Token) -> Span:
    surprise = digit(token.logprob)
    return Span(text, "bold" if surprise.isdecimal() and int(surprise) >= HOT else "plain")


def _under(text: str, token: Token) -> str:
    return digit(token.logprob).ljust(width(text))


def _rows(
    tokens: Sequence[Token], cells: int, show: Callable[[str], str]
) -> Iterator[list[tuple[str, Token]]]:
    row: list[tuple[str, Token]] = []
    used = 0
    for token in tokens:
        for text in _pieces(show(token.text) or " ", cells):
            if used + width(text) > cells and row:
                yield row
                row, used = [], 0
            row.append((text, token))
            used += width(text)
    if row:
        yield row


def _pieces(text: str, cells: int) -> Iterator[str]:
    """The text, or where it is wider than a line its parts."""
    piece = ""
    for sign in text:
        if width(piece) + width(sign) > cells and piece:
            yield piece
            piece = ""
        piece += sign
    if piece:
        yield piece
