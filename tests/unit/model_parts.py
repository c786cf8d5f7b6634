"""Models of a few hundred kB that llama.cpp really loads: one layer, random weights."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.test_gguf import ARR, BOOL, F32, I32, STR, U32, text, value_bytes

U16 = 2
WIDTH, HEADS, HEADS_KV, INNER, CONTEXT = 32, 4, 2, 64, 256
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁the", "▁and", "▁pump", "in", "er", "▁", "a", "e"]

Pairs = dict[str, tuple[int, Any]]
Tensor = tuple[str, np.ndarray[Any, np.dtype[np.float32]]]


def pairs(words: list[str] | None = None, **more: tuple[int, Any] | None) -> Pairs:
    """The metadata; `__` in a name stands for `.`, None takes a pair away."""
    words = WORDS if words is None else words
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *words]
    types = [2, 3, 3, *[6] * 256, *[1] * len(words)]
    found: dict[str, tuple[int, Any] | None] = {
        "general.architecture": (STR, "llama"),
        "general.name": (STR, "Mite"),
        "general.file_type": (U32, 0),
        "general.license": (STR, "apache-2.0"),
        "llama.context_length": (U32, CONTEXT),
        "llama.block_count": (U32, 1),
        "llama.embedding_length": (U32, WIDTH),
        "llama.feed_forward_length": (U32, INNER),
        "llama.attention.head_count": (U32, HEADS),
        "llama.attention.head_count_kv": (U32, HEADS_KV),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "tokenizer.ggml.model": (STR, "llama"),
        "tokenizer.ggml.tokens": (ARR, (STR, tokens)),
        "tokenizer.ggml.scores": (ARR, (F32, [-float(i) for i in range(len(tokens))])),
        "tokenizer.ggml.token_type": (ARR, (I32, types)),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.unknown_token_id": (U32, 0),
        "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.chat_template": (STR, TEMPLATE),
    }
    found |= {name.replace("__", "."): pair for name, pair in more.items()}
    return {name: pair for name, pair in found.items() if pair is not None}


def tensors(n_vocab: int = 3 + 256 + len(WORDS), seed: int = 1) -> list[Tensor]:
    """The weights, the length of a row last, as NumPy has it."""
    draw = np.random.default_rng(seed)
    kv = WIDTH // HEADS * HEADS_KV
    shapes = {
        "token_embd.weight": (n_vocab, WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (kv, WIDTH),
        "blk.0.attn_v.weight": (kv, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
    }
    return [
        (name, (draw.standard_normal(shape) * 0.1).astype(np.float32))
        for name, shape in shapes.items()
    ]


def gguf_bytes(pairs: Mapping[str, tuple[int, Any]], tensors: list[Tensor]) -> bytes:
    """A whole file."""
    head = b"GGUF\x03\0\0\0" + struct.pack("<QQ", len(tensors), len(pairs))
    for key, (kind, value) in pairs.items():
        raw = struct.pack("<H", value) if kind == U16 else value_bytes(kind, value)
        head += text(key) + struct.pack("<I", kind) + raw
    data = b""
    for name, weights in tensors:
        shape = weights.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", 0, len(data))
        data += weights.tobytes()
        data += b"\0" * (-len(data) % 32)
    return head + b"\0" * (-len(head) % 32) + data


def write_mite(path: Path, **more: tuple[int, Any] | None) -> Path:
    """A model in one file."""
    path.write_bytes(gguf_bytes(pairs(**more), tensors()))
    return path


def write_parts(folder: Path, stem: str = "mite", count: int = 3) -> list[Path]:
    """The same weights as `write_mite`, in several files. As llama.cpp's own tool writes them: all
    metadata and no tensors in the first."""
    weights = tensors()
    shares = [[], *(weights[number :: count - 1] for number in range(count - 1))]
    paths = []
    for number, share in enumerate(shares):
        split: Pairs = {
            "split.no": (U16, number),
            "split.count": (U16, count),
            "split.tensors.count": (I32, len(weights)),
        }
        path = folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"
        path.write_bytes(gguf_bytes((pairs() if number == 0 else {}) | split, share))
        paths.append(path)
    return paths


def write_lora(path: Path, rank: int = 2, architecture: str = "llama", rows: int = WIDTH) -> Path:
    """An adapter for the mite."""
    draw = np.random.default_rng(7)
    path.write_bytes(
        gguf_bytes(
            {
                "general.type": (STR, "adapter"),
                "general.architecture": (STR, architecture),
                "general.name": (STR, "Accent"),
                "adapter.type": (STR, "lora"),
                "adapter.lora.alpha": (F32, 4.0),
            },
            [
                ("blk.0.attn_q.weight.lora_a", draw.standard_normal((rank, rows), np.float32)),
                ("blk.0.attn_q.weight.lora_b", draw.standard_normal((WIDTH, rank), np.float32)),
            ],
        )
    )
    return path
