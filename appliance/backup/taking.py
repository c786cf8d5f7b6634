"""Taking a backup of a box, running or not.

The ledger is copied as it is at one instant, and its chain is verified in the copy. What can change
while the box runs is copied first and packed then, so that the manifest tells what is in the file.
"""

import contextlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from appliance import __version__, durable
from appliance.backup import manifest as names
from appliance.backup.archive import measured, write_archive
from appliance.backup.contents import (
    LEDGER_FILE,
    MODELS,
    left_out,
    model_names,
    referenced_files,
    state_files,
)
from appliance.backup.errors import BackupError, NothingToBackUp
from appliance.backup.facts import Taken, Tell, silent
from appliance.backup.ledgers import facts_of, faults_of, verdict_of
from appliance.backup.manifest import LedgerFacts, Manifest, Part
from appliance.backup.places import (
    LEFT_BYTES,
    drafted,
    locked_state,
    named,
    require_room,
    siblings,
    workshop,
)
from appliance.backup.pruning import of_another
from appliance.backup.sealing import check_passphrase
from appliance.config import ConfigError, load
from appliance.ledger.copying import copy_exact
from appliance.ledger.errors import LedgerError
from appliance.tls.files import locked
from appliance.tls.state import FOLDER as TLS

_MOST_CONFIG = 1 << 20
_MOST_PACKED = 16
"""Ledgers shrink to a fifth or so."""


def take(
    state_dir: Path,
    target: Path,
    *,
    config_file: Path | None = None,
    with_models: bool = False,
    passphrase: bytes | None = None,
    keep: int | None = None,
    tell: Tell = silent,
) -> Taken:
    """Writes a backup of `state_dir` to the file `target`, or under a name of its own into the
    directory `target`; of those it leaves the newest `keep`, unless the ledger is not sound.
    Raises BackupError; of it NothingToBackUp where there is no ledger yet."""
    wall_ns = time.time_ns()
    if passphrase is not None:
        check_passphrase(passphrase)
    ledger = state_dir / LEDGER_FILE
    if not ledger.is_file():
        raise NothingToBackUp(
            f"there is no ledger in {state_dir}, so nothing to back up: check server.state_dir, or"
            " start the box once"
        )
    final = _final(target, wall_ns)
    places = [state_dir, Path(tempfile.gettempdir())]
    if passphrase is None:  # what is to be encrypted never reaches the other disk in clear
        places.append(final.parent)
    with _explained(final), locked_state(state_dir):
        held = ledger.stat().st_size + _size_of(state_dir)
        with workshop(places, held) as folder:
            packing = _Packing(folder, tell)
            facts, faults = packing.ledger(ledger)
            packing.state(state_dir, with_models=with_models)
            referenced = packing.configuration(config_file, state_dir)
            manifest = Manifest(
                host=platform.node(),
                version=__version__,
                made_wall_ns=wall_ns,
                state_dir=_readable(state_dir.absolute()),
                config_file=_readable(config_file.absolute()) if config_file else "",
                referenced=referenced,
                with_models=with_models,
                models=model_names(state_dir),
                ledger=facts,
                files=packing.parts(),
            )
            _require_room(final.parent, state_dir, manifest)
            _write(final, manifest, packing, passphrase, tell)
            too_many: tuple[Path, ...] = ()
            if keep and target.is_dir() and not faults:
                too_many = _too_many(final, keep, packing, passphrase)
    return Taken(
        path=final,
        bytes=final.stat().st_size,
        head_seq=facts.head_seq,
        head=facts.head,
        files=len(manifest.files),
        removed=_removed(too_many, packing.warnings),
        warnings=(*faults, *packing.warnings),
    )


def _too_many(
    final: Path, keep: int, packing: "_Packing", passphrase: bytes | None
) -> tuple[Path, ...]:
    """The backups beside `final` that are to go: this box's own but the newest `keep`."""
    older = [path for path in siblings(final.parent, platform.node())[keep:] if path != final]
    others = [path for path in older if of_another(path, packing.copy, passphrase)]
    if others:
        packing.warnings.append(
            f"{len(others)} older backups in {final.parent} are of another box with the same host"
            f" name ({platform.node()}) and were left there: give each box a name of its own"
        )
    return tuple(path for path in older if path not in others)


def _removed(too_many: tuple[Path, ...], warnings: list[str]) -> tuple[Path, ...]:
    """Those that are gone. That one stays is no reason to call the new backup a failure."""
    gone: list[Path] = []
    for path in too_many:
        try:
            path.unlink(missing_ok=True)
            gone.append(path)
        except OSError as error:
            warnings.append(f"the older backup {path} could not be removed: {error.strerror}")
    return tuple(gone)


def _readable(path: Path) -> str:
    """For a person: bytes that are no UTF-8 are lost."""
    return os.fsencode(path).decode("utf-8", "replace")


