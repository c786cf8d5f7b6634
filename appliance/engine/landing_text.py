"""Where a text may end: at the end of a sentence or a line, and never inside a code fence.

Pure. `Prose` follows the text of one answer; what it keeps is short and copied with it, so that a
piece of the answer can be tried and taken back.
"""

import re
from codecs import utf_8_decode
from typing import Literal, Self

Boundary = Literal["", "sentence", "line"]

WIDE = "。！？…｡"
"""Ends of sentences after which no space comes."""
_STOPS = ".!?…。！？｡؟।"
_CLOSERS = "\"'”’»」』）)]*_ "
"""What may stand between the end of a sentence and the end of the text."""
_NO_END = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|Mr|Mrs|Ms|Dr|Prof|St|No|Nos|Fig|Inc|Ltd|Jr|approx|U\.S|U\.K"
    r"|[A-Z])\.$|^\s*(?:[-*#>]\s*)*(?:\d{1,3}|[a-zA-Z])\.$"
)
"""An abbreviation, an initial, or the number of a list's item."""
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_HALF_LINE = re.compile(r"[:,;(\[{–—-]\s*$|^\s*(?:#+\s|\*\*[^*]+\*\*\s*$|\|?[\s:|-]+$)")
"""A line that announces another: a heading, what ends with a colon, a table's rule."""
_ITEM = re.compile(r"^\s*(?:[-*+•|>]|\(?\w{1,3}[.)])\s*\S")
"""A list's item, a quotation or a table's row: complete however short."""
_WORDS = 4
_WIDE_CHARACTERS = 6
"""Shorter lines of their own are taken for headings."""
_PAIRS = (("(", ")"), ("[", "]"), ("（", "）"), ("“", "”"), ("「", "」"), ("《", "》"))
_LONGEST = 2000
"""Characters of a line that are kept; marks before that are taken for balanced."""


class Prose:
    """The end of a growing text."""

    __slots__ = ("_fence", "_last", "_line", "_partial")

    def __init__(self) -> None:
        self._partial = b""
        self._line = ""
        """The line that is being written."""
        self._last = ""
        """The newest line with anything in it that is complete, fences left out."""
        self._fence = ""
        """The mark of the code fence that is open, with what stands before it in its line."""

    def copy(self) -> Self:
        """An independent one at the same place."""
        twin = type(self)()
        twin._partial, twin._line = self._partial, self._line
        twin._last, twin._fence = self._last, self._fence
        return twin

    def feed(self, piece: bytes) -> None:
        """The bytes of the next token, which may end within a character."""
        data = self._partial + piece
        text, used = utf_8_decode(data, "replace", False)
        self._partial = data[used:]
        *complete, rest = (self._line + text).split("\n")
        for line in complete:
            self._end_line(line)
        self._line = rest[-_LONGEST:]

    def after(self, piece: bytes) -> Self:
        """A copy that has this piece too."""
        twin = self.copy()
        twin.feed(piece)
        return twin

    def _end_line(self, line: str) -> None:
        mark = _FENCE.match(line)
        if self._fence:
            if mark and _closes(mark[1], line, self._fence.lstrip(" ")):
                self._fence, self._last = "", "```"
            elif line.strip():
                self._last = line
        elif mark:
            self._fence = mark[0]
        elif line.strip():
            self._last = line

    @property
    def whole(self) -> bool:
        """Not within a character."""
        return not self._partial

    @property
    def in_fence(self) -> bool:
        """Within a code fence, the line that opens it included."""
        mark = _FENCE.match(self._line)
        if self._fence:
            return not (mark and _closes(mark[1], self._line, self._fence.lstrip(" ")))
        return mark is not None

    @property
    def fence_end(self) -> str:
        """What closes the fence that is open, from here on; empty where none is."""
        if not self.in_fence:
            return ""
        opening = _FENCE.match(self._line)
        mark = self._fence or (opening[0] if opening else "")
        return ("\n" if self._line else "") + mark

    @property
    def line_start(self) -> bool:
        """Nothing stands in the line yet."""
        return not self._line

    @property
    def after_digit(self) -> bool:
        """The last character is a digit, so that a dot may belong to a number."""
        return self._line[-1:].isdigit()

    @property
    def wide_end(self) -> bool:
        """The last character is one after which no space comes."""
        return self._line[-1:] in WIDE and bool(self._line)

    @property
    def boundary(self) -> Boundary:
        """What ends here, if anything does."""
        if self._partial or self.in_fence:
            return ""
        if self._fence:  # closed by the line under way
            return "line"
        if not self._line.strip():
            return "line" if _complete(self._last) else ""
        return "sentence" if _ends_sentence(self._line) else ""


def _closes(mark: str, line: str, fence: str) -> bool:
    return mark.startswith(fence) and line.strip() == mark


def _complete(line: str) -> bool:
    if not line.strip() or _HALF_LINE.search(line) or not _balanced(line):
        return False
    if line == "```" or _ITEM.match(line) or _ends_sentence(line) or line.rstrip().endswith("]"):
        return True
    wide = sum(1 for character in line if character >= "\u2e80")
    return len(line.split()) >= _WORDS or wide >= _WIDE_CHARACTERS


def _ends_sentence(line: str) -> bool:
    core = line.rstrip(_CLOSERS)
    if not core or core[-1] not in _STOPS or not _balanced(line):
        return False
    return not (core[-1] == "." and _NO_END.search(core))


def _balanced(line: str) -> bool:
    """No bracket, quotation, emphasis or code span is open at the end of the line."""
    if line.count("`") % 2 or line.count("**") % 2 or line.count('"') % 2:
        return False
    return all(line.count(left) <= line.count(right) for left, right in _PAIRS)
