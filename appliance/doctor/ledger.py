"""Area `ledger`: is the account whole? A small ledger is verified altogether, of a large one the
end: what `steelyard audit verify` does in minutes is not for a quick look."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from appliance.accounts.keys import FILE_NAME
from appliance.doctor.chainend import chain_end
from appliance.doctor.finding import Finding, fail, note, ok, size, warn
from appliance.doctor.ground import Ground
from appliance.ledger.verify.check import check
from appliance.ledger.verify.opening import Opened, Unreadable
from appliance.ledger.verify.verdict import Verdict

WHOLE_ROWS = 20_000
"""Up to so many rows the ledger is verified altogether, some seconds."""
END_ROWS = 50_000
_MOST_FAULTS = 3
_KEEP = (
    "keep a copy of the whole state directory, run `steelyard audit verify` on the copy, and see "
    "docs/recovery.md"
)


def look(ground: Ground) -> Iterator[Finding]:
    path = ground.state_dir / FILE_NAME
    if not path.exists():
        yield note("ledger.chain", "there is no ledger yet: the first start makes it")
        return
    try:
        yield chain(path)
    except Unreadable as error:
        yield fail("ledger.chain", str(error), "run this as root or as the box's own user")
    except sqlite3.Error as error:
        yield fail("ledger.chain", f"{path} is damaged: SQLite says: {error}", _KEEP)
    yield from _log(path)


def chain(path: Path, whole_rows: int = WHOLE_ROWS, end_rows: int = END_ROWS) -> Finding:
    """Raises Unreadable, sqlite3.Error."""
    opened = Opened(path)
    try:
        rows = opened.db.execute("SELECT count(*) FROM entries").fetchone()[0]
        verdict = Verdict(str(path), deep=False)
        if rows <= whole_rows:
            check(opened.db, verdict)
            what = f"all {rows} rows"
        else:
            end = min(end_rows, rows - 1)
            chain_end(opened.db, end, verdict)
            what = f"the last {end} of {rows} rows (all: `steelyard audit verify`)"
    finally:
        opened.close()
    if not verdict.ok:
        told = "; ".join(str(fault).replace("\n", " ") for fault in verdict.faults[:_MOST_FAULTS])
        return fail("ledger.chain", f"{verdict.fault_count} faults in {what}: {told}", _KEEP)
    return ok(
        "ledger.chain",
        f"{what} follow from each other; {verdict.seals} seals, {verdict.signed} signatures hold",
    )


def _log(path: Path) -> Iterator[Finding]:
    """A write-ahead log that only grows has a reader that never ends, or a full disk."""
    log = path.with_name(path.name + "-wal")
    sizes = [one.stat().st_size if one.exists() else 0 for one in (path, log)]
    told = f"{size(sizes[0])}, and {size(sizes[1])} of write-ahead log"
    if sizes[1] > max(64 << 20, sizes[0]):
        yield warn(
            "ledger.size",
            told,
            "something keeps the ledger open for reading: find it with `fuser` and end it",
        )
    else:
        yield ok("ledger.size", told)
