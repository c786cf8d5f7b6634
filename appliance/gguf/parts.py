"""Models in several files, as llama.cpp splits them: `NAME-00001-of-00003.gguf` and so on.

The first has the metadata, each has its share of the tensors, and llama.cpp finds the others by
their names beside the first.
"""

import os
import re
import stat
from pathlib import Path

from appliance.gguf.contents import Contents, read_contents
from appliance.gguf.facts import whole
from appliance.gguf.reader import BadModel, Reader

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
MOST_PARTS = 1024


def read_file(path: Path) -> tuple[Contents, int]:
    """What one file holds, and its size in bytes. Raises BadModel, which names it."""
    # Non-blocking, so that a named pipe cannot hold us up before we see what it is.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb", buffering=0) as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise BadModel("it is not a regular file")
            return read_contents(Reader(file, found.st_size), found.st_size), found.st_size
    except BadModel as error:
        raise error.of(path) from None
    except OSError as error:
        raise BadModel(f"cannot be read: {error.strerror or error}").of(path) from error


def stem_of(path: Path) -> str:
    """The file's name without its ending and without the number of its part."""
    match = PART.fullmatch(path.name)
    return match["stem"] if match is not None else path.stem


def part_name(stem: str, number: int, count: int) -> str:
    """What llama.cpp looks for; `number` counts from 1."""
    return f"{stem}.gguf" if count == 1 else f"{stem}-{number:05d}-of-{count:05d}.gguf"


def paths_of(first: Path, count: int) -> tuple[Path, ...]:
    """All files of a model of `count` parts, the first of which is given."""
    stem = stem_of(first)
    others = (first.with_name(part_name(stem, number, count)) for number in range(2, count + 1))
    return (first, *others)


def part_with(path: Path, tensor: str) -> Path:
    """The file that holds the tensor; the one that is given if no other does. Raises BadModel."""
    match = PART.fullmatch(path.name)
    for part in paths_of(path, min(int(match["count"]), MOST_PARTS)) if match is not None else ():
        contents, _ = read_file(part)
        if any(found.name == tensor for found in contents.tensors):
            return part
    return path


def other_parts(path: Path, first: Contents) -> list[tuple[Contents, int]]:
    """The parts after the first, each with its size in bytes; none of a model in one file. Checks
    that all belong together and none is missing. Raises BadModel.
    """
    count = whole(first, "split.count", 0, 65535, 1)
    if count <= 1:
        return []
    if count > MOST_PARTS:
        raise BadModel(f"it claims {count} parts; at most {MOST_PARTS} make sense")
    _check_first(path, first, count)
    parts = [_part(other, number, count) for number, other in _others(path, count)]
    _check_tensors(first, [contents for contents, _ in parts])
    return parts


def _check_first(path: Path, first: Contents, count: int) -> None:
    number = whole(first, "split.no", 0, 65535, 0)
    wanted = part_name(stem_of(path), 1, count)
    if number != 0:
        raise BadModel(f"it is part {number + 1} of {count}: name the first one, {wanted}")
    if path.name != wanted:
        raise BadModel(
            f"it is the first of {count} parts, so its name must end with "
            f"{part_name('', 1, count)}, and those of the others likewise"
        )


def _others(path: Path, count: int) -> list[tuple[int, Path]]:
    others = list(enumerate(paths_of(path, count)))[1:]
    missing = [other.name for _, other in others if not other.exists()]
    if missing:
        raise BadModel(
            f"{len(missing)} of its {count} parts {'are' if len(missing) > 1 else 'is'} missing, "
            f"the first of them {missing[0]}. Copy all parts into one folder"
        )
    return others


def _part(path: Path, number: int, count: int) -> tuple[Contents, int]:
    contents, size = read_file(path)
    try:
        found = whole(contents, "split.no", 0, 65535), whole(contents, "split.count", 0, 65535)
        if found != (number, count):
            raise BadModel(
                f"it says that it is part {found[0] + 1} of {found[1]}, and its name that it is "
                f"part {number + 1} of {count}: the parts are mixed up. Copy them again"
            )
    except BadModel as error:
        raise error.of(path) from None
    return contents, size


def _check_tensors(first: Contents, others: list[Contents]) -> None:
    names = [tensor.name for contents in (first, *others) for tensor in contents.tensors]
    wanted = whole(first, "split.tensors.count", 0, 65536, len(names))
    if len(names) != wanted:
        raise BadModel(
            f"its parts hold {len(names)} tensors, and it says {wanted}: a part is another "
            "model's. Copy them again"
        )
    if len(set(names)) != len(names):
        raise BadModel("a tensor is in two of its parts: a part is another model's")
