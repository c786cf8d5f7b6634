"""The token embedding rows of the served model, read from its file as they are needed."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.dequantize import READABLE, dequantize
from appliance.forecast.encoder import EncoderError
from appliance.gguf import BadModel
from appliance.gguf.place import Place, find, open_model
from appliance.gguf.tables import TENSORS

NAME = "token_embd.weight"
WIDTH = 65536
"""Of a row, at most: the widest models have 16 384."""
CACHED_BYTES = 8 * 1024 * 1024
"""Of rows kept, as half-precision numbers: common tokens come again and again."""
SAMPLED = 2048
"""Rows that the centre is estimated from, spread evenly over the table."""

_BLOCKS = {name: (weights, size) for name, weights, size in TENSORS.values()}

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]


class TokenTable:
    """Rows by token id. Keeps the file open; one thread at a time.

    Not memory-mapped: a file that shrinks must be an error, not a SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        """Raises EncoderError: not a model, or a table of a kind that is not read here."""
        try:
            self._file = open_model(path)
        except OSError as error:
            raise EncoderError(f"the model cannot be read: {error.strerror}") from error
        try:
            self._place = _checked(self._file)
        except BaseException:
            self._file.close()
            raise
        self.width: int = self._place.shape[0]
        self.count: int = self._place.shape[1]
        weights, size = _BLOCKS[self._place.type_name]
        self._row_bytes = self.width // weights * size
        self._block_bytes = size
        self._cache: dict[int, NDArray[np.float16]] = {}
        self._room = max(1, CACHED_BYTES // (2 * self.width))

    def known(self, ids: Sequence[int]) -> list[int]:
        """Those of them that the table has rows for."""
        return [token for token in ids if 0 <= token < self.count]

    def rows(self, ids: Sequence[int]) -> Matrix:
        """float32 [ids, width]. Ids outside the table are passed over, so there may be fewer.
        Raises EncoderError when the file shrank.
        """
        wanted = self.known(ids)
        self._load([token for token in dict.fromkeys(wanted) if token not in self._cache])
        found = np.empty((len(wanted), self.width), dtype=np.float32)
        for at, token in enumerate(wanted):
            found[at] = self._cache[token]
        self._forget()
        return found

    def centre(self) -> Vector:
        """float32 [width]: about the mean of all rows, which all of them have in common. Raises
        EncoderError.
        """
        step = max(1, self.count // SAMPLED)
        total = np.zeros(self.width, dtype=np.float64)
        ids = range(0, self.count, step)
        for at in range(0, len(ids), 256):
            total += self.rows(ids[at : at + 256]).sum(axis=0, dtype=np.float64)
        self._cache.clear()
        return (total / len(ids)).astype(np.float32)

    def close(self) -> None:
        self._file.close()

    def _load(self, ids: list[int]) -> None:
        if not ids:
            return
        raw = b"".join(self._read(token) for token in ids)
        blocks = np.frombuffer(raw, dtype=np.uint8).reshape(-1, self._block_bytes)
        rows = dequantize(self._place.type_name, blocks).reshape(len(ids), self.width)
        with np.errstate(over="ignore"):
            halves = rows.astype(np.float16)
        self._cache.update(zip(ids, halves, strict=True))

    def _read(self, token: int) -> bytes:
        at = self._place.start + token * self._row_bytes
        data = os.pread(self._file.fileno(), self._row_bytes, at)
        if len(data) != self._row_bytes:
            raise EncoderError("the model file became shorter: restore it and start the box again")
        return data

    def _forget(self) -> None:
        """The oldest go first; a common token that goes is read again soon."""
        while len(self._cache) > self._room:
            del self._cache[next(iter(self._cache))]


def _checked(file: BinaryIO) -> Place:
    try:
        place = find(file, NAME)
    except (BadModel, OSError) as error:
        raise EncoderError(f"the model's token table cannot be read: {error}") from error
    if place is None or len(place.shape) != 2:
        raise EncoderError(f"the model has no table `{NAME}` of rows")
    if place.type_name not in READABLE:
        raise EncoderError(
            f"the model's token table is {place.type_name}, which is not read here; "
            f"these are: {', '.join(sorted(READABLE))}"
        )
    if place.shape[0] > WIDTH:
        raise EncoderError(f"the model's token rows are {place.shape[0]} wide; at most {WIDTH}")
    return place
