"""The texts of a model file's tokens, for who reads token ids without llama.cpp."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from appliance.gguf.contents import (
    ARRAY_ITEMS,
    ITEM_BYTES,
    KEY_BYTES,
    PAIR_COUNT,
    STRING_BYTES,
    STRING_ITEMS,
)
from appliance.gguf.reader import BadModel, Reader
from appliance.gguf.tables import ARRAY, I32, STRING, VALUES

TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
KIND = "tokenizer.ggml.model"

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """By token id."""

    kind: str
    """gpt2 (byte-level), llama (SentencePiece), ..."""
    tokens: tuple[bytes, ...]
    """As the file writes them."""
    types: tuple[int, ...]
    """1 text, 2 unknown, 3 control, 4 of the user, 6 a byte; may be missing."""


def read(file: BinaryIO) -> Vocabulary:
    """Of an open, unbuffered file. Raises BadModel."""
    reader = Reader(file, os.fstat(file.fileno()).st_size)
    if reader.take(4, "its first bytes") != b"GGUF":
        raise BadModel("it is not a GGUF file")
    reader.skip(4 + 8, "its version")
    pairs = reader.u64("its counts")
    if pairs > PAIR_COUNT:
        raise BadModel(f"it claims {pairs} metadata pairs; at most {PAIR_COUNT} make sense")
    kind, tokens, types = "", list[bytes](), list[int]()
    for _ in range(pairs):
        key = reader.string(KEY_BYTES, "a metadata key")
        held = reader.u32("a value's type")
        if key == TOKENS.encode() and held == ARRAY:
            tokens = _items(reader, STRING, lambda: reader.string(ITEM_BYTES, TOKENS))
        elif key == TYPES.encode() and held == ARRAY:
            types = _items(reader, I32, lambda: int(reader.value(I32, TYPES)))
        elif key == KIND.encode() and held == STRING:
            kind = reader.string(KEY_BYTES, KIND).decode("utf-8", "replace")
        else:
            _pass_over(reader, held)
    if not tokens:
        raise BadModel("its tokenizer has no list of tokens")
    return Vocabulary(kind, tuple(tokens), tuple(types))


def _items(reader: Reader, kind: int, item: Callable[[], ItemT]) -> list[ItemT]:
    found, count = _array(reader)
    if found != kind or count > STRING_ITEMS:
        raise BadModel(f"its tokenizer has a list of {count} members of type {found}")
    return [item() for _ in range(count)]


def _array(reader: Reader) -> tuple[int, int]:
    return reader.u32("an array's type"), reader.u64("an array's length")


def _pass_over(reader: Reader, kind: int) -> None:
    what = "a metadata value"
    if kind in VALUES:
        reader.skip(VALUES[kind].size, what)
    elif kind == STRING:
        reader.skip_string(STRING_BYTES, what)
    elif kind == ARRAY:
        _pass_over_array(reader, *_array(reader))
    else:
        raise BadModel(f"{what} has the unknown type {kind}")


def _pass_over_array(reader: Reader, kind: int, count: int) -> None:
    if (kind not in VALUES and kind != STRING) or count > ARRAY_ITEMS:
        raise BadModel(f"it holds an array of {count} members of type {kind}")
    if kind == STRING:
        reader.skip_strings(count, ITEM_BYTES, "an array")
    else:
        reader.skip(count * VALUES[kind].size, "an array")
