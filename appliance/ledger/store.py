"""The ledger's file in the hands of its thread: one connection, opened again after a failure."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sqlite_utils import Database

from appliance.ledger.append import head, largest_number
from appliance.ledger.batch import Committed, Task, commit
from appliance.ledger.clock import WallClock
from appliance.ledger.database import Unwritable, transaction
from appliance.ledger.soundness import check, last_wall_ns

Connect = Callable[[Path], Database]
_TEST_BYTES = 65536
"""A test write takes the room of some dozen rows, so that it means something when it works."""


class Store:
    """Opens the file and checks it; belongs to one thread from then on. Raises LedgerError."""

    def __init__(
        self, path: Path, connect: Connect, wall: Callable[[], int], steady: Callable[[], int]
    ) -> None:
        self.path = path
        self._connect = connect
        self._db: Database | None = connect(path)
        try:
            check(self._db, path)
            self.head = head(self._db)
            self.largest_number = largest_number(self._db)
            self.seals = count_seals(self._db)
            self._clock = WallClock(last_wall_ns(self._db), wall, steady)
        except BaseException:
            self._db.close()
            raise
        self._inode = path.stat().st_ino

    def commit(self, tasks: Sequence[Task]) -> Committed:
        """As `batch.commit`."""
        with self._healthy() as db:
            note, accept = self._clock.check()
            done = commit(db, tasks, self.head, note, self.path)
        accept()
        self.head = done.head
        if done.changed:
            self.seals = count_seals(db)
        return done

    def test(self) -> None:
        """Writes something that leaves no trace. Raises Unwritable."""
        with self._healthy() as db:
            with transaction(db, self.path):
                db.execute(
                    "INSERT OR REPLACE INTO meta (name, value) VALUES ('test', zeroblob(?))",
                    (_TEST_BYTES,),
                )
            with transaction(db, self.path):
                db.execute("DELETE FROM meta WHERE name = 'test'")

    def close(self) -> None:
        """Everything moves into the one file. SQLite does that by itself only where nobody else, be
        it a reader, has the ledger open."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):  # the log beside it is as good
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextlib.contextmanager
    def _healthy(self) -> Iterator[Database]:
        self._in_place()
        try:
            if self._db is None:
                self._db = self._connect(self.path)
            yield self._db
        except Unwritable:
            self._disconnect()  # it may keep a fault that is gone: the next attempt opens anew
            raise

    def _in_place(self) -> None:
        """The connection stays open here: as long as it does, a removed file's data exist."""
        try:
            there = self.path.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there:
            raise Unwritable(
                f"{self.path} was removed or replaced while the box runs: put the original back"
                " (until the box stops it can be copied from /proc/PID/fd), or restart the box to"
                " go on with what is there now"
            )


def count_seals(db: Database) -> int:
    return int(db.execute("SELECT count(*) FROM seals").fetchone()[0])
