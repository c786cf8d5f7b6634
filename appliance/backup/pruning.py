"""Which older backups go: those of this box. Several boxes may write into one directory without
ever having been given names of their own, and none may take another's backups away."""

import sqlite3
from contextlib import closing
from pathlib import Path

from appliance.backup.archive import open_archive
from appliance.backup.errors import BackupError
from appliance.backup.manifest import LedgerFacts


def of_another(path: Path, ledger: Path, passphrase: bytes | None) -> bool:
    """Whether the backup is surely not of the box that has this ledger (a copy that nobody has
    open): its last entry is another one, or is yet to come. Of what cannot be read nothing is
    sure. Raises sqlite3.Error."""
    try:
        with open_archive(path, passphrase) as archive:
            told = archive.manifest.ledger
    except (BackupError, OSError):
        return False
    return not _may_precede(told, ledger)


def _may_precede(told: LedgerFacts, ledger: Path) -> bool:
    uri = f"{ledger.absolute().as_uri()}?immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as db:
        (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()
        if not 0 <= told.head_seq <= last:
            return False
        found = db.execute("SELECT hash FROM entries WHERE seq = ?", (told.head_seq,)).fetchone()
    return found is None or found[0].hex() == told.head
