"""Whether two trees are the same, and if not, where they differ."""

import hashlib
import tarfile
from pathlib import Path
from typing import IO

_PIECE = 1 << 20
MOST = 40
"""Differences that are told."""


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def difference(one: Path, other: Path) -> list[str]:
    """Nothing for two tars that are the same bit for bit; else what differs, at most `MOST`."""
    if sha256_of(one) == sha256_of(other):
        return []
    first, second = members(one), members(other)
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    return [f"{name}: {_how(first.get(name), second.get(name))}" for name in names[:MOST]] or [
        "only the tars themselves differ, not what is in them"
    ]


Facts = dict[str, object]


def members(tar: Path) -> dict[str, Facts]:
    """What a tar says of each of its entries."""
    found: dict[str, Facts] = {}
    with tarfile.open(tar) as opened:
        for entry in opened:
            found[entry.name] = {
                "kind": entry.type,
                "mode": oct(entry.mode),
                "owner": (entry.uid, entry.gid),
                "time": entry.mtime,
                "link": entry.linkname,
                "size": entry.size,
                "more": sorted(entry.pax_headers.items()),
                "content": _digest(opened.extractfile(entry)) if entry.isreg() else "",
            }
    return found


def _digest(content: IO[bytes] | None) -> str:
    found = hashlib.sha256()
    while content is not None and (piece := content.read(_PIECE)):
        found.update(piece)
    return found.hexdigest()


def _how(one: Facts | None, other: Facts | None) -> str:
    if one is None or other is None:
        return "only in the " + ("second" if one is None else "first")
    return ", ".join(f"{key} {one[key]} / {other[key]}" for key in one if one[key] != other[key])
