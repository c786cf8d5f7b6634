"""Token ids back into what was said, without llama.cpp: for prompts that the ledger has as ids.

Only the texts of a model file's tokens are read, and kept packed. They need not be exact to the
byte: features look at words, not at spaces.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from appliance.forecast.encoder import EncoderError
from appliance.forecast.question import Turn
from appliance.gguf import BadModel
from appliance.gguf.place import open_model
from appliance.gguf.vocabulary import Vocabulary, read

_SILENT = (2, 3)
"""Types of tokens without a text of their own: unknown, control."""
_SPACE = "\u2581"
"""How SentencePiece writes a space."""

ROLES = frozenset({"system", "developer", "user", "human", "assistant", "model", "tool"})
_SAME = {"human": "user", "model": "assistant", "developer": "system"}


class Spelling:
    """The vocabulary of one model file, 2 to 4 MB."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        self._texts = b"".join(tokens)
        self._ends = np.cumsum([0, *map(len, tokens)]).astype(np.uint32)
        self._silent = frozenset(
            at for at, kind in enumerate(vocabulary.types[: len(tokens)]) if kind in _SILENT
        )
        self._spell = _byte_level if vocabulary.kind == "gpt2" else _sentence_piece

    @classmethod
    def of(cls, path: Path) -> "Spelling":
        """Raises EncoderError."""
        try:
            with open_model(path) as file:
                return cls(read(file))
        except (BadModel, OSError) as error:
            raise EncoderError(f"the model's tokens cannot be read: {error}") from error

    def turns(self, ids: Sequence[int]) -> tuple[Turn, ...]:
        """What was said in a prompt. Ids outside the vocabulary are passed over."""
        parts: list[list[bytes]] = [[]]
        for token in ids:
            if token in self._silent:
                parts.append([])
            elif 0 <= token < len(self._ends) - 1:
                parts[-1].append(self._texts[self._ends[token] : self._ends[token + 1]])
        return turns_of([self._spell(part) for part in parts])


def turns_of(parts: Sequence[str]) -> tuple[Turn, ...]:
    """The turns of a prompt that control tokens part so: a role's name at the head of a part says
    whose it is. Without any role all of it is one user turn."""
    role, found, named_any = "user", list[Turn](), False
    for part in parts:
        named, text = _headed(part)
        role, named_any = (named, True) if named else (role, named_any)
        if text.strip():
            found.append(Turn(role, text.strip("\n")))
    if named_any:
        return tuple(found)
    whole = "".join(parts).strip()
    return (Turn("user", whole),) if whole else ()


def _headed(part: str) -> tuple[str, str]:
    """The role that a part begins with, and the rest; ("", part) where it names none."""
    head, line_break, rest = part.partition("\n")
    name = head.strip().lower()
    if name not in ROLES or (not line_break and head != head.strip()):
        return "", part
    return _SAME.get(name, name), rest


def _written() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones as they are, the others from U+0100 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {
        chr(256 + at): byte for at, byte in enumerate(others)
    }


_BYTES = _written()


def _byte_level(texts: Sequence[bytes]) -> str:
    found = bytearray()
    for character in b"".join(texts).decode("utf-8", "replace"):
        byte = _BYTES.get(character)
        found += character.encode() if byte is None else bytes((byte,))
    return found.decode("utf-8", "replace")


def _sentence_piece(texts: Sequence[bytes]) -> str:
    found = b"".join(map(_byte_or_text, texts))
    return found.decode("utf-8", "replace").replace(_SPACE, " ")


def _byte_or_text(text: bytes) -> bytes:
    """`<0x0A>` is a byte."""
    if len(text) != 6 or not (text.startswith(b"<0x") and text.endswith(b">")):
        return text
    try:
        return bytes((int(text[3:5], 16),))
    except ValueError:
        return text
