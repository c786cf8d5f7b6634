"""What the parts of a backup tell each other and their callers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Tell = Callable[[str, int, int], None]
"""Phase, bytes done, bytes in all: for a progress bar."""


def silent(phase: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup that was written and is on the disk."""

    path: Path
    bytes: int
    head_seq: int
    """The last entry of the ledger in it; 0 if the box has none yet."""
    head: str
    files: int
    removed: tuple[Path, ...] = ()
    """Older backups that `keep` had no room for."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """A backup of which every byte was read and found to be what was written."""

    path: Path
    host: str
    version: str
    """Of the Steelyard that wrote it."""
    made_wall_ns: int
    bytes: int
    encrypted: bool
    with_models: bool
    head_seq: int
    head: str
    files: int
    models: tuple[str, ...]
    """Names of the stored models, whether their files are in the backup or not."""
    problems: tuple[str, ...] = ()
    """What is wrong with it; empty: it can be restored."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    into: Path
    replaced: Path | None
    """Where the former state lies now; None: there was none."""
    configuration: Path | None
    """Where the configuration of the backup was written; None: there is the same already."""
    head_seq: int
    head: str
    missing_models: tuple[str, ...]
    """Stored models that the backup names and the box does not have."""
    warnings: tuple[str, ...] = ()
