"""Whether a backup can be restored."""

import tempfile
from pathlib import Path

from appliance.backup import manifest as names
from appliance.backup.archive import open_archive
from appliance.backup.errors import BackupError
from appliance.backup.facts import Tell, Verified, silent
from appliance.backup.ledgers import faults_of, refuse_newer, verdict_of
from appliance.backup.manifest import Manifest
from appliance.backup.places import workshop
from appliance.ledger.errors import LedgerError


def verify(path: Path, *, passphrase: bytes | None = None, tell: Tell = silent) -> Verified:
    """Reads all of it and checks the chain of its ledger, token by token. Raises BackupError if it
    is no backup, is cut short, or the passphrase is not the one."""
    try:
        with open_archive(path, passphrase) as archive:
            manifest = archive.manifest
            size = next(part.size for part in manifest.files if part.path == names.LEDGER)
            with workshop([Path(tempfile.gettempdir()), path.absolute().parent], size) as folder:
                archive.unpack(folder, lambda name: name == names.LEDGER, tell)
                problems = _problems(manifest, folder / names.LEDGER, tell)
        return verified(path, manifest, problems, encrypted=archive.sealed)
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror or error}") from error


def _problems(manifest: Manifest, ledger: Path, tell: Tell) -> tuple[str, ...]:
    try:
        verdict = verdict_of(ledger, tell, deep=True)
        refuse_newer(manifest.ledger, manifest.version)
    except (LedgerError, BackupError) as error:
        return (str(error),)
    return faults_of(verdict)


def verified(
    path: Path, manifest: Manifest, problems: tuple[str, ...], *, encrypted: bool
) -> Verified:
    """What there is to tell."""
    return Verified(
        path=path,
        host=manifest.host,
        version=manifest.version,
        made_wall_ns=manifest.made_wall_ns,
        bytes=path.stat().st_size,
        encrypted=encrypted,
        with_models=manifest.with_models,
        head_seq=manifest.ledger.head_seq,
        head=manifest.ledger.head,
        files=len(manifest.files),
        models=manifest.models,
        problems=problems,
    )
