"""Where one tensor of a checked file lies, for who reads its numbers without llama.cpp."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from appliance.gguf.contents import read_contents
from appliance.gguf.reader import BadModel, Reader


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of a file."""

    type_name: str
    shape: tuple[int, ...]
    """The first is the length of a row; rows follow each other without gaps."""
    start: int
    """In the file, in bytes."""
    size: int
    """In bytes, all of them within the file."""


def find(file: BinaryIO, name: str) -> Place | None:
    """The tensor of that name in an open, unbuffered file; None: it holds none. Raises BadModel."""
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise BadModel("it is not a regular file")
    file.seek(0)
    contents = read_contents(Reader(file, found.st_size), found.st_size)
    for tensor in contents.tensors:
        if tensor.name == name:
            start = contents.start + tensor.offset
            return Place(tensor.type_name, tensor.shape, start, tensor.size)
    return None


def open_model(path: Path) -> BinaryIO:
    """The file, unbuffered. Raises OSError. A named pipe does not hold us up."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(handle, "rb", buffering=0)
