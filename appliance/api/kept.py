"""What the console asks the ledger's file: today's use, exports, who signs. Reads only."""

import time
from contextlib import closing
from pathlib import Path

from sqlite_utils import Database

from appliance.accounts.quotas import DAY_S
from appliance.api.sources import Kept
from appliance.ledger import queries
from appliance.ledger.database import connect, explained


def read_kept(path: Path) -> Kept:
    """As the ledger stands. Raises LedgerError."""
    with closing(connect(path, read_only=True)) as db, explained(path):
        day = int(time.time() // DAY_S)
        used = queries.usage(db, queries.UsageFilter(first_day=day, last_day=day))[0]
        exports = queries.actions(db, "audit.export", limit=1).entries
        cost = used.cost_prefill + used.cost_decode + used.cost_cached + used.cost_idle
        return Kept(
            tok_today=used.prompt_tokens + used.completion_tokens,
            cost_today=round(cost / 1e9, 6),
            export_ms=exports[0].row.wall_ns // 1_000_000 if exports else None,
            first_ms=_first_ms(db),
            signer=_signer(db),
        )


def _first_ms(db: Database) -> int | None:
    found = db.conn.execute("SELECT wall_ns FROM entries ORDER BY seq LIMIT 1").fetchone()
    return int(found[0]) // 1_000_000 if found is not None and found[0] is not None else None


def _signer(db: Database) -> str:
    found = db.conn.execute("SELECT signer FROM seals ORDER BY segment DESC LIMIT 1").fetchone()
    return str(found[0] or "") if found is not None else ""
