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
from appliance.gguf.parts import part_with
from appliance.gguf.place import Place, find, open_model
from appliance.gguf.tables import TENSORS

NAME = "token_embd.weight"
WIDTH = 65536
"""Of a row, at most: the widest models have 16 384."""
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
            file = open_model(part_with(path, NAME))
        except BadModel as error:
            raise EncoderError(f"the model's token table cannot be read: {error}") from error
        except OSError as error:
            raise EncoderError(f"the model cannot be read: {error.strerror}") from error
        try:
            self._set(file, _checked(file))
        except BaseException:
            file.close()
            raise

    def again(self) -> "TokenTable":
        """The same, for another thread, closed apart. Raises OSError."""
        found = TokenTable.__new__(TokenTable)
        found._set(os.fdopen(os.dup(self._file.fileno()), "rb"), self._place)
        return found

    def _set(self, file: BinaryIO, place: Place) -> None:
        self._file, self._place = file, place
        self.width: int = self._place.shape[0]
        self.count: int = self._place.shape[1]
        weights, size = _BLOCKS[self._place.type_name]
        self._row_bytes = self.width // weights * size
        self._block_bytes = size

    def known(self, ids: Sequence[int]) -> list[int]:
        """Those of them that the table has rows for."""
        count = self.count
        return [token for token in ids if 0 <= token < count]

    def rows(self, ids: Sequence[int]) -> Matrix:
        """float32 [ids, width], rounded to half precision: those of known ids, read from the file.
        Raises EncoderError when it shrank.
        """
        raw = b"".join(map(self._read, ids))
        blocks = np.frombuffer(raw, dtype=np.uint8).reshape(-1, self._block_bytes)
        rows = dequantize(self._place.type_name, blocks).reshape(len(ids), self.width)
        with np.errstate(over="ignore"):
            return rows.astype(np.float16).astype(np.float32)

    def centre(self) -> Vector:
        """float32 [width]: about the mean of all rows, which all of them have in common. Raises
        EncoderError.
        """
        step = max(1, self.count // SAMPLED)
        total = np.zeros(self.width, dtype=np.float64)
        ids = range(0, self.count, step)
        for at in range(0, len(ids), 256):
            total += self.rows(ids[at : at + 256]).sum(axis=0, dtype=np.float64)
        return (total / len(ids)).astype(np.float32)

    def close(self) -> None:
        self._file.close()

    def _read(self, token: int) -> bytes:
        at = self._place.start + token * self._row_bytes
        data = os.pread(self._file.fileno(), self._row_bytes, at)
        if len(data) != self._row_bytes:
            raise EncoderError("the model file became shorter: restore it and start the box again")
        return data


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
