"""The ledger as the audit routes see it: the caller's own requests, read off the event loop."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlite_utils import Database
from starlette.requests import Request

from appliance.accounts.keys import FILE_NAME
from appliance.api.audit_faults import NotFinished
from appliance.api.audit_shapes import Which
from appliance.api.box import Box, box_of
from appliance.api.trace import trace_of
from appliance.errors import NotFound, Unavailable
from appliance.ledger import audits
from appliance.ledger.append import append
from appliance.ledger.audits import Audit, Found
from appliance.ledger.books import unavailable
from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Archived, Conflict
from appliance.ledger.writer import Ledger

T = TypeVar("T")

MOST_FOUND = 64
"""Requests under one trace id or X-Request-Id; older ones have ids of their own."""
FLUSH_S = 2.0
"""A final row is made before the client has its last token, and durable a little later."""
MOST_CONFLICTS = 16
"""Conflicts of one answer that are chained; more say nothing new."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request of the ledger and what audits found out about it."""

    found: Found
    audits: Sequence[Audit]


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice of a record."""

    record: Record
    choice: int

    @property
    def digest(self) -> str:
        return self.record.found.row.choices[self.choice].digest


class Archive:
    """The ledger in the hands of one caller."""

    def __init__(self, request: Request) -> None:
        """Raises Unavailable where nothing is kept."""
        box, trace = box_of(request), trace_of(request)
        self._ledger = ledger_of(box)
        self._path = box.config.server.state_dir / FILE_NAME
        self._trace = trace
        self._key_id = None if "admin" in trace.scopes else trace.key_id

    async def records(self, name: str) -> list[Record]:
        """The requests that `name` means, oldest first, at least one. Raises NotFound, also for
        those of others, and NotFinished."""
        await asyncio.to_thread(self._ledger.flush, FLUSH_S)
        found, running = await self.read(lambda db: _look(db, name, self._key_id))
        if found:
            return found
        if running:
            raise NotFinished(name)
        raise NotFound(
            f"the ledger has no request {name[:100]!r} of this key: give the id of an answer, its "
            "X-Request-Id or its W3C trace id",
            param="trace_id",
            code="request_not_found",
        )

    async def read(self, look: Callable[[Database], T]) -> T:
        """What `look` finds, on another thread. Raises Unavailable."""
        try:
            return await asyncio.to_thread(reading, self._path, look)
        except LedgerError as error:
            raise unavailable(error) from error

    async def archive(self, answer: Answer) -> int:
        """The seq of the entry that says: the client has this very answer. One per answer."""
        row = Archived(**self._shared(answer), digest=answer.digest)
        return await self._write(lambda db: _archive(db, row))

    async def conflict(self, answer: Answer, claimed: str, first: int | None) -> int | None:
        """The seq of the entry that says: the client has something else. One per claim, and None
        beyond `MOST_CONFLICTS`."""
        row = Conflict(
            **self._shared(answer), claimed=claimed, digest=answer.digest, first_difference=first
        )
        return await self._write(lambda db: _conflict(db, row))

    def _shared(self, answer: Answer) -> dict[str, Any]:
        row = answer.record.found.row
        return {
            "wall_ns": time.time_ns(),
            "number": row.number,
            "id": row.id,
            "trace_id": row.trace_id,
            "key_id": self._trace.key_id,
            "choice": answer.choice,
        }

    async def _write(self, change: Callable[[Database], T]) -> T:
        try:
            return await asyncio.wrap_future(self._ledger.run(change))
        except LedgerError as error:
            raise unavailable(error) from error


def ledger_of(box: Box) -> Ledger:
    """Raises Unavailable on a box that keeps none."""
    if not isinstance(box.ledger, Ledger):
        raise Unavailable(
            "this box keeps no ledger, so there is nothing to audit", code="ledger_unavailable"
        )
    return box.ledger


def answers_of(records: Sequence[Record], shape: Which) -> list[Answer]:
    """Those that the body means, in order: every choice of every prompt."""
    return [
        Answer(record, choice)
        for record in records
        for choice in range(len(record.found.row.choices))
        if shape.id in (None, record.found.row.id) and shape.choice in (None, choice)
    ]


def name_of(request: Request) -> str:
    """What the path calls the request."""
    return str(request.path_params["trace_id"])


def described(answer: Answer) -> dict[str, Any]:
    """An answer and its place in the chain."""
    found = answer.record.found
    return {
        "id": found.row.id,
        "trace_id": found.row.trace_id,
        "choice": answer.choice,
        "digest": answer.digest,
        "seq": found.seq,
        "hash": found.hash,
    }


def head_of(request: Request) -> dict[str, Any]:
    """The end of the chain, for a client that keeps it."""
    snapshot = ledger_of(box_of(request)).snapshot
    return {"rows": snapshot.rows, "hash": snapshot.head}


def _look(db: Database, name: str, key_id: str | None) -> tuple[list[Record], bool]:
    found = [
        Record(one, audits.audits(db, one.row.number))
        for one in audits.requests(db, name, key_id, MOST_FOUND)
    ]
    return found, not found and audits.unfinished(db, name, key_id)


def reading(path: Path, look: Callable[[Database], T]) -> T:
    db = connect(path, read_only=True)
    try:
        return look(db)
    finally:
        db.close()


def _archive(db: Database, row: Archived) -> int:
    for audit in audits.audits(db, row.number):
        if isinstance(audit.row, Archived) and audit.row.choice == row.choice:
            return audit.seq
    return append(db, [(row, None)])[0]


def _conflict(db: Database, row: Conflict) -> int | None:
    known = [
        audit
        for audit in audits.audits(db, row.number)
        if isinstance(audit.row, Conflict) and audit.row.choice == row.choice
    ]
    for audit in known:
        if isinstance(audit.row, Conflict) and audit.row.claimed == row.claimed:
            return audit.seq
    return append(db, [(row, None)])[0] if len(known) < MOST_CONFLICTS else None
