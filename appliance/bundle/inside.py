"""What an update asks of a slot's own code: `python -m appliance.bundle.inside TASK ...`.

    migrate LEDGER FOLDER           copies the ledger and takes the copy over
    opens LEDGER                    whether this version can use the ledger
    take STATE TARGET CONFIG        a backup
    restore BACKUP STATE CONFIG
    note LEDGER PHASE OLD NEW BUNDLE WHY    an entry of the ledger: how an update ended

A task that fails says why on standard error, with exit status 1.
"""

import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from appliance.backup import BackupError, restore, take
from appliance.bundle.machine import LEDGER
from appliance.ledger.append import append
from appliance.ledger.copying import copy_exact
from appliance.ledger.database import connect, transaction
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Action


def migrate(ledger: str, folder: str) -> None:
    """Raises LedgerError where the ledger cannot be taken over; the ledger itself is only read."""
    copy = Path(folder, LEDGER)
    copy_exact(Path(ledger), copy)
    connect(copy, create=False, old=True).close()


def opens(ledger: str) -> None:
    """Raises LedgerError."""
    connect(Path(ledger), read_only=True, old=True).close()


def back_up(state: str, target: str, config: str) -> None:
    take(Path(state), Path(target), config_file=_there(config))


def bring_back(backup: str, state: str, config: str) -> None:
    restore(Path(backup), Path(state), force=True, config_file=_there(config), operator="update")


def note(ledger: str, phase: str, old: str, new: str, bundle: str, why: str) -> None:
    detail = {"from": old, "bundle_sha256": bundle, "why": why}
    row = Action(
        wall_ns=time.time_ns(),
        action=f"update.{phase}",
        target=new,
        operator=os.environ.get("SUDO_USER", ""),
        host="local",
        detail={name: value for name, value in detail.items() if value},
    )
    with closing(connect(Path(ledger), create=False)) as db, transaction(db, ledger):
        append(db, [(row, None)])


def _there(config: str) -> Path | None:
    return Path(config) if Path(config).exists() else None


TASKS: dict[str, Callable[..., None]] = {
    "migrate": migrate,
    "opens": opens,
    "take": back_up,
    "restore": bring_back,
    "note": note,
}


def main(arguments: list[str]) -> int:
    try:
        TASKS[arguments[0]](*arguments[1:])
    except (BackupError, LedgerError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
