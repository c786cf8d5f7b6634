"""Zips and arrays that may come from anywhere: bounded before unpacking, never unpickled."""

import io
import math
import zipfile
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

MAX_MEMBERS = 128
MAX_HEADER = 1024
"""Bytes of a .npy header."""
KINDS = "biufU"
"""Numbers and text: nothing that would have to be unpickled."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Every member's date, so that the same parts give the same bytes."""


class BadArchive(ValueError):
    """Not a file of its kind, or one that lies about itself."""


def unzip(data: bytes, most: int, names: Collection[str] | None = None) -> dict[str, bytes]:
    """The members by name. `most`: bytes of all together, unpacked. `names`: the only ones
    allowed; None: any plain name. Raises BadArchive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check(entries, most, names)
            return {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise BadArchive(f"it is not a whole zip file ({error})") from error
    except (OSError, ValueError, OverflowError) as error:
        raise BadArchive(str(error)) from error


def _check(entries: list[zipfile.ZipInfo], most: int, names: Collection[str] | None) -> None:
    """Before anything is unpacked. `archive.read` never gives more than the size looked at here."""
    found = [entry.filename for entry in entries]
    if len(found) > MAX_MEMBERS:
        raise BadArchive(f"it holds {len(found)} files, more than {MAX_MEMBERS}")
    if len(set(found)) != len(found):
        raise BadArchive("it holds a file twice")
    for name in found:
        if not _plain(name) or (names is not None and name not in names):
            raise BadArchive(f"it holds a file that does not belong: {name[:80]!r}")
    if sum(entry.file_size for entry in entries) > most:
        raise BadArchive(f"unpacked it would be larger than {most} bytes")
    if any(
        entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries
    ):
        raise BadArchive("it is packed in a way that is not read here")


def _plain(name: str) -> bool:
    return (
        name.isascii() and name.isprintable() and not (set(name) & set("/\\:")) and ".." not in name
    )


def pack(members: Mapping[str, bytes]) -> bytes:
    """A zip of them, in order. The same members give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return buffer.getvalue()


def arrays(data: bytes, most: int) -> Arrays:
    """What an .npz file holds; `most` as in `unzip`. Raises BadArchive."""
    return {
        name.removesuffix(".npy"): _array(name, member)
        for name, member in unzip(data, most).items()
    }


def _array(name: str, data: bytes) -> NDArray[Any]:
    """numpy's own reader takes the memory that a header asks for before it looks at the data."""
    file = io.BytesIO(data)
    try:
        if npy.read_magic(file) != (1, 0):
            raise BadArchive(f"{name} is of a version that is not read here")
        shape, fortran, dtype = npy.read_array_header_1_0(file, max_header_size=MAX_HEADER)
    except ValueError as error:
        raise BadArchive(f"{name} is no array ({str(error)[:120]})") from error
    left = data[file.tell() :]
    if dtype.kind not in KINDS or fortran or math.prod(shape) * dtype.itemsize != len(left):
        raise BadArchive(f"{name} is not the array that its header tells")
    return np.frombuffer(left, dtype).reshape(shape).copy()


def npz(members: Mapping[str, NDArray[Any]]) -> bytes:
    """An .npz file that `arrays` reads, as does np.load."""
    return pack({f"{name}.npy": _npy(array) for name, array in members.items()})


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    npy.write_array(buffer, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()
