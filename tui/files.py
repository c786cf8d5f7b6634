"""Files that the console writes: into its own folder, under a name that cannot lead out of it."""

import os
import re
from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST = 100


def safe_name(name: str) -> str:
    """`name` as a plain file name."""
    cleaned = _UNSAFE.sub("_", name).lstrip(".-_")[:LONGEST]
    return cleaned or "steelyard.txt"


def save(folder: Path, name: str, text: str) -> Path:
    """Write a new file, readable by its owner only; one that exists is left as it is and the new
    one gets a number. Raises OSError."""
    wanted = folder / safe_name(name)
    for number in range(1, 1000):
        file = wanted if number == 1 else wanted.with_stem(f"{wanted.stem}-{number}")
        try:
            handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            continue
        with open(handle, "w", encoding="utf-8") as out:
            out.write(text)
        return file
    raise FileExistsError(17, f"a thousand files named {wanted.name} are there already")
