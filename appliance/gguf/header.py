"""What the box needs to know of a model before llama.cpp opens it."""

import os
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from appliance.gguf.contents import Contents, read_contents
from appliance.gguf.reader import BadModel, Reader
from appliance.gguf.tables import F32, I32, KV_TYPES, STRING, U32, file_type_name

LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""
WIDTH = 1_048_576
CONTEXT = 2**31 - 1

_EMBEDDING = "an embedding model"
_OTHERS = {
    "clip": "a vision projector (mmproj)",
    "bert": _EMBEDDING,
    "modern-bert": _EMBEDDING,
    "neo-bert": _EMBEDDING,
    "nomic-bert": _EMBEDDING,
    "nomic-bert-moe": _EMBEDDING,
    "jina-bert-v2": _EMBEDDING,
    "jina-bert-v3": _EMBEDDING,
    "eurobert": _EMBEDDING,
    "gemma-embedding": _EMBEDDING,
    "t5": "an encoder-decoder model",
    "t5encoder": _EMBEDDING,
    "wavtokenizer-dec": "an audio decoder",
}
_TYPES = {
    "adapter": "a LoRA adapter (list it under model.lora)",
    "mmproj": "a vision projector (mmproj)",
    "vocab": "a vocabulary without a model",
    "imatrix": "an importance matrix",
}


