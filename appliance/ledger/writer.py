"""The ledger's one writer: a thread that turns what is queued into durable batches.

Rules
- A batch is one transaction, in the order in which it was queued.
- A final row is never dropped: while the ledger cannot be written, final rows wait in their order
  and are tried again every 0.5 s. What somebody waits for (an admission, an action) fails instead.
- The box notices by itself that writing works again, with the waiting rows or with a test write.
- One row that can never be written does not stop the others: it is set apart, and the ledger says
  that it is not sound until somebody looks.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlite_utils import Database

from appliance.ledger.batch import Task, fail, resolve, told
from appliance.ledger.clock import steady_ns
from appliance.ledger.database import BUSY_S, BrokenChain, connect
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import (
    Action,
    Admitted,
    Archived,
    Conflict,
    Note,
    Payload,
    Replay,
    RequestRow,
)
from appliance.ledger.store import Connect, Store

log = logging.getLogger(__name__)
T = TypeVar("T")

COMPANY_S = 0.05
"""Final rows alone wait this long for others, so that a busy box commits seldom."""
RETRY_S = 0.5
BATCH_ROWS = 1000
"""Bounds the transaction that follows a long outage."""
CLOSE_S = 10.0
_APART = (
    "a request's final row cannot be written, and the box is set to serve nothing until somebody"
    " has looked: the log has it (CRITICAL). Restart the box to go on: it reads that request again"
    " from the token journal"
)
_DEAD = "the ledger's thread ended by a fault of Steelyard: restart the box, and please report it"


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """How the ledger stands."""

    ok: bool = True
    """It can be written."""
    problem: str = ""
    """What is wrong and what to do."""
    rows: int = 0
    """Entries ever chained, with those that retention has dropped since."""
    seals: int = 0
    head: str = ""
    """The last entry's hash."""
    last_commit_at: float = 0.0
    """On the clock of time.monotonic()."""
    commit_ms: float = 0.0
    """What the last batch took, from BEGIN to durable."""
    waiting: int = 0
    """Rows not durable yet, after the last batch."""
    chain_broken: bool = False
    duplicates: int = 0
    """Second final rows of a request: dropped."""
    set_apart: int = 0
    """Final rows that no attempt can write."""
    recording: bool = True
    """False only where the ledger is switched off, for measurements."""


