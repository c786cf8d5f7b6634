"""What a step's rows of logits come to, read once for all of its sequences.

Our own library does it in one call (kernels/steelyard_rows.h). A build without it, or
STEELYARD_KERNELS=off, has the same from NumPy.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.engine.reports import FIRST_LOGITS

Logits = NDArray[np.float32]

LEAST = np.float32(-87.0)
"""Nats below the highest logit from which on a token counts for nothing."""


_Number = TypeVar("_Number", covariant=True)


class Column(Protocol[_Number]):
    """A list, or an array of C."""

    def __getitem__(self, row: int, /) -> _Number: ...

    def __len__(self) -> int: ...


class Rows(msgspec.Struct, frozen=True):
    """One member per row each; there may be more of them than rows."""

    best: Column[int]
    """The first place of the highest logit; -1 where that is no usable number."""
    highest: Column[float]
    ends: Column[float]
    """The highest logit among end-of-generation tokens; -inf where the model has none."""


class Spread(msgspec.Struct, frozen=True):
    """Of the softmax of one row. Nats."""

    log_sum: float
    """Logarithm of the sum of all e^logit: logit - log_sum is a token's log-probability."""
    entropy: float


class Reader:
    """Reads rows of one model."""

    def __init__(self, eogs: Iterable[int], library: Any = None) -> None:
        """`eogs`: the tokens that end a generation. `library`: llama.cpp's, which may hold ours."""
        self._eogs = np.array(sorted(eogs), dtype=np.int32)
        self._ends = (_pointer(self._eogs) if self._eogs.size else None, self._eogs.size)
        self._read_rows, self._read_spread = _functions(library)
        self._rows = _room(1)
        self._logits: Logits | None = None
        self._at: Any = None
        self._spread = (ctypes.c_double * 2)()

    def read(self, logits: Logits) -> Rows:
        """`logits`: (rows, n_vocab), contiguous and writable. The answer holds until the next."""
        count = len(logits)
        if self._read_rows is None or not count:
            return read(logits, self._eogs)
        if count > len(self._rows.best):
            self._rows = _room(count)
        if logits is not self._logits:  # the runner has one array as long as it can
            self._logits, self._at = logits, _pointer(logits)
        rows = self._rows
        self._read_rows(self._at, *logits.shape, *self._ends, rows.best, rows.highest, rows.ends)
        return rows

    def spread(self, row: Logits, highest: float) -> Spread:
        """Of one row, whose highest logit (a finite one) is known."""
        if self._read_spread is None:
            return spread(row, highest)
        self._read_spread(_pointer(row), len(row), highest, self._spread)
        return Spread(*self._spread)


def first_tokens(n_vocab: int) -> NDArray[np.int64]:
    """Whose logits `messages.FirstLogits` tells."""
    return np.linspace(0, n_vocab - 1, FIRST_LOGITS).astype(np.int64)


def first_values(row: Logits, highest: float, tokens: NDArray[np.int64]) -> bytes:
    """As `messages.FirstLogits.values`; `highest` is the row's."""
    return (row[tokens] - np.float32(highest)).astype("<f4").tobytes()


def read(logits: Logits, eogs: NDArray[np.int32]) -> Rows:
    """`Reader.read` in NumPy."""
    best = logits.argmax(axis=1)  # NaN counts as the highest
    highest = logits[np.arange(len(logits)), best]
    ends = logits[:, eogs].max(axis=1, initial=-np.inf)
    usable = np.where(np.isfinite(highest), best, -1)
    return Rows(usable.tolist(), highest.tolist(), ends.tolist())


def spread(row: Logits, highest: float) -> Spread:
    """`Reader.spread` in NumPy."""
    below = np.maximum(row - np.float32(highest), LEAST)  # else -inf times 0 is no number
    parts = np.exp(below)
    mass = float(parts.sum(dtype=np.float64))
    log_mass = float(np.log(mass))
    return Spread(highest + log_mass, log_mass - float(np.dot(parts, below)) / mass)


def _room(count: int) -> Rows:
    floats = ctypes.c_float * count
    return Rows((ctypes.c_int32 * count)(), floats(), floats())


def _pointer(array: Any) -> Any:
    """Where the array lies. Its own `ctypes` would take ten times as long to tell."""
    return ctypes.byref(ctypes.c_char.from_buffer(array))


def _functions(library: Any) -> tuple[Any, Any]:
    """Ours, for rows and for spreads; None where they are not, or not wanted."""
    if os.environ.get("STEELYARD_KERNELS") == "off" or not hasattr(library, "steelyard_rows"):
        return None, None
    rows, spread = library.steelyard_rows, library.steelyard_spread
    address, count = ctypes.c_void_p, ctypes.c_int64
    rows.argtypes = (address, count, count, address, count, address, address, address)
    spread.argtypes = (address, count, ctypes.c_float, address)
    rows.restype = spread.restype = None
    return rows, spread
