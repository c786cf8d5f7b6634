"""What the text of an answer so far tells about its end: open code, lists, brackets, repetition.

Fed with what was written since the last look, so each look costs as much as the new text.
"""

import re
from dataclasses import dataclass

MOST = 512
"""Characters of one look; of a longer one, the last."""
MEMORY = 1024
"""Characters within which repetition is looked for."""
PIECE = 16
"""Characters that are repetition when they come again within MEMORY."""
DEEPEST = 8
"""Brackets; deeper counts as this."""

_ITEM = re.compile(r"(?:[-*+•] |\d{1,3}[.)、] ?|#{1,6} )")
_ENDS = frozenset(".!?。！？…")
_CLOSERS = "\"'”’)】」*_ "
_OPENING, _CLOSING = frozenset("([{（【「"), frozenset(")]}）】」")


@dataclass(frozen=True, slots=True)
class Shape:
    """The state of the text at one moment."""

    sentence_end: bool = False
    """It stops where a sentence does."""
    line_end: bool = False
    """It stops at the end of a line."""
    fence_open: bool = False
    """Within a ``` block."""
    depth: int = 0
    """Brackets that are open, DEEPEST at most; those of running text are forgotten at line ends."""
    items: int = 0
    """List items and headings so far."""
    in_item: bool = False
    """The last line is a list item or a heading."""
    paragraphs: int = 0
    """Empty lines so far."""
    repeated: float = 0.0
    """0 ... 1: the share of the newest text that stood in the last MEMORY characters before."""


class Structure:
    """Follows one answer."""

    def __init__(self) -> None:
        self._tail = ""
        self._line = ""
        self._fences = 0
        self._ticks = 0
        self._depth = 0
        self._items = 0
        self._paragraphs = 0
        self._shape = Shape()

    @property
    def shape(self) -> Shape:
        """As of the last `read`."""
        return self._shape

    def read(self, text: str) -> Shape:
        """What was written since the last call; may be empty."""
        new = text[-MOST:]
        repeated = _repeated(self._tail, new)
        for piece in new.splitlines(keepends=True):
            self._take(piece)
        self._tail = (self._tail + new)[-MEMORY:]
        self._shape = self._shaped(repeated)
        return self._shape

    def _take(self, piece: str) -> None:
        """A piece of one line, its line end included where it has one."""
        self._brackets(piece)
        line = self._line + piece
        if not piece.endswith(("\n", "\r")):
            self._line = line[-MEMORY:]
            return
        bare = line.strip()
        self._fences += bare.startswith("```")
        self._items += _ITEM.match(bare) is not None
        self._paragraphs += not bare
        self._line = ""
        if not self._fences % 2 and not bare.endswith(("{", "[", ",", "(")):
            self._depth = min(self._depth, 1)

    def _brackets(self, piece: str) -> None:
        for character in piece:
            if character in _OPENING:
                self._depth = min(self._depth + 1, DEEPEST)
            elif character in _CLOSING:
                self._depth = max(self._depth - 1, 0)

    def _shaped(self, repeated: float) -> Shape:
        bare = self._line.strip()
        opened = bare.startswith("```")
        item = _ITEM.match(bare) is not None
        stripped = self._tail[-8:].rstrip(_CLOSERS + "\n")
        return Shape(
            sentence_end=stripped[-1:] in _ENDS if stripped else False,
            line_end=self._tail.endswith("\n"),
            fence_open=bool((self._fences + opened) % 2),
            depth=self._depth,
            items=self._items + item,
            in_item=item,
            paragraphs=self._paragraphs,
            repeated=repeated,
        )


def _repeated(before: str, new: str) -> float:
    """How much of `new` stood in `before`, in pieces of PIECE characters from its end, each with
    one new character at least."""
    joined = before[-PIECE + 1 :] + new
    starts = range(len(joined) - PIECE, -1, -PIECE) if new else ()
    pieces = [joined[at : at + PIECE] for at in starts]
    return sum(piece in before for piece in pieces) / len(pieces) if pieces else 0.0