@dataclass(frozen=True, slots=True)
class Header:
    """The facts of one model file."""

    architecture: str
    name: str
    n_ctx_train: int
    n_layers: int
    n_embd: int
    n_head: tuple[int, ...]
    """Attention heads of each layer."""
    n_head_kv: tuple[int, ...]
    """Heads of each layer that have keys and values of their own (0: no attention)."""
    key_length: int
    """Size of one head's key."""
    value_length: int
    n_vocab: int
    file_type: str
    """Name of the quantisation, e.g. Q4_K_M."""
    chat_template: str | None
    tokenizer: str
    n_params: int
    file_size: int
    quantization: tuple[tuple[str, int], ...]
    """Tensor types and how many tensors have each, the most frequent first."""

    def kv_bytes_per_token(self, kv_type: str) -> int:
        """Bytes that one token takes in the KV cache, over all layers. Heads that share keys are
        counted once. Sliding windows and recurrent layers take less than this says.
        """
        per_block, block_bytes = KV_TYPES[kv_type]
        return sum(
            -(-heads * length // per_block) * block_bytes
            for heads in self.n_head_kv
            for length in (self.key_length, self.value_length)
        )


def read(path: Path) -> Header:
    """Check the file and return its facts. Raises BadModel, whose text begins with the path."""
    try:
        return _read(path)
    except BadModel as error:
        raise BadModel(f"{path}: {error}") from None
    except OSError as error:
        raise BadModel(f"{path}: cannot be read: {error.strerror or error}") from error


def _read(path: Path) -> Header:
    # Non-blocking, so that a named pipe cannot hold us up before we see what it is.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise BadModel("it is not a regular file")
        contents = read_contents(Reader(file, found.st_size), found.st_size)
    _check_kind(contents)
    _check_vocabulary(contents)
    return _header(contents, found.st_size)


def _check_kind(contents: Contents) -> None:
    architecture = _text(contents, "general.architecture")
    kind = _TYPES.get(_text(contents, "general.type")) or _OTHERS.get(architecture)
    if kind is None and _says_embedding(contents, architecture):
        kind = _EMBEDDING
    if kind is not None:
        raise BadModel(f"it is {kind}, not a language model")
    if not architecture:
        raise BadModel("it names no general.architecture, so it is not a language model")
    parts = _whole(contents, "split.count", 0, 65535, 1)
    if parts > 1:
        raise BadModel(
            f"it is one of {parts} parts of a split model: join them with llama-gguf-split --merge"
        )
    if not contents.tensors:
        raise BadModel("it holds no tensors: it is a vocabulary without a model")


def _says_embedding(contents: Contents, architecture: str) -> bool:
    """Pooling into one vector, or attention that looks ahead."""
    pooling = contents.values.get(f"{architecture}.pooling_type", 0)
    return bool(pooling) or contents.values.get(f"{architecture}.attention.causal") is False


def _check_vocabulary(contents: Contents) -> None:
    """A tokenizer is there and its tables have one entry per token: a shorter one would be read
    past its end.
    """
    if _text(contents, "tokenizer.ggml.model") in ("", "none", "no_vocab"):
        raise BadModel("it has no tokenizer, so it cannot serve text")
    tokens = contents.arrays.get("tokenizer.ggml.tokens")
    if tokens is None or tokens.kind != STRING or tokens.count == 0:
        raise BadModel("its tokenizer has no list of tokens")
    for name, kinds in (("scores", (F32,)), ("token_type", (I32, U32))):
        key = f"tokenizer.ggml.{name}"
        table = contents.arrays.get(key)
        if key in contents.keys and (table is None or table.kind not in kinds):
            raise BadModel(f"`{key}` is not a list of the right type")
        if table is not None and table.count != tokens.count:
            raise BadModel(f"`{key}` has {table.count} entries for {tokens.count} tokens")


def _header(contents: Contents, size: int) -> Header:
    arch = _text(contents, "general.architecture")
    layers = _whole(contents, f"{arch}.block_count", 1, LAYERS)
    width = _whole(contents, f"{arch}.embedding_length", 1, WIDTH)
    heads = _per_layer(contents, f"{arch}.attention.head_count", layers, (0,) * layers)
    most = max(heads)
    length = width // most if most else 0
    types = Counter(tensor.type_name for tensor in contents.tensors)
    return Header(
        architecture=arch,
        name=_text(contents, "general.name"),
        n_ctx_train=_whole(contents, f"{arch}.context_length", 1, CONTEXT),
        n_layers=layers,
        n_embd=width,
        n_head=heads,
        n_head_kv=_per_layer(contents, f"{arch}.attention.head_count_kv", layers, heads),
        key_length=_whole(contents, f"{arch}.attention.key_length", 0, WIDTH, length),
        value_length=_whole(contents, f"{arch}.attention.value_length", 0, WIDTH, length),
        n_vocab=contents.arrays["tokenizer.ggml.tokens"].count,
        file_type=file_type_name(_whole(contents, "general.file_type", 0, 2**16, -1)),
        chat_template=_text(contents, "tokenizer.chat_template") or None,
        tokenizer=_text(contents, "tokenizer.ggml.model"),
        n_params=sum(tensor.elements for tensor in contents.tensors),
        file_size=size,
        quantization=tuple(types.most_common()),
    )


def _text(contents: Contents, key: str) -> str:
    found = contents.values.get(key, "")
    if not isinstance(found, str) or key in contents.arrays:
        raise BadModel(f"`{key}` is not a text")
    return found


def _whole(contents: Contents, key: str, low: int, high: int, default: int | None = None) -> int:
    """A whole number within bounds; with a default it may be missing."""
    if default is not None and key not in contents.keys:
        return default
    found = contents.values.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        is_what = f"is {found!r}" if found is not None else "has another type"
        raise BadModel(
            f"`{key}` {is_what if key in contents.keys else 'is missing'}, and must be a whole "
            f"number from {low} to {high}"
        )
    return found


def _per_layer(
    contents: Contents, key: str, layers: int, default: tuple[int, ...]
) -> tuple[int, ...]:
    """One number for all layers, or a list with one for each."""
    array = contents.arrays.get(key)
    if array is None:
        return (_whole(contents, key, 0, WIDTH),) * layers if key in contents.keys else default
    numbers = tuple(n for n in array.numbers if isinstance(n, int) and 0 <= n <= WIDTH)
    if array.count < layers or len(numbers) != array.count:
        raise BadModel(f"`{key}` is not a list of whole numbers, one for each of {layers} layers")
    return numbers[:layers]
