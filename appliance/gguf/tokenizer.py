"""How a model cuts text into tokens, as far as its file tells."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from appliance.gguf.contents import Contents
from appliance.gguf.facts import text
from appliance.gguf.parts import read_file
from appliance.gguf.place import open_model
from appliance.gguf.reader import BadModel
from appliance.gguf.vocabulary import read as read_vocabulary

SPECIALS = ("bos", "eos", "eot", "unknown", "padding")
"""The tokens with a meaning that a file may name."""
CONTROL = 3
"""The type of a control token."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """One model's."""

    kind: str
    """gpt2 (byte-level), llama (SentencePiece), ..."""
    pre: str
    """How text is cut before pieces are looked up; empty: the file does not say."""
    tokens: tuple[bytes, ...]
    """As the file writes them, by their ids."""
    specials: dict[str, int]
    """Ids of tokens with a meaning."""
    controls: frozenset[bytes]
    """The control tokens' texts."""
    flags: dict[str, bool]
    """add_bos_token and the like, where the file says."""

    @property
    def size(self) -> int:
        return len(self.tokens)

    @property
    def digest(self) -> str:
        """SHA-256 of all tokens in their order."""
        return hashlib.sha256(b"".join(b"%d:%b" % (len(t), t) for t in self.tokens)).hexdigest()

    def text_of(self, token: int) -> str:
        """A token as the file writes it."""
        found = self.tokens[token] if 0 <= token < len(self.tokens) else b"?"
        return found.decode("utf-8", "replace")


def read_tokenizer(path: Path) -> Tokenizer:
    """Of a model's (first) file. Raises BadModel, whose text begins with the path."""
    contents, _ = read_file(path)
    try:
        with open_model(path) as file:
            vocabulary = read_vocabulary(file)
        pre = text(contents, "tokenizer.ggml.pre")
    except BadModel as error:
        raise error.of(path) from None
    except OSError as error:
        raise BadModel(f"cannot be read: {error.strerror or error}").of(path) from error
    typed = zip(vocabulary.tokens, vocabulary.types, strict=False)
    return Tokenizer(
        kind=vocabulary.kind,
        pre=pre,
        tokens=vocabulary.tokens,
        specials=_specials(contents),
        controls=frozenset(token for token, kind in typed if kind == CONTROL),
        flags=_flags(contents),
    )


def _specials(contents: Contents) -> dict[str, int]:
    found = {name: contents.values.get(f"tokenizer.ggml.{name}_token_id") for name in SPECIALS}
    return {name: value for name, value in found.items() if type(value) is int}


def _flags(contents: Contents) -> dict[str, bool]:
    prefix = "tokenizer.ggml.add_"
    return {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in contents.values.items()
        if key.startswith(prefix) and isinstance(value, bool)
    }