def _final(target: Path, wall_ns: int) -> Path:
    final = target / named(platform.node(), wall_ns / 1e9) if target.is_dir() else target
    if not final.parent.is_dir():
        raise BackupError(f"{final.parent} is not a directory: mount the disk, or make it")
    if final.exists():
        raise BackupError(f"{final} exists: name another file, or a directory")
    return final


def _require_room(folder: Path, state_dir: Path, manifest: Manifest) -> None:
    """On the box's own disk for the worst case: it must not be filled. On another one for what it
    takes at the least: if that is too little, it is said then, and nothing stays there."""
    if folder.stat().st_dev == state_dir.stat().st_dev:
        require_room(folder, manifest.bytes, "the backup", left=LEFT_BYTES)
    else:
        packed = 1 if manifest.with_models else _MOST_PACKED
        require_room(folder, manifest.bytes // packed, "the backup")


def _size_of(state_dir: Path) -> int:
    """Of what is copied beside the ledger."""
    size = 0
    for _, path in state_files(state_dir, with_models=False):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


@contextlib.contextmanager
def _explained(final: Path) -> Iterator[None]:
    try:
        yield
    except LedgerError as error:
        raise BackupError(f"the ledger cannot be backed up: {error}") from error
    except OSError as error:
        raise BackupError(
            f"the backup {final} could not be written, and nothing was left there: "
            f"{error.filename or final}: {error.strerror or error}. Check the disk, its free space"
            " and who may write there"
        ) from error


class _Packing:
    """Copies what a backup will hold into `folder`, and keeps account of it."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder, self._tell = folder, tell
        self.copy = folder / LEDGER_FILE
        """Of the ledger, once it is made."""
        self.sources: dict[str, Path] = {}
        self.warnings: list[str] = []

    def ledger(self, ledger: Path) -> tuple[LedgerFacts, tuple[str, ...]]:
        """What is in the copy, and what is wrong with it."""
        copy = self.copy
        copy_exact(ledger, copy, lambda done, total: self._tell("copy", done, total))
        verdict = verdict_of(copy, self._tell, deep=False)
        self.sources[names.LEDGER] = copy
        return facts_of(copy, verdict), faults_of(verdict)

    def state(self, state_dir: Path, *, with_models: bool) -> None:
        for name in left_out(state_dir):
            self.warnings.append(
                f"{name!a} of the state directory is a link, so neither it nor what it leads to is"
                " in the backup: keep a copy of that by other means"
            )
        with self._certificates(state_dir / TLS):
            for name, path in state_files(state_dir, with_models=with_models):
                if not names.fits(names.STATE + name):
                    self.warnings.append(
                        f"{name!a} of the state directory is not in the backup, which cannot"
                        " hold such a name: rename it, or move it elsewhere"
                    )
                    continue
                large = with_models and name.startswith(f"{MODELS}/")  # nobody changes a model
                with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                    self.sources[names.STATE + name] = path if large else self._copied(path)

    @contextlib.contextmanager
    def _certificates(self, folder: Path) -> Iterator[None]:
        """A certificate and its key change together."""
        with contextlib.ExitStack() as stack:
            if folder.is_dir():
                with contextlib.suppress(OSError):  # a disk that takes no writing changes nothing
                    stack.enter_context(locked(folder / "lock"))
            yield

    def configuration(self, file: Path | None, state_dir: Path) -> dict[str, str]:
        """The files that it names, from member to place."""
        if file is None or not file.exists():
            return {}
        if file.stat().st_size > _MOST_CONFIG:
            raise BackupError(f"{file} is too large for a configuration")
        self.sources[names.CONFIG] = self._copied(file)
        found: dict[str, str] = {}
        try:
            for path in referenced_files(load(file), state_dir):
                member = f"{names.REFERENCED}{len(found):02d}-{path.name}"
                if not names.fits(member):
                    member = f"{names.REFERENCED}{len(found):02d}"
                self.sources[member] = self._copied(path)
                found[member] = _readable(path.absolute())
        except (ConfigError, OSError) as error:
            self.warnings.append(f"files that {file} names are not all in the backup: {error}")
        return found

    def _copied(self, path: Path) -> Path:
        copy = self._folder / f"{len(self.sources):06d}"
        with path.open("rb") as source, copy.open("xb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        return copy

    def parts(self) -> tuple[Part, ...]:
        """All of it, for the manifest."""
        return tuple(Part(name, *measured(path)) for name, path in self.sources.items())


def _write(
    final: Path, manifest: Manifest, packing: _Packing, passphrase: bytes | None, tell: Tell
) -> None:
    """Whole under its name, or not at all."""
    with drafted(final) as (draft, out):
        write_archive(out, manifest, packing.sources, passphrase, tell)
        out.flush()
        os.fsync(out.fileno())
        draft.rename(final)
        durable.sync(final.parent)
