"""Writes small LoRA adapters that llama.cpp loads, without a library for it."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from appliance import gguf

_F32, _STRING = 6, 8
_ALIGNMENT = 32

Matrix = NDArray[np.float32]


def write_adapter(path: Path, model: Path, *, seed: int = 1, size: float = 1.0) -> Path:
    """A rank-2 adapter of random numbers for the queries and the first feed-forward matrix of each
    layer of a model. `size`: how much it changes; of about 1 a small model's answers differ."""
    header = gguf.read(model)
    random = np.random.default_rng(seed)
    queries = sum(header.n_head[:1]) * header.key_length
    tensors: dict[str, Matrix] = {}
    for layer in range(header.n_layers):
        name = f"blk.{layer}.attn_q.weight"
        a = random.standard_normal((2, header.n_embd)) / header.n_embd**0.5
        b = random.standard_normal((queries, 2)) * size
        tensors[f"{name}.lora_a"] = a.astype(np.float32)
        tensors[f"{name}.lora_b"] = b.astype(np.float32)
    write_gguf(path, header.architecture, tensors)
    return path


def write_gguf(path: Path, architecture: str, tensors: Mapping[str, Matrix]) -> None:
    """An adapter of these matrices, rows first."""
    values = [
        _pair("general.type", _STRING, _text("adapter")),
        _pair("general.architecture", _STRING, _text(architecture)),
        _pair("adapter.type", _STRING, _text("lora")),
        _pair("adapter.lora.alpha", _F32, struct.pack("<f", 2.0)),
    ]
    infos, data = b"", b""
    for name, matrix in tensors.items():
        rows, columns = matrix.shape
        data += bytes(-len(data) % _ALIGNMENT)
        infos += _text(name) + struct.pack("<IQQIQ", 2, columns, rows, 0, len(data))
        data += matrix.tobytes()
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(values)) + b"".join(values) + infos
    path.write_bytes(head + bytes(-len(head) % _ALIGNMENT) + data)


def _pair(key: str, kind: int, value: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + value


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
