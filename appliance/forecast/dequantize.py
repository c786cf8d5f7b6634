"""Rows of a GGUF tensor as float32. The layouts are ggml's (ggml-common.h, ggml-quants.c)."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
"""uint8 [blocks, bytes per block]."""
Blocks = NDArray[np.float32]
"""float32 [blocks, weights per block]."""


def dequantize(type_name: str, blocks: Bytes) -> Blocks:
    """The weights. Raises KeyError for a type that is not in READABLE."""
    return _READERS[type_name](blocks)


def _half(blocks: Bytes, at: int) -> NDArray[np.float32]:
    """float16 at byte `at` of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _plain(kind: Any) -> Callable[[Bytes], Blocks]:
    return lambda blocks: np.ascontiguousarray(blocks).view(kind).astype(np.float32)


def _bf16(blocks: Bytes) -> Blocks:
    high = np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32) << 16
    return high.view(np.float32)


def _nibbles(packed: Bytes) -> NDArray[np.uint8]:
    """The low halves of all bytes, then the high halves."""
    return np.concatenate((packed & 15, packed >> 4), axis=1)


def _fifths(blocks: Bytes, at: int) -> NDArray[np.uint8]:
    """The fifth bits of 32 weights, packed in 4 bytes at `at`, each as 0 or 16."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: Bytes) -> Blocks:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Blocks:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Blocks:
    whole = _nibbles(blocks[:, 6:]) | _fifths(blocks, 2)
    return _half(blocks, 0) * (whole.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Blocks:
    whole = _nibbles(blocks[:, 8:]) | _fifths(blocks, 4)
    return _half(blocks, 0) * whole.astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Blocks:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _scales(packed: Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Eight 6-bit scales and eight 6-bit minima from 12 bytes (get_scale_min_k4)."""
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 6) << 4)), axis=1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 6) << 4)), axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_nibbles(packed: Bytes) -> NDArray[np.uint8]:
    """uint8 [blocks, 8, 32]: each 32 bytes hold 32 low halves, then 32 high halves."""
    groups = packed.reshape(len(packed), 4, 1, 32)
    return np.concatenate((groups & 15, groups >> 4), axis=2).reshape(len(packed), 8, 32)


def _scaled(blocks: Bytes, whole: NDArray[np.uint8]) -> Blocks:
    scales, minima = _scales(blocks[:, 4:16])
    steps, floors = _half(blocks, 0) * scales, _half(blocks, 2) * minima
    return (steps[:, :, None] * whole - floors[:, :, None]).reshape(len(blocks), 256)


def _q4_k(blocks: Bytes) -> Blocks:
    return _scaled(blocks, _k_nibbles(blocks[:, 16:]))


def _q5_k(blocks: Bytes) -> Blocks:
    shifts = np.arange(8, dtype=np.uint8)[None, :, None]
    fifths: NDArray[np.uint8] = (blocks[:, None, 16:48] >> shifts & np.uint8(1)) << np.uint8(4)
    return _scaled(blocks, _k_nibbles(blocks[:, 48:]) | fifths)


def _q6_k(blocks: Bytes) -> Blocks:
    count = len(blocks)
    low = blocks[:, :128].reshape(count, 2, 1, 64)
    low = np.concatenate((low & 15, low >> 4), axis=2).reshape(count, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(count, 2, 1, 32) >> shifts) & 3
    whole = (low | high << 4).astype(np.float32).reshape(count, 16, 16) - 32
    steps = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (steps[:, :, None] * whole).reshape(count, 256)


_READERS: dict[str, Callable[[Bytes], Blocks]] = {
    "F32": _plain(np.float32),
    "F16": _plain(np.float16),
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
READABLE = frozenset(_READERS)
