"""Reads a file of which nothing can be trusted: every size is checked before it is used.

Not memory-mapped: a file that shrinks while it is read must be an error, not a SIGBUS.
"""

import struct
from pathlib import Path
from typing import BinaryIO

from appliance.errors import ForOperator
from appliance.gguf.tables import VALUES

METADATA_BYTES = 512 * 1024 * 1024
"""Everything before the tensor data, at most."""
CHUNK = 1024 * 1024

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class BadModel(ForOperator):
    """The file is not a model that this box can serve. Says why."""

    path: Path | None = None
    """The file, once it is named in the text."""

    def of(self, path: Path) -> "BadModel":
        """The same, its text beginning with the path, unless it names a file already."""
        if self.path is not None:
            return self
        named = BadModel(f"{path}: {self}")
        named.path = path
        return named


class Reader:
    """A cursor over the metadata of a file of `size` bytes."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._data = b""
        self._at = 0
        """Position of the cursor in `_data`."""
        self._base = 0
        """Position of `_data` in the file."""

    @property
    def position(self) -> int:
        return self._base + self._at

    def take(self, count: int, what: str) -> bytes:
        self._fill(count, what)
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def u32(self, what: str) -> int:
        return int(_U32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack(self.take(8, what))[0])

    def value(self, kind: int, what: str) -> int | float | bool:
        """A value of fixed size."""
        form = VALUES[kind]
        found: int | float | bool = form.unpack(self.take(form.size, what))[0]
        return found

    def string(self, limit: int, what: str) -> bytes:
        return self.take(self._length(limit, what), what)

    def skip_string(self, limit: int, what: str) -> None:
        self.skip(self._length(limit, what), what)

    def skip(self, count: int, what: str) -> None:
        self._within(count, what)
        if self._at + count <= len(self._data):
            self._at += count
            return
        self._base = self.position + count
        self._data, self._at = b"", 0
        self._file.seek(self._base)

    def skip_strings(self, count: int, limit: int, what: str) -> None:
        """Pass over `count` strings. The inner loop sees each of a vocabulary's tokens, so it
        works on the buffer alone.
        """
        length = _U64.unpack_from
        while count:
            self._fill(8, what)
            data, at, size = self._data, self._at, 0
            end = len(data)
            while count and at + 8 <= end:
                size = length(data, at)[0]
                if size > limit:
                    raise too_long(what, size, limit)
                if at + 8 + size > end:
                    break
                at += 8 + size
                count -= 1
                size = 0
            self._at = at
            if count:
                self._fill(8 + size, what)

    def _length(self, limit: int, what: str) -> int:
        size = self.u64(what)
        if size > limit:
            raise too_long(what, size, limit)
        return size

    def _within(self, count: int, what: str) -> None:
        missing = self.position + count - self._size
        if missing > 0:
            raise truncated(self._size, missing, what)
        if self.position + count > METADATA_BYTES:
            raise BadModel(f"its metadata is larger than {METADATA_BYTES >> 20} MiB")

    def _fill(self, count: int, what: str) -> None:
        """Have `count` bytes after the cursor in the buffer."""
        short = self._at + count - len(self._data)
        if short <= 0:
            return
        self._within(count, what)
        rest = self._data[self._at :]
        self._base, self._at = self.position, 0
        self._data = rest + self._file.read(max(short, CHUNK))
        if len(self._data) < count:
            raise BadModel(f"the file became shorter while it was read, in {what}")


def too_long(what: str, size: int, limit: int) -> BadModel:
    return BadModel(f"{what} has a length of {size} bytes; at most {limit} make sense")


def truncated(size: int, missing: int, what: str) -> BadModel:
    return BadModel(
        f"the file is truncated: it ends after {size} bytes in {what}, and at least {missing} "
        "more are missing. Copy it again"
    )
