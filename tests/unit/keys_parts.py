"""A store of keys at a time of its own."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from appliance.accounts.keys import FILE_NAME, KeyStore

NOW = datetime(2030, 5, 17, 12, tzinfo=UTC)


class Clock:
    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def make_store(tmp_path: Path, now: datetime = NOW) -> KeyStore:
    return KeyStore(tmp_path / "state" / FILE_NAME, Clock(now))


def actions(store: KeyStore) -> list[dict[str, Any]]:
    """The chained actions, oldest first."""
    with closing(sqlite3.connect(store.path)) as db:
        rows = db.execute("SELECT body FROM entries WHERE kind = 'action' ORDER BY seq")
        return [json.loads(body) for (body,) in rows]
