"""Sentence embeddings: all-MiniLM-L6-v2 with INT8 weights on ONNX Runtime.

Each text is run alone, never padded beside others, so its vector does not depend on its company.
"""

import hashlib
import importlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.gguf import BadModel
from appliance.models import encoder_files

NAME = "all-minilm-l6-v2-int8"
ALIASES = frozenset({NAME, "all-MiniLM-L6-v2", "minilm"})
DIMENSIONS = 384
MAX_TOKENS = 256
"""What the model was trained with, [CLS] and [SEP] included."""
MAX_CHARACTERS = 65536
"""Of one text, so that none is tokenised for long only to be refused."""
VOCABULARY = 30522
CLS, SEP = 101, 102

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

Vector = NDArray[np.float32]


class EncoderError(Exception):
    """The encoder cannot be used here. Says why, without telling paths."""


class TextTooLongError(ValueError):
    """A text is more than the encoder reads. `index` tells which, `size` how long it is."""

    def __init__(self, index: int, size: str) -> None:
        super().__init__(f"input {index} has {size}; the encoder reads {MAX_TOKENS} tokens")
        self.index = index
        self.size = size


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of length 1, and what they cost."""

    vectors: tuple[Vector, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class _Loaded:
    session: Any
    tokenizer: Any
    providers: tuple[str, ...]


class Encoder:
    """Loads on first use. Every method may be called from any thread; one runs at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self._problem = ""

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers in use; empty before the first use."""
        return self._loaded.providers if self._loaded is not None else ()

    @property
    def problem(self) -> str:
        """Why the last use failed; empty when all is well."""
        return self._problem

    def embed(self, inputs: Sequence[str | Sequence[int]]) -> Embedded:
        """One vector per text, or per list of the encoder's own token ids. Raises EncoderError,
        TextTooLongError."""
        with self._lock:
            loaded = self._load()
            rows = [self._tokens(loaded, index, entry) for index, entry in enumerate(inputs)]
            vectors = tuple(_run(loaded.session, row) for row in rows)
        return Embedded(vectors, sum(len(row) for row in rows))

    def tokens(self, text: str) -> list[int]:
        """The encoder's own ids of a text of any length. Raises EncoderError."""
        with self._lock:
            ids: list[int] = self._load().tokenizer.encode(text).ids
        return ids

    def tokens_of(self, texts: Sequence[str]) -> list[list[int]]:
        """The encoder's own ids of each text. Raises EncoderError."""
        return [self.tokens(text) for text in texts]

    def _load(self) -> _Loaded:
        if self._loaded is None:
            try:
                self._loaded = _open()
                self._problem = ""
            except (BadModel, EncoderError, ImportError) as error:
                self._problem = str(error)
                raise EncoderError(f"embeddings are not available: {error}") from error
        return self._loaded

    def _tokens(self, loaded: _Loaded, index: int, entry: str | Sequence[int]) -> list[int]:
        if isinstance(entry, str):
            if len(entry) > MAX_CHARACTERS:
                raise TextTooLongError(index, f"{len(entry)} characters")
            ids: list[int] = loaded.tokenizer.encode(entry).ids
        else:
            ids = list(entry) if entry[:1] == [CLS] else [CLS, *entry, SEP]
        if len(ids) > MAX_TOKENS:
            raise TextTooLongError(index, f"{len(ids)} tokens")
        return ids


def _open() -> _Loaded:
    from tokenizers import Tokenizer

    onnxruntime: Any = importlib.import_module("onnxruntime")
    files = encoder_files()
    model = _checked(files.model, MODEL_SHA256)
    tokenizer = Tokenizer.from_str(_checked(files.tokenizer, TOKENIZER_SHA256).decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    wanted = [name for name in _PREFERRED if name in onnxruntime.get_available_providers()]
    session = onnxruntime.InferenceSession(model, options, providers=wanted)
    return _Loaded(session, tokenizer, tuple(session.get_providers()))


_PREFERRED = ("CUDAExecutionProvider", "CPUExecutionProvider")


def _checked(path: Path, sha256: str) -> bytes:
    """The file's bytes, which are then used, so that nothing can change in between."""
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise EncoderError(
            f"{path.name} has SHA-256 {found} instead of {sha256}: install its package again"
        )
    return data


def _run(session: Any, row: list[int]) -> Vector:
    """Mean over the tokens, then scaled to length 1, as the model was trained."""
    ids = np.array([row], dtype=np.int64)
    feeds = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    hidden = session.run(None, feeds)[0][0]
    mean: Vector = hidden.mean(axis=0)
    return mean / np.float32(max(float(np.linalg.norm(mean)), 1e-12))
