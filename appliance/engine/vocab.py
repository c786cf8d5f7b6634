"""The model's own vocabulary: text to token ids and back, exactly as llama.cpp does it.

The engine wraps the vocabulary of the model it runs, the prepare process opens one without
weights; both answer alike. Importing this module also points llama.cpp's log at `logging`.
"""

import ctypes
import logging
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from llguidance import LLTokenizer

from appliance.engine.llama import llama_cpp

log = logging.getLogger("appliance.llama")

_HIDDEN = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
_PIECE_BYTES = 16 * 1024
_TURN_MARK = re.compile(r"<[|｜][\w▁]+[|｜]>")
_INT32_MIN = -(2**31)
_LEVELS = {3: logging.WARNING, 4: logging.ERROR}
"""ggml's levels that are worth an operator's time; the rest is chatter."""


def _forward(level: int, text: bytes | None, _user: object) -> None:
    if level in _LEVELS and text:
        log.log(_LEVELS[level], "%s", text.decode("utf-8", "replace").rstrip())


# A collected callback would crash the process at llama.cpp's next word, so the module keeps it.
_log_callback: Any = llama_cpp.llama_log_callback(_forward)
llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))


def hear_all() -> None:
    """The chatter is logged too from now on: it tells which device each layer is on."""
    _LEVELS.update({1: logging.DEBUG, 2: logging.INFO})


class VocabError(Exception):
    """The model's vocabulary cannot be opened or used."""


class Vocab:
    """One model's vocabulary. Not thread-safe while `pieces` is first built."""

    def __init__(self, model: Any, *, owned: bool = False) -> None:
        """Wraps a loaded model, which must outlive this; `owned` frees it on `close`."""
        self._model = model
        self._owned = owned
        self.handle: Any = llama_cpp.llama_model_get_vocab(model)
        self.n_tokens: int = llama_cpp.llama_vocab_n_tokens(self.handle)
        self.bos: int = llama_cpp.llama_vocab_bos(self.handle)
        self.eos: int = llama_cpp.llama_vocab_eos(self.handle)
        """`bos`, `eos`: -1 where the model has none."""
        self.add_bos: bool = bool(llama_cpp.llama_vocab_get_add_bos(self.handle))

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Loads the vocabulary alone. Raises VocabError when llama.cpp refuses the file."""
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not model:
            raise VocabError(f"llama.cpp cannot read the vocabulary of {path}: see the log")
        return cls(model, owned=True)

    def close(self) -> None:
        """Frees the model of `open`; the object must not be used afterwards."""
        if self._owned:
            self._owned = False
            llama_cpp.llama_model_free(self._model)

    def tokenize(self, text: str | bytes, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`. With `parse_special`, text of control tokens becomes them."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        room = len(data) // 2 + 16
        count, buffer = self._tokenize(data, room, add_special, parse_special)
        if count < 0:
            count, buffer = self._tokenize(data, -count, add_special, parse_special)
        return list(buffer[:count])

    def _tokenize(
        self, data: bytes, room: int, add_special: bool, parse_special: bool
    ) -> tuple[int, Any]:
        buffer = (llama_cpp.llama_token * room)()
        count: int = llama_cpp.llama_tokenize(
            self.handle, data, len(data), buffer, room, add_special, parse_special
        )
        if count == _INT32_MIN:
            raise VocabError(f"a text of {len(data)} bytes is too long to tokenise")
        return count, buffer

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of every token, control tokens by their text. Built on first use."""
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        return [self._piece(token, buffer) for token in range(self.n_tokens)]

    def _piece(self, token: int, buffer: Any) -> bytes:
        size = llama_cpp.llama_token_to_piece(self.handle, token, buffer, _PIECE_BYTES, 0, True)
        if size < 0:
            raise VocabError(f"token {token} has a piece of {-size} bytes")
        return ctypes.string_at(buffer, size)

    @cached_property
    def hidden(self) -> frozenset[int]:
        """Tokens that `piece` shows only when asked: control and unknown ones."""
        return frozenset(t for t in range(self.n_tokens) if self._attributes(t) & _HIDDEN)

    def _attributes(self, token: int) -> int:
        return int(llama_cpp.llama_vocab_get_attr(self.handle, token))

    def piece(self, token: int, special: bool = False) -> bytes:
        """The token's bytes (maybe half a character); empty for a hidden one unless `special`."""
        if token in self.hidden and not special:
            return b""
        return self.pieces[token]

    def detokenize(self, tokens: Iterable[int], special: bool = False) -> bytes:
        """The pieces joined. Ids must lie in 0 … n_tokens-1."""
        return b"".join(self.piece(token, special) for token in tokens)

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation (EOS, EOT and their like)."""
        return token in self.eogs

    @cached_property
    def eogs(self) -> frozenset[int]:
        """All tokens that end a generation."""
        ids = range(self.n_tokens)
        return frozenset(t for t in ids if llama_cpp.llama_vocab_is_eog(self.handle, t))

    def is_control(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_control(self.handle, token))

    def text_of(self, token: int) -> str:
        """The token's text as the vocabulary spells it; readable for control tokens only."""
        raw: bytes = llama_cpp.llama_vocab_get_text(self.handle, token) or b""
        return raw.decode("utf-8", "replace")

    @cached_property
    def control_texts(self) -> frozenset[str]:
        """Texts that `parse_special` turns into tokens which no user may be able to type."""
        texts = (self.text_of(token) for token in self.hidden | self.eogs | self._turn_marks)
        return frozenset(text for text in texts if text)

    @property
    def _turn_marks(self) -> set[int]:
        """Tokens that models use to part turns but declare as ordinary ones."""
        user_defined = llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED
        marked = (t for t in range(self.n_tokens) if self._attributes(t) & user_defined)
        return {token for token in marked if _TURN_MARK.fullmatch(self.text_of(token))}

    @cached_property
    def longest_piece(self) -> int:
        """Bytes of the longest token: a text of n bytes has at least n / this many tokens."""
        return max(map(len, self.pieces))

    @cached_property
    def adds_space(self) -> bool:
        """Whether tokenising a text alone puts a space in front of it (SentencePiece)."""
        ids = self.tokenize("a", add_special=False, parse_special=False)
        return self.detokenize(ids).startswith(b" ")

    @property
    def chat_template(self) -> str | None:
        return self._template(None)

    @property
    def tool_template(self) -> str | None:
        """The template of its own that some models carry for requests with tools."""
        return self._template(b"tool_use")

    def _template(self, name: bytes | None) -> str | None:
        raw = llama_cpp.llama_model_chat_template(self._model, name)
        return None if raw is None else raw.decode("utf-8", "replace")

    def lltokenizer(self) -> LLTokenizer:
        """A new llguidance tokenizer (0.2 s for 49 000 tokens: make one and keep it).

        Only hidden tokens count as special in it: what shows in the answer, `<think>` say, is text
        to a grammar, however many tokens spell it. (llguidance.llamacpp would set those apart.)
        """
        ends = sorted(self.eogs - {self.eos})
        if self.eos >= 0:
            ends.insert(0, self.eos)
        if not ends:
            raise VocabError("the vocabulary has no end-of-generation token: no grammar can end")
        special = self.hidden | self.eogs
        made: LLTokenizer = LLTokenizer.from_llamacpp(  # type: ignore[attr-defined]
            tokens=[b"\xff" + p if t in special else p for t, p in enumerate(self.pieces)],
            vocab_ptr=self.handle,
            tokenize_fptr=ctypes.cast(llama_cpp._lib.llama_tokenize, ctypes.c_void_p).value,
            eos_token=ends,
            slices=None,
        )
        return made
