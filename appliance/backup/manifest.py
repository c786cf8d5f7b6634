"""The first member of a backup: what else is in it, and from where."""

import re
from typing import Final, Literal

import msgspec

from appliance.backup.errors import BackupError

FORMAT: Final = "steelyard-backup-v1"
NAME = "manifest.json"
STATE = "state/"
"""Members of the state directory."""
CONFIG = "config/steelyard.toml"
REFERENCED = "config/files/"
"""Files that the configuration names and that lie outside of the state directory."""
LEDGER = f"{STATE}ledger.sqlite"
MOST_BYTES = 64 << 20
_MOST_FILES = 100_000
_HOME = re.compile(r"(?:state|config)(?:/[^/\x00-\x1f\x7f]{1,255}){1,16}")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member."""

    path: str
    size: int
    """Bytes."""
    sha256: str


class LedgerFacts(msgspec.Struct, frozen=True):
    """Of the ledger in the backup."""

    migrations: tuple[str, ...]
    head_seq: int
    head: str
    """Hash of the last entry, in hex."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says of itself."""

    format: Literal["steelyard-backup-v1"] = FORMAT
    host: str
    version: str
    made_wall_ns: int
    state_dir: str
    config_file: str = ""
    """Where the configuration lay; empty: the box had none."""
    referenced: dict[str, str] = {}
    """Member under `config/files/` to where it lay."""
    with_models: bool = False
    models: tuple[str, ...] = ()
    ledger: LedgerFacts
    files: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """Of all members together."""
        return sum(part.size for part in self.files)


def encoded(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decoded(data: bytes) -> Manifest:
    """Raises BackupError unless it is a manifest whose names can lead nowhere else."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise BackupError(f"its manifest cannot be read: {error}") from None
    names = [part.path for part in manifest.files]
    if len(names) > _MOST_FILES or len(set(names)) != len(names) or not all(map(_safe, names)):
        raise BackupError("its manifest names files that no backup of Steelyard has")
    if any(part.size < 0 for part in manifest.files):
        raise BackupError("its manifest names a file of negative size")
    if LEDGER not in names:
        raise BackupError("its manifest names no ledger")
    if not all(member.startswith(REFERENCED) and _safe(member) for member in manifest.referenced):
        raise BackupError("its manifest names files of the configuration where none can be")
    return manifest


def fits(name: str) -> bool:
    """Whether a member can have this name: what cannot be read back must not be written."""
    return _safe(name) and not any(0xD800 <= ord(sign) <= 0xDFFF for sign in name)


def _safe(name: str) -> bool:
    """No way up or out of the folder that it is unpacked into."""
    return bool(_HOME.fullmatch(name)) and not {".", ".."} & set(name.split("/"))
