"""Putting a backup in the place of a box's state."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from appliance import durable
from appliance.alone import CannotServe, InUse, only_daemon
from appliance.backup import manifest as names
from appliance.backup import swapping
from appliance.backup.archive import open_archive
from appliance.backup.carrying import size_of
from appliance.backup.contents import LEDGER_FILE, MODELS, RESTORED
from appliance.backup.errors import BackupError
from appliance.backup.facts import Restored, Tell, silent
from appliance.backup.ledgers import faults_of, refuse_newer, verdict_of
from appliance.backup.manifest import Manifest
from appliance.backup.places import LEFT_BYTES, locked_state, make_private, require_room
from appliance.calibrate.status import StatusFiles
from appliance.ledger.append import append
from appliance.ledger.copying import REPLACED
from appliance.ledger.database import connect, transaction
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Action
from appliance.ownership import hand_over

_SELECTED = "selected.json"
_MODEL = "manifest.json"


class _Files(msgspec.Struct):
    """Of a model's manifest, what makes it that model."""

    files: list[dict[str, str | int]]


def restore(
    path: Path,
    into: Path,
    *,
    force: bool = False,
    accept_faults: bool = False,
    config_file: Path | None = None,
    passphrase: bytes | None = None,
    operator: str = "",
    tell: Tell = silent,
) -> Restored:
    """Makes `into` (a state directory) what the backup holds: verified as a whole first, then put
    in place in one step that a power cut cannot leave half done. With `force` also where there is a
    ledger already; the former state is kept aside. With `accept_faults` also a ledger whose chain
    is not sound. Raises BackupError, and nothing changed."""
    try:
        with _alone(into):
            ended = swapping.finish(into)
            if (into / LEDGER_FILE).exists() and not force:
                told = "a restore that was cut off has been ended now. " if ended else ""
                raise BackupError(
                    f"{told}{into} holds a ledger already: restore into another directory (--into),"
                    f" or replace it (--force); it is then kept in {into / REPLACED}"
                )
            try:
                return _restore(path, into, accept_faults, config_file, passphrase, operator, tell)
            finally:
                if not (into / swapping.WORK / swapping.PLAN).exists():
                    swapping.discard(into)
    except LedgerError as error:
        raise BackupError(f"the ledger in {path} cannot be restored: {error}") from error
    except OSError as error:
        raise BackupError(
            f"{path} could not be restored into {into}: {error.filename or ''}:"
            f" {error.strerror or error}. Check the disk, its free space and who may write there"
        ) from error


def finish(state_dir: Path) -> bool:
    """Ends what a restore began before the power went: goes on with one that had been verified,
    clears away one that had not. For the start of the daemon, which holds the directory's lock.
    Whether there was one to go on with. Raises BackupError."""
    try:
        return swapping.finish(state_dir)
    except OSError as error:
        raise BackupError(
            f"a restore was cut off, and it cannot be ended: {error.filename or state_dir}:"
            f" {error.strerror}. Check who may write there and the free space, and start again"
        ) from error


@contextlib.contextmanager
def _alone(into: Path) -> Iterator[None]:
    make_private(into)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked_state(into))
        try:
            stack.enter_context(only_daemon(into))
        except InUse:
            raise BackupError(
                f"a box runs on {into}: stop it first (`systemctl stop steelyard`)"
            ) from None
        except CannotServe as error:
            raise BackupError(str(error)) from None
        hand_over(into / "daemon.lock", into)
        if StatusFiles(into).running:
            raise BackupError(
                f"a calibration runs on {into}: `steelyard calibrate stop` ends it, its answers are"
                " kept"
            )
        yield


def _restore(
    path: Path,
    into: Path,
    accept_faults: bool,
    config_file: Path | None,
    passphrase: bytes | None,
    operator: str,
    tell: Tell,
) -> Restored:
    with open_archive(path, passphrase) as archive:
        manifest = archive.manifest
        refuse_newer(manifest.ledger, manifest.version)
        require_room(into, manifest.bytes, "what is in the backup", left=LEFT_BYTES)
        work = swapping.prepare(into)
        archive.unpack(work, lambda name: True, tell)
    new = (work / "state").rename(work / swapping.NEW)
    _check(new / LEDGER_FILE, accept_faults, tell)
    _chain(new / LEDGER_FILE, path, manifest, operator)
    missing, warnings = _models(new, into, manifest)
    _room_to_carry(new / MODELS, into)
    _set_down(work, into)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    replaced = swapping.commit(into, _unused(into / REPLACED, stamp))
    placed, told = _configuration(into, config_file)
    return Restored(
        into=into,
        replaced=replaced,
        configuration=placed,
        head_seq=manifest.ledger.head_seq,
        head=manifest.ledger.head,
        missing_models=missing,
        warnings=(*warnings, *told, *_elsewhere(into, manifest)),
    )


