"""The archive: the same names each time, bounded, its owner's alone, whole or not there at all."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from appliance import durable
from appliance.errors import ForOperator
from appliance.support.redact import Redactor

FOLDER = "steelyard-support"
MOST_PART = 4 << 20
MOST_ALL = 16 << 20
RESERVE = 256 << 10
LAST = ("README.txt", "manifest.json")
"""They come last, and have this room for themselves."""
CUT = "[... {} characters left out ...]\n"


class SupportError(ForOperator):
    """The bundle cannot be written. Says why and what to do."""


@dataclass
class Bundle:
    """What is to go into the archive, redacted as it comes in. Bounds are bytes."""

    redactor: Redactor
    most_part: int = MOST_PART
    most_all: int = MOST_ALL
    members: dict[str, bytes] = field(default_factory=dict)
    struck: dict[str, Mapping[str, int]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.members.values()))

    def add(self, name: str, text: str, *, newest: bool = False) -> None:
        """Redacts and bounds the text. `newest`: its end is what counts, as of a log."""
        kept = shortened(text, self.most_part, newest=newest)
        clean, self.struck[name] = self.redactor.text(kept)
        spare = 0 if name in LAST else RESERVE
        room = max(0, min(self.most_part, self.most_all - spare - self.size))
        data = clean.encode("utf-8", "replace")
        if len(data) > room:  # only of what was redacted: a cut secret would be none to the rules
            data = data[:room]
        self.members[name] = data

    def lack(self, name: str, why: str) -> None:
        """Says why there is no such member."""
        self.missing[name], self.struck[name] = self.redactor.text(why)

    def manifest(self) -> str:
        """What is in it, as JSON: sizes, SHA-256, what was struck out, what is missing and why."""
        files = {
            name: {
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "redacted": sum(self.struck.get(name, {}).values()),
            }
            for name, data in sorted(self.members.items())
        }
        return json.dumps({"files": files, "missing": self.missing}, indent=2, sort_keys=True)


def shortened(text: str, most: int, *, newest: bool) -> str:
    """At most so many characters, in whole lines where the beginning is given up, so that no end of
    a secret is left that nothing knows for one; and a line that says what was left out."""
    if len(text) <= most:
        return text
    if not newest:
        return f"{text[:most]}\n{CUT.format(len(text) - most)}"
    kept = text[len(text) - most :].partition("\n")[2]
    return f"{CUT.format(len(text) - len(kept))}{kept}"


def archive(members: Mapping[str, bytes], wall: float) -> bytes:
    """The same members at the same time give the same bytes."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(members):
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size, info.mode, info.mtime = len(members[name]), 0o600, int(wall)
            tar.addfile(info, io.BytesIO(members[name]))
    return gzip.compress(body.getvalue(), mtime=int(wall))


def refuse_taken(target: Path, *, force: bool) -> None:
    """Raises SupportError where something is there that is not to be replaced."""
    if target.is_dir():
        raise SupportError(f"{target} is a directory: name a file in it")
    if target.exists() and not force:
        raise SupportError(f"{target} is there already: name another file, or give --force")


def write(target: Path, data: bytes, *, force: bool) -> None:
    """Whole, and durable, or not at all. Raises SupportError."""
    refuse_taken(target, force=force)
    try:
        durable.replace(target, data, 0o600)
    except OSError as error:
        raise SupportError(
            f"{target} cannot be written: {error.strerror or error}. It takes "
            f"{len(data) / 1e3:.0f} kB: name a place with room where you may write"
        ) from None