class Ledger:
    """Every method may be called from any thread; futures resolve on the ledger's own."""

    def __init__(self, store: Store) -> None:
        """Use `open`."""
        self._store = store
        self._number = store.largest_number
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._kept: list[Task] = []
        """Tried before, and to be tried again, before whatever came later."""
        self._taken: list[Task] = []
        """The batch at hand."""
        self._apart: list[Task] = []
        self._failing = False
        self._closing = False
        self._give_up_at = float("inf")
        self.snapshot = LedgerSnapshot(
            rows=store.head.seq, seals=store.seals, head=store.head.hash.hex()
        )
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = steady_ns,
        connect: Connect = connect,
    ) -> "Ledger":
        """Opens or makes the ledger, checks that it is sound, starts its thread. LedgerError."""
        ledger = cls(Store(path, connect, wall, steady))
        ledger._thread.start()
        return ledger

    # -- any thread ------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A request number that was never used before."""
        with self._lock:
            self._number += 1
            return self._number

    def reserve_numbers(self, past: int) -> None:
        """From now on numbers are larger than `past`."""
        with self._lock:
            self._number = max(self._number, past)

    def admit(self, row: Admitted, prompt: bytes = b"") -> "Future[int]":
        """Resolves with the row's seq once it is durable. LedgerError: serve nothing for it.

        `prompt` (packed token ids) is kept until the final row is there, should the box not live
        to write it."""
        beside = Payload(tokens=prompt) if prompt else None
        task = Task(make=lambda: (row, beside))
        if not self.snapshot.ok:
            task.future.set_exception(LedgerError(self.snapshot.problem))
            return task.future
        return self._put(task)

    def record(self, row: RequestRow, payload: Payload | None) -> "Future[int]":
        """A request's final row: kept until it is durable."""
        return self.record_made(lambda: (row, payload))

    def record_made(self, make: Callable[[], tuple[RequestRow, Payload | None]]) -> "Future[int]":
        """The same, of a row that is made on the ledger's thread when it is about to be written:
        once what was queued before it has been written or has failed."""
        return self._put(Task(make=make, kept=True, urgent=False))

    def act(
        self,
        row: Action | Archived | Conflict | Replay | Note | RequestRow,
        payload: Payload | None = None,
    ) -> "Future[int]":
        """LedgerError if it cannot be written now."""
        return self._put(Task(make=lambda: (row, payload)))

    def run(self, change: Callable[[Database], T]) -> "Future[T]":
        """Any other write, all or nothing, on the ledger thread. The future has what it raises."""
        return self._put(Task(change=change))

    def flush(self, timeout: float) -> bool:
        """Waits until all that was queued before is durable; False if it is not in `timeout`
        seconds."""
        mark = self._put(Task(change=lambda db: None, kept=True))
        try:
            mark.result(timeout)
        except (TimeoutError, LedgerError):
            return False
        return True

    def close(self, timeout: float = CLOSE_S) -> int:
        """Writes what is queued and ends the thread. How many rows could not be written."""
        with self._lock:
            self._closing = True
            self._give_up_at = time.monotonic() + timeout
            self._queue.put(None)
        self._thread.join(timeout + BUSY_S)
        left = [*self._kept, *self._drained(), *self._apart]
        for task in left:
            fail(task, f"the box stopped before it could be written. {self.snapshot.problem}")
        rows = sum(task.make is not None for task in left)
        if rows:
            log.error("%d rows were not written: %s", rows, self.snapshot.problem)
        return rows

    def _put(self, task: Task) -> "Future[Any]":
        with self._lock:
            if self._closing:
                fail(task, self.snapshot.problem or "the ledger is closed: the box is stopping")
            else:
                self._queue.put(task)
        return task.future

    def _drained(self) -> list[Task]:
        found = []
        while not self._queue.empty():
            if (task := self._queue.get()) is not None:
                found.append(task)
        return found

    # -- the ledger thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException:  # a thread's top: without it, the box must serve nothing
            log.critical("%s", _DEAD, exc_info=True)
            self.snapshot = replace(self.snapshot, ok=False, problem=_DEAD)
            self._abandon()
        self._store.close()

    def _abandon(self) -> None:
        with self._lock:
            self._closing = True
        left = [task for task in self._taken if not task.future.done()]
        self._kept = [*left, *self._drained()]
        for task in self._kept:
            fail(task, _DEAD)

    def _loop(self) -> None:
        while not self._closing or self._kept or not self._queue.empty():
            self._taken = [*self._kept, *self._next()]
            if self._taken or self._failing:
                self._attempt(self._taken)
            if time.monotonic() > self._give_up_at:
                break

    def _next(self) -> list[Task]:
        """What to write next. While writing fails: all that comes until the next attempt."""
        tasks: list[Task] = []
        until = time.monotonic() + RETRY_S if self._failing else None
        while len(tasks) < BATCH_ROWS:
            try:
                task = self._queue.get(timeout=_left(until))
            except Empty:
                break
            if task is None:  # the box stops: whatever is queued is to be written now
                return tasks
            tasks.append(task)
            if not self._failing:
                until = 0.0 if task.urgent else until or time.monotonic() + COMPANY_S
        return tasks

    def _attempt(self, tasks: list[Task]) -> None:
        problem, broken = "", False
        try:
            for start in range(0, len(tasks), BATCH_ROWS):
                self._write(tasks[start : start + BATCH_ROWS])
            if not tasks:
                self._store.test()
        except LedgerError as error:
            problem, broken = str(error), isinstance(error, BrokenChain)
        except Exception as error:
            log.exception("the ledger's thread failed")
            problem = f"a fault of Steelyard itself, please report it: {error!r}"
        undone = [task for task in tasks if not task.future.done()]
        self._kept = [task for task in undone if task.kept]
        self._publish(replace(self.snapshot, chain_broken=broken), problem)
        for task in undone:
            if not task.kept:
                fail(task, problem)

    def _write(self, tasks: list[Task]) -> None:
        """All of them, or in ever smaller parts, so that a row that cannot be written is alone."""
        started = time.monotonic()
        try:
            done = self._store.commit(tasks)
        except LedgerError:
            raise
        except Exception as fault:
            half = len(tasks) // 2
            if half:
                self._write(tasks[:half])
                self._write(tasks[half:])
            else:
                self._reject(tasks[0], fault)
            return
        now = time.monotonic()
        took = (now - started) * 1e3
        self._publish(replace(self.snapshot, last_commit_at=now, commit_ms=took), "")
        for task, outcome in zip(tasks, done.outcomes, strict=True):
            resolve(task, outcome)

    def _reject(self, task: Task, fault: Exception) -> None:
        """`task` is one that no attempt can write."""
        name = getattr(fault, "sqlite_errorname", "")
        if task.kept and name == "SQLITE_CONSTRAINT_UNIQUE":
            self.snapshot = replace(self.snapshot, duplicates=self.snapshot.duplicates + 1)
            log.error("a second final row of a request was dropped: %s", told(task))
        elif task.kept:
            self._apart.append(task)
            log.critical("a final row cannot be written (%r): %s", fault, told(task))
        fail(task, f"it cannot be written: {fault!r}")

    def _publish(self, facts: LedgerSnapshot, problem: str) -> None:
        """Replaces the snapshot, and tells the log what is new. `problem`: with writing."""
        if problem and problem != self.snapshot.problem:
            log.error("the ledger cannot be written: %s", problem)
        elif self._failing and not problem:
            log.warning("the ledger can be written again")
        self._failing = bool(problem)
        if not problem and self._apart:
            problem = _APART
        self.snapshot = replace(
            facts,
            ok=not problem,
            problem=problem,
            rows=self._store.head.seq,
            head=self._store.head.hash.hex(),
            seals=self._store.seals,
            waiting=len(self._kept) + self._queue.qsize(),
            set_apart=len(self._apart),
        )


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())
