"""Whether a ledger that is opened can be gone on with. The whole chain is `audit verify`'s task."""

from itertools import pairwise
from pathlib import Path

import msgspec
from sqlite_utils import Database

from appliance.ledger.append import head
from appliance.ledger.database import BrokenChain, Unwritable, explained
from appliance.ledger.verify import GENESIS, row_hash

TAIL = 200
"""Entries whose hashes are computed again."""
_QUICK_CHECK_BYTES = 64 << 20
"""Reading a larger file through would delay the start by more than a second or so."""


class _Times(msgspec.Struct):
    wall_ns: int = 0


def check(db: Database, path: Path) -> None:
    """Raises LedgerError if the file is damaged or its last entries are not what they were."""
    with explained(path):
        if path.stat().st_size <= _QUICK_CHECK_BYTES:
            _quick_check(db, path)
        head(db)
        _check_tail(db)


def last_wall_ns(db: Database) -> int:
    """When the last entry was made; 0 if there is none."""
    found = db.execute("SELECT body FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    return msgspec.json.decode(found[0], type=_Times).wall_ns if found is not None else 0


def _quick_check(db: Database, path: Path) -> None:
    found = [text for (text,) in db.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        raise Unwritable(
            f"{path} is damaged ({'; '.join(found)[:300]}): keep a copy of it, run `steelyard audit"
            " verify` on the copy to see what is lost, and restore the newest backup that verifies"
        )


def _check_tail(db: Database) -> None:
    rows = db.execute(
        "SELECT seq, kind, body, hash FROM entries ORDER BY seq DESC LIMIT ?", (TAIL + 1,)
    ).fetchall()[::-1]
    if rows and rows[0][0] == 1:
        rows.insert(0, (0, "", "", GENESIS))
    for (before, _, _, prev), (seq, kind, body, stored) in pairwise(rows):
        if seq != before + 1 or row_hash(prev, seq, kind, body) != stored:
            raise BrokenChain(
                f"entry {seq} of the ledger is not what was written: it was changed, or entries"
                " before it removed, by something other than Steelyard. Keep a copy, run `steelyard"
                " audit verify` on it, and restore the newest backup that verifies"
            )
