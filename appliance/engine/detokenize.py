"""From token pieces to text that may be sent: whole characters only, and never a stop string.

Pure. A token may end in the middle of a character, and a stop string may start in one token and
end three tokens later; what could still become either is held back until it is decided.
"""

from codecs import utf_8_decode
from typing import Self

import msgspec


class Fed(msgspec.Struct, frozen=True, gc=False):
    """What one token added."""

    text: str
    """Text that is now safe to send."""
    stop_word: str = ""
    """The stop string that is complete now; nothing after it counts."""
    hidden: int = 0
    """With a stop word: tokens, this one included, of which no character will be shown."""


class TextStream:
    """The text of one choice as its tokens arrive."""

    __slots__ = ("_held", "_partial", "_starts", "_stop")

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = tuple(word for word in stop if word)
        self._partial = b""
        """The first bytes of a character."""
        self._held = ""
        self._starts: list[int] = []
        """Where in `_held` the text of each token begins, of those that show nothing so far."""

    def copy(self) -> Self:
        """An independent one at the same place."""
        twin = type(self)(self._stop)
        twin._partial, twin._held, twin._starts = self._partial, self._held, list(self._starts)
        return twin

    def feed(self, piece: bytes) -> Fed:
        """Takes the bytes of the next token."""
        text = self._decoded(piece)
        if not self._stop:
            return Fed(text)
        self._starts.append(len(self._held))
        self._held += text
        at, word = self._find()
        if word:
            shown = self._held[:at]
            hidden = sum(1 for start in self._starts if start >= at)
            self._held, self._starts = "", []
            return Fed(shown, word, hidden)
        return Fed(self._release(len(self._held) - self._suspect()))

    def flush(self) -> str:
        """The answer ended otherwise: whatever was held back is text after all. Bytes of a
        character that never got complete come out as U+FFFD."""
        rest = self._held + self._decoded(b"", final=True)
        self._held, self._starts = "", []
        return rest

    def _decoded(self, piece: bytes, *, final: bool = False) -> str:
        data = self._partial + piece
        text, used = utf_8_decode(data, "replace", final)
        self._partial = data[used:]
        return text

    def _release(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        self._starts = [start - length for start in self._starts if start >= length]
        return text

    def _find(self) -> tuple[int, str]:
        """The earliest complete stop string in what is held, the longest where two start there."""
        found = [(self._held.find(word), -len(word), word) for word in self._stop]
        hits = [hit for hit in found if hit[0] >= 0]
        if not hits:
            return -1, ""
        at, _, word = min(hits)
        return at, word

    def _suspect(self) -> int:
        """Length of the longest tail that may be the beginning of a stop string."""
        longest = min(max(map(len, self._stop)) - 1, len(self._held))
        for length in range(longest, 0, -1):
            tail = self._held[-length:]
            if any(word.startswith(tail) for word in self._stop):
                return length
        return 0
