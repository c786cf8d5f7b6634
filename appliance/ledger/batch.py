"""What the ledger thread is asked to write, and one batch of it as one transaction."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from appliance.ledger.append import Head, append, head
from appliance.ledger.database import (
    BrokenChain,
    Unwritable,
    explained,
    meaning,
    transaction,
)
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Note, Payload, Row

Change = Callable[[Database], Any]


def _running_future() -> Future[Any]:
    """One that nobody can cancel: what was queued gets written."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


Written = tuple[Row, Payload | None]
"""An entry, and what is stored beside it."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A row, or a change of any other kind."""

    make: Callable[[], Written] | None = None
    """Called at each attempt to write it."""
    change: Change | None = None
    kept: bool = False
    """It stays queued until it is written; others fail when the ledger cannot be written."""
    urgent: bool = True
    """Somebody waits for it."""
    future: Future[Any] = field(default_factory=_running_future)


def told(task: Task) -> str:
    """The task's row, for the log."""
    try:
        return str(task.make()[0]) if task.make is not None else "no row"
    except Exception as error:
        return f"a row that cannot be made: {error!r}"


def resolve(task: Task, outcome: object) -> None:
    if isinstance(outcome, Exception):
        task.future.set_exception(outcome)
    else:
        task.future.set_result(outcome)


def fail(task: Task, why: str) -> None:
    if not task.future.done():
        task.future.set_exception(LedgerError(why))


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch that is durable."""

    head: Head
    outcomes: tuple[Any, ...]
    """Per task: its seq, its change's result, or the exception that its change raised."""
    changed: bool
    """More than rows."""


def commit(
    db: Database, tasks: Sequence[Task], known: Head, note: Note | None, path: Path
) -> Committed:
    """Writes all or nothing. Unwritable if the file is to blame, else some task's row is.

    `known` is an entry that is known to be in this ledger: other processes may have followed it.
    """
    outcomes: list[Any] = []
    with transaction(db, path):
        _continues(_head(db, path), known)
        if note is not None:
            append(db, [(note, None)])
        for is_row, group in groupby(tasks, key=lambda task: task.make is not None):
            if is_row:
                outcomes += append(db, [task.make() for task in group if task.make is not None])
            else:
                outcomes += _changed(db, group, path)
        last = head(db)
    return Committed(last, tuple(outcomes), any(task.change for task in tasks))


def _head(db: Database, path: Path) -> Head:
    with explained(path):
        try:
            return head(db)
        except sqlite3.OperationalError as error:
            if meaning(error, path) is not None:
                raise
            raise BrokenChain(
                f"{path} lacks a part of its schema ({error}): restore the newest backup that"
                " `steelyard audit verify` finds sound"
            ) from error


def _continues(found: Head, known: Head) -> None:
    if found.seq < known.seq or (found.seq == known.seq and found.hash != known.hash):
        raise BrokenChain(
            f"the ledger ends with entry {found.seq}, and this box already wrote entry"
            f" {known.seq} with another content: the file was replaced by an older or foreign"
            " one. Put the right file back, or restart the box to go on with this one"
        )


def _changed(db: Database, tasks: Iterable[Task], path: Path) -> list[Any]:
    """Each change in a savepoint: one that raises is undone alone."""
    outcomes: list[Any] = []
    for task in tasks:
        assert task.change is not None
        try:
            with explained(path), db.atomic():
                outcomes.append(task.change(db))
        except Unwritable:
            raise
        except Exception as error:
            outcomes.append(error)
    return outcomes
