"""The list of what is in a bundle, of which the signature is made. Standard library only.

Parsed with bounds and once: what has passed here is trusted further on, paths above all.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from appliance.bundle.errors import BundleError
from appliance.bundle.versions import parse_version

NAME = "manifest.json"
SIGNATURE_NAME = "manifest.json.minisig"
FORMAT = 1
ROLES = ("installer", "wheel", "engine", "model", "firmware", "document", "system", "sbom")
MOST = 8 << 20
"""Bytes of a manifest; a real one has some 30 KB."""
MOST_FILES = 10_000
MOST_BYTES = 1 << 44
"""Of one file."""

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]*(?:/[A-Za-z0-9_][A-Za-z0-9._+!-]*){0,9}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PYTHON = re.compile(r"3\.[0-9]{1,3}")
_TEXT = re.compile(r"[ -~]{0,200}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the bundle."""

    path: str
    """Relative, with `/`; no part of it begins with a dot."""
    size: int
    """Bytes."""
    sha256: str
    role: str
    python: tuple[str, ...] = ()
    """Of a wheel: the Python versions it is for; all of them where it names none."""
    unpacked: int = 0
    """Of a wheel: bytes once it is installed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that a machine must know of a bundle before it uses it."""

    version: str
    min_version: str
    """The oldest installed version that this one may replace."""
    created: str
    platform: str
    glibc: str
    """The oldest C library that its binaries run with."""
    pythons: tuple[str, ...]
    migrations: tuple[str, ...]
    """The steps of the ledger's schema that this version knows."""
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.files)

    def of(self, *roles: str) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.files if entry.role in roles)

    def wheels_for(self, python: str) -> tuple[Entry, ...]:
        """What a slot of this Python version is made of, the engine among it. Raises BundleError
        for a Python that the bundle has no wheels for."""
        if python not in self.pythons:
            raise BundleError(
                f"the bundle is for Python {' or '.join(self.pythons)}, and this machine has "
                f"{python}: get a bundle for it (`steelyard bundle create --python {python}`)"
            )
        wheels = self.of("wheel", "engine")
        return tuple(wheel for wheel in wheels if not wheel.python or python in wheel.python)

    def dump(self) -> bytes:
        """The same bytes for the same content."""
        files = [_without_defaults(asdict(entry)) for entry in self.files]
        head = {"format": FORMAT, "name": "steelyard", **asdict(self), "files": files}
        return (json.dumps(head, indent=1, ensure_ascii=True) + "\n").encode()


def _without_defaults(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value not in ((), 0) or key == "size"}


def parse(data: bytes) -> Manifest:
    """Raises BundleError."""
    try:
        found = json.loads(data) if len(data) <= MOST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("name") != "steelyard":
        raise BundleError("it is no manifest of a Steelyard bundle")
    if found.get("format") != FORMAT:
        raise BundleError(
            "the bundle's format is another, probably newer one: update to a version in between"
        )
    manifest = Manifest(
        version=_version(found, "version"),
        min_version=_version(found, "min_version"),
        created=_text(found, "created"),
        platform=_text(found, "platform"),
        glibc=_text(found, "glibc"),
        pythons=_texts(found, "pythons", _PYTHON),
        migrations=_texts(found, "migrations", _TEXT),
        files=_files(found.get("files")),
    )
    if not manifest.pythons:
        raise _damaged("pythons")
    return manifest


def _damaged(what: str) -> BundleError:
    return BundleError(f"the manifest's {what!r} cannot be used: the bundle was made wrongly")


def _text(found: Mapping[str, Any], key: str, form: re.Pattern[str] = _TEXT) -> str:
    value = found.get(key)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _damaged(key)
    return value


def _texts(found: Mapping[str, Any], key: str, form: re.Pattern[str]) -> tuple[str, ...]:
    values = found.get(key, [])
    if not isinstance(values, list) or len(values) > MOST_FILES:
        raise _damaged(key)
    return tuple(_text({key: value}, key, form) for value in values)


def _version(found: Mapping[str, Any], key: str) -> str:
    text = _text(found, key)
    parse_version(text)
    return text


def _number(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key, 0)
    if type(value) is not int or not 0 <= value <= MOST_BYTES:
        raise _damaged(key)
    return value


def _files(found: object) -> tuple[Entry, ...]:
    if not isinstance(found, list) or not 0 < len(found) <= MOST_FILES:
        raise _damaged("files")
    entries = tuple(map(_entry, found))
    # A stick's file system may know no capitals.
    names = {entry.path.lower() for entry in entries}
    if len(names) != len(entries) or names & {NAME, SIGNATURE_NAME}:
        raise _damaged("files")
    return entries


def _entry(found: object) -> Entry:
    if not isinstance(found, dict):
        raise _damaged("files")
    role = _text(found, "role")
    if role not in ROLES:
        raise _damaged("role")
    return Entry(
        path=_text(found, "path", _PATH),
        size=_number(found, "size"),
        sha256=_text(found, "sha256", _SHA256),
        role=role,
        python=_texts(found, "python", _PYTHON),
        unpacked=_number(found, "unpacked"),
    )
