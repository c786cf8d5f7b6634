"""Keeps text that a client typed from becoming control tokens.

Rules:
1. A client's string that contains no control token's text reaches the template unchanged, so that
   trimming, comparing and splitting in templates behave as the model's makers meant.
2. Where a control token's text does occur, an unguessable mark is put behind its first character.
   A mark is a row of digits: filters (trim, upper, tojson, escape) leave it whole.
3. A string that could become part of a control token together with what the template puts beside
   it (it ends with the head of one, starts with a tail, or lies inside one) is marked at that edge.
4. Words that templates look up or compare (`name`, `type`, …) stay as they are.
5. After rendering, the text is cut at the marks that lie inside a control token's text, and the
   parts are tokenised on their own: no token can form across a cut. Other marks just vanish, so
   ordinary prompts tokenise as one text.
"""

import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

_Trie: TypeAlias = dict[str, "_Trie"]
_END = ""
_MARK_DIGITS = 40

_PLAIN = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "reasoning_content",
        "id",
        "function",
        "arguments",
        "type",
        "description",
        "parameters",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "default",
        "title",
        "format",
        "strict",
        "object",
        "array",
        "string",
        "number",
        "integer",
        "boolean",
        "null",
    }
)
"""Rule 4. Some vocabularies have control tokens such as `<filename>`, with `name` inside."""


class Guard:
    """Knows one vocabulary's control texts; `mark()` starts a job."""

    def __init__(self, control_texts: Collection[str]) -> None:
        # A text of one character has no inside to cut; no vocabulary is known to have one.
        self._texts = [text for text in control_texts if len(text) > 1]
        self._longest = max(map(len, self._texts), default=0)
        self._heads = {text[:i] for text in self._texts for i in range(1, len(text))}
        self._tails = {text[i:] for text in self._texts for i in range(1, len(text))}
        self._pattern = re.compile(f"(?=({_regex(_trie(self._texts))}))") if self._texts else None

    def mark(self) -> "Mark":
        return Mark(self)

    def matches(self, text: str) -> Iterator[tuple[int, int]]:
        """Where control texts lie, overlapping ones too: the longest from each start."""
        if self._pattern is not None:
            yield from (match.span(1) for match in self._pattern.finditer(text))

    def cuts(self, text: str) -> set[int]:
        """Where rules 2, 3 and 4 put marks."""
        if text in _PLAIN:
            return set()
        found = {start + 1 for start, _ in self.matches(text)}
        reach = range(1, min(self._longest, len(text) + 1))
        if any(text[-size:] in self._heads for size in reach):
            found.add(len(text))
        if any(text[:size] in self._tails for size in reach):
            found.add(0)
        if 0 < len(text) < self._longest and any(text in control for control in self._texts):
            found |= {0, len(text)}
        return found

    def spans(self, text: str, position: int) -> bool:
        """Whether a control text lies across `position`."""
        first = max(0, position - self._longest)
        window = text[first : position + self._longest]
        return any(a < position - first < b for a, b in self.matches(window))


class Mark:
    """One job's mark."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.text = "".join(secrets.choice("0123456789") for _ in range(_MARK_DIGITS))

    def protect(self, value: Any) -> Any:
        """The JSON value with every string in it (keys too) marked where it must be."""
        if isinstance(value, str):
            return self._protect(value)
        if isinstance(value, dict):
            return {self._protect(str(key)): self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def _protect(self, text: str) -> str:
        cuts = self._guard.cuts(text)
        return self.text.join(_cut(text, sorted(cuts))) if cuts else text

    def clean(self, text: str) -> str:
        """The text without marks."""
        return text.replace(self.text, "")

    def parts(self, rendered: str) -> list[str]:
        """What to tokenise apart; joined they are the prompt."""
        pieces = rendered.split(self.text)
        text = "".join(pieces)
        marked = dict.fromkeys(_ends(pieces[:-1]))
        return _cut(text, [at for at in marked if self._guard.spans(text, at)])


def _ends(pieces: Iterable[str]) -> Iterator[int]:
    at = 0
    for piece in pieces:
        at += len(piece)
        yield at


def _cut(text: str, positions: list[int]) -> list[str]:
    edges = [0, *positions, len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def _trie(texts: Iterable[str]) -> _Trie:
    root: _Trie = {}
    for text in texts:
        node = root
        for character in text:
            node = node.setdefault(character, {})
        node[_END] = {}
    return root


def _regex(node: _Trie) -> str:
    """A pattern for the longest of the trie's texts.

    It enters no branch that cannot match, so hostile text costs no more than ordinary text.
    """
    branches = [re.escape(key) + _regex(child) for key, child in node.items() if key != _END]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if _END in node else ''}"
