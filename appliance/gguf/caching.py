"""What a model's metadata says of its cache beyond the heads of its layers."""

from dataclasses import dataclass

from appliance.gguf.contents import Contents
from appliance.gguf.facts import WIDTH, whole

WINDOW = 2**31 - 1
LAYERS = 512

_PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "exaone4": 4}
"""One layer in so many sees everything, where the file names a window and no pattern."""
_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_STATE_BYTES = 4
"""llama.cpp keeps recurrent states as float32."""


@dataclass(frozen=True, slots=True)
class Cache:
    """Facts that most models do without."""

    window: int = 0
    """Tokens that a layer with a sliding window sees; 0: none has one."""
    windowed: tuple[bool, ...] = ()
    """Of each layer, whether it has the window; empty: none has."""
    recurrent: tuple[bool, ...] = ()
    """Of each layer, whether it keeps a state of fixed size instead of keys and values."""
    state_bytes: int = 0
    """Of one sequence, in all recurrent layers."""
    shared: int = 0
    """Layers at the end that use the keys and values of earlier ones."""
    latent: bool = False
    """Keys and values are one compressed vector (MLA), kept as a key alone."""


NOTHING = Cache()


def cache_of(contents: Contents, arch: str, layers: int) -> Cache:
    """Raises BadModel where the metadata is out of bounds."""
    window = whole(contents, f"{arch}.attention.sliding_window", 0, WINDOW, 0)
    recurrent = _recurrent(contents, arch, layers)
    return Cache(
        window=window,
        windowed=_windowed(contents, arch, layers) if window else (),
        recurrent=recurrent,
        state_bytes=sum(recurrent) * _state_bytes(contents, arch),
        shared=whole(contents, f"{arch}.attention.shared_kv_layers", 0, LAYERS, 0),
        latent=all(
            whole(contents, f"{arch}.attention.{part}_length_mla", 0, WIDTH, 0) > 0
            for part in ("key", "value")
        ),
    )


def _windowed(contents: Contents, arch: str, layers: int) -> tuple[bool, ...]:
    key = f"{arch}.attention.sliding_window_pattern"
    if key in contents.arrays:
        marks = contents.arrays[key].numbers
        return tuple(bool(mark) for mark in marks[:layers]) if len(marks) >= layers else ()
    every = whole(contents, key, 0, LAYERS, _PATTERNS.get(arch, 1))
    if every <= 1:
        return (every == 1,) * layers
    return tuple((layer + 1) % every != 0 for layer in range(layers))


def _recurrent(contents: Contents, arch: str, layers: int) -> tuple[bool, ...]:
    if arch in _RECURRENT:
        return (True,) * layers
    every = whole(contents, f"{arch}.full_attention_interval", 0, LAYERS, 0)
    if every:
        return tuple((layer + 1) % every != 0 for layer in range(layers))
    if f"{arch}.ssm.state_size" not in contents.keys and arch != "lfm2":
        return ()
    heads = contents.arrays.get(f"{arch}.attention.head_count_kv")
    return tuple(n == 0 for n in heads.numbers[:layers]) if heads is not None else ()


def _state_bytes(contents: Contents, arch: str) -> int:
    """Of one recurrent layer and one sequence."""
    inner = whole(contents, f"{arch}.ssm.inner_size", 0, WIDTH, 0)
    state = whole(contents, f"{arch}.ssm.state_size", 0, WIDTH, 0)
    groups = whole(contents, f"{arch}.ssm.group_count", 0, WIDTH, 0)
    kernel = whole(contents, f"{arch}.ssm.conv_kernel", 0, WIDTH, 0)
    if inner:
        convolved = max(0, kernel - 1) * (inner + 2 * groups * state)
        return _STATE_BYTES * (convolved + state * inner)
    width = whole(contents, f"{arch}.embedding_length", 0, WIDTH, 0)
    if head := whole(contents, f"{arch}.wkv.head_size", 0, WIDTH, 0):
        return _STATE_BYTES * (2 * width + width * head)
    short = whole(contents, f"{arch}.shortconv.l_cache", 0, WIDTH, 0)
    return _STATE_BYTES * max(0, short - 1) * width