def _room_to_carry(new: Path, into: Path) -> None:
    """Where the models are on a disk of their own: on it for those that come, and beside the state
    for those that they replace."""
    models = into / MODELS
    if not new.is_dir() or not models.is_dir() or _disk_of(models) == _disk_of(into):
        return
    replaced = sum(size_of(models / path.name) for path in new.iterdir())
    require_room(models, size_of(new), "the models in the backup")
    require_room(into, replaced, "the models that are replaced", left=LEFT_BYTES)


def _disk_of(folder: Path) -> int:
    return folder.stat().st_dev


def _unused(folder: Path, stamp: str) -> str:
    names_of = (stamp, *(f"{stamp}-{count}" for count in range(2, 1000)))
    return next(name for name in names_of if not (folder / name).exists())


def _check(ledger: Path, accept_faults: bool, tell: Tell) -> None:
    faults = faults_of(verdict_of(ledger, tell, deep=True))
    if faults and not accept_faults:
        raise BackupError(
            "\n".join(faults) + "\nRestore an older backup, or take this one as it is"
            " (--accept-faults): the faults stay in the ledger for whoever verifies it"
        )


def _chain(ledger: Path, path: Path, manifest: Manifest, operator: str) -> None:
    """The restored ledger says itself that it is one."""
    row = Action(
        wall_ns=time.time_ns(),
        action="restore",
        target=path.name,
        operator=operator,
        host="local",
        detail={
            "from": manifest.host,
            "made_wall_ns": manifest.made_wall_ns,
            "head_seq": manifest.ledger.head_seq,
            "head": manifest.ledger.head,
        },
    )
    with closing(connect(ledger, create=False, old=True)) as db, transaction(db, ledger):
        append(db, [(row, None)])


def _models(new: Path, into: Path, manifest: Manifest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Models that stay as they are are not touched; one that is nowhere cannot be chosen. The
    names of those, and what to tell."""
    here, missing = into / MODELS, []
    for folder in sorted((new / MODELS).glob(f"*/{_MODEL}")):
        name = folder.parent.name
        if manifest.with_models:
            continue
        if not _same(here / name / _MODEL, folder):
            missing.append(name)
        shutil.rmtree(folder.parent)
    selected = new / MODELS / _SELECTED
    chosen = _name_in(selected) if selected.exists() else ""
    if chosen not in missing:
        return tuple(missing), ()
    selected.unlink()
    told = f"the box served {chosen}, which is not here: `steelyard model add` it and choose it"
    return tuple(missing), (f"{told} again (`steelyard model use {chosen}`)",)


def _same(one: Path, other: Path) -> bool:
    """Whether two manifests are of the same model, by its files' checksums; adapters may differ."""
    try:
        first, second = (
            msgspec.json.decode(path.read_bytes(), type=_Files) for path in (one, other)
        )
    except (FileNotFoundError, msgspec.MsgspecError):
        return False
    return first == second


def _name_in(selected: Path) -> str:
    try:
        found = msgspec.json.decode(selected.read_bytes(), type=dict[str, str])
    except msgspec.MsgspecError:
        return ""
    return found.get("name", "")


def _set_down(work: Path, into: Path) -> None:
    """Configuration files of the backup lie where nothing depends on them."""
    target = into / RESTORED
    if target.exists():
        shutil.rmtree(target)
    if (work / "config").exists():
        (work / "config").rename(target)
        target.chmod(0o700)


def _configuration(into: Path, file: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    """Puts it in place where there is none. Where it lies now, and what to tell."""
    found = into / RESTORED / Path(names.CONFIG).name
    if not found.exists():
        return None, ()
    if file is None:
        return found, ()
    if file.exists():
        if file.read_bytes() == found.read_bytes():
            return None, ()
        return found, (f"{file} is not the configuration of the backup, which lies in {found}",)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        durable.create(file, found.read_bytes(), 0o644)
    except OSError as error:
        return found, (f"{file} cannot be written ({error.strerror}): copy {found} there",)
    return file, ()


def _elsewhere(into: Path, manifest: Manifest) -> Iterator[str]:
    """Files that the configuration names and that are not as they were."""
    for member, origin in manifest.referenced.items():
        kept = into / RESTORED / Path(member).relative_to(Path(names.CONFIG).parent)
        with contextlib.suppress(OSError):
            if Path(origin).read_bytes() == kept.read_bytes():
                continue
        yield f"the configuration names {origin}: copy {kept} there"
