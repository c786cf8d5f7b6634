"""What the box needs to know of a model before llama.cpp opens it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.gguf.caching import NOTHING, Cache, cache_of
from appliance.gguf.contents import Contents
from appliance.gguf.facts import WIDTH, per_layer, said, text, whole
from appliance.gguf.parts import other_parts, read_file
from appliance.gguf.reader import BadModel
from appliance.gguf.tables import F32, I32, KV_TYPES, STRING, U32, file_type_name

LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""
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
    "adapter": "a LoRA adapter (`steelyard model add` puts it beside its model)",
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
    parts: int = 1
    """Files that the model is in."""
    pre_tokenizer: str = ""
    """How text is cut before its pieces are looked up; empty: the file does not say."""
    licence: str = ""
    """What the file says of it, as an SPDX name or in words; empty: nothing."""
    licence_link: str = ""
    tensor_bytes: int = 0
    """Bytes of the weights: what the file holds besides its metadata."""
    n_ff: int = 0
    """Width of the feed-forward network, the widest layer's, or of all experts that a token uses
    together; 0: the file does not say."""
    cache: Cache = NOTHING
    """What else decides the size of the cache."""

    def kv_bytes_per_token(self, kv_type: str) -> int:
        """Bytes that one token takes in the KV cache, over all layers. Heads that share keys are
        counted once, layers that keep a state instead or use another layer's keys not at all.
        Sliding windows are counted whole, as the engine keeps them.
        """
        return sum(self.kv_bytes_of_layers(kv_type))

    def kv_bytes_of_layers(self, kv_type: str) -> tuple[int, ...]:
        """Bytes that one token takes in the KV cache, of each layer."""
        per_block, block_bytes = KV_TYPES[kv_type]
        own = self.n_layers - self.cache.shared
        lengths = (self.key_length, 0 if self.cache.latent else self.value_length)
        recurrent = self.cache.recurrent or (False,) * self.n_layers
        return tuple(
            0
            if layer >= own or recurrent[layer]
            else sum(-(-heads * length // per_block) * block_bytes for length in lengths)
            for layer, heads in enumerate(self.n_head_kv)
        )


def read(path: Path) -> Header:
    """Check the file, and all others if it is the first of several; return the model's facts.
    Raises BadModel, whose text begins with the path.
    """
    first, size = read_file(path)
    try:
        _check_kind(first)
        _check_vocabulary(first)
        others = other_parts(path, first)
        files = [first, *(contents for contents, _ in others)]
        if not any(contents.tensors for contents in files):
            raise BadModel("it holds no tensors: it is a vocabulary without a model")
        return _header(files, size + sum(more for _, more in others))
    except BadModel as error:
        raise error.of(path) from None


def _check_kind(contents: Contents) -> None:
    architecture = text(contents, "general.architecture")
    kind = _TYPES.get(text(contents, "general.type")) or _OTHERS.get(architecture)
    if kind is None and _says_embedding(contents, architecture):
        kind = _EMBEDDING
    if kind is not None:
        raise BadModel(f"it is {kind}, not a language model")
    if not architecture or not architecture.isprintable():
        raise BadModel("it names no general.architecture, so it is not a language model")


def _says_embedding(contents: Contents, architecture: str) -> bool:
    """Pooling into one vector, or attention that looks ahead."""
    pooling = contents.values.get(f"{architecture}.pooling_type", 0)
    return bool(pooling) or contents.values.get(f"{architecture}.attention.causal") is False


def _check_vocabulary(contents: Contents) -> None:
    """A tokenizer is there and its tables have one entry per token: a shorter one would be read
    past its end.
    """
    if text(contents, "tokenizer.ggml.model") in ("", "none", "no_vocab"):
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


def _header(files: Sequence[Contents], size: int) -> Header:
    """Of a model in one or several files, the first of which has the metadata."""
    contents = files[0]
    arch = text(contents, "general.architecture")
    layers = whole(contents, f"{arch}.block_count", 1, LAYERS)
    width = whole(contents, f"{arch}.embedding_length", 1, WIDTH)
    heads = per_layer(contents, f"{arch}.attention.head_count", layers, (0,) * layers)
    most = max(heads)
    length = width // most if most else 0
    tensors = [tensor for part in files for tensor in part.tensors]
    types = Counter(tensor.type_name for tensor in tensors)
    return Header(
        architecture=arch,
        name=text(contents, "general.name"),
        n_ctx_train=whole(contents, f"{arch}.context_length", 1, CONTEXT),
        n_layers=layers,
        n_embd=width,
        n_head=heads,
        n_head_kv=per_layer(contents, f"{arch}.attention.head_count_kv", layers, heads),
        key_length=whole(contents, f"{arch}.attention.key_length", 0, WIDTH, length),
        value_length=whole(contents, f"{arch}.attention.value_length", 0, WIDTH, length),
        n_vocab=contents.arrays["tokenizer.ggml.tokens"].count,
        file_type=file_type_name(whole(contents, "general.file_type", 0, 2**16, -1)),
        chat_template=text(contents, "tokenizer.chat_template") or None,
        tokenizer=text(contents, "tokenizer.ggml.model"),
        n_params=sum(tensor.elements for tensor in tensors),
        file_size=size,
        quantization=tuple(types.most_common()),
        parts=len(files),
        pre_tokenizer=text(contents, "tokenizer.ggml.pre"),
        licence=said(contents, "general.license"),
        licence_link=said(contents, "general.license.link"),
        tensor_bytes=sum(tensor.size for tensor in tensors),
        n_ff=_network_width(contents, arch, layers),
        cache=cache_of(contents, arch, layers),
    )


def _network_width(contents: Contents, arch: str, layers: int) -> int:
    dense = max(per_layer(contents, f"{arch}.feed_forward_length", layers, (0,)))
    expert = whole(contents, f"{arch}.expert_feed_forward_length", 0, WIDTH, 0)
    return max(dense, expert * whole(contents, f"{arch}.expert_used_count", 0, LAYERS, 0))
