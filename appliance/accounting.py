"""The account of one run of the box: the ledger opened and recovered, kept in order, and closed."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlite_utils import Database

from appliance.accounts.keys import FILE_NAME
from appliance.config import LedgerConfig
from appliance.engine.journal import segments
from appliance.ledger.books import Identity
from appliance.ledger.errors import LedgerError
from appliance.ledger.keysign import open_signer
from appliance.ledger.restart import numbers_in, recover, settled, spent
from appliance.ledger.retention import housekeep
from appliance.ledger.rows import Note, Payload, RequestRow, Row
from appliance.ledger.writer import CLOSE_S, Ledger, LedgerSnapshot

log = logging.getLogger(__name__)
T = TypeVar("T")

JOURNAL_DIR = "journal"
SYNC_S = 1.0
"""How much of the token journal a power cut can cost."""
_TIDY_EVERY = 10
"""Turns of SYNC_S between two looks at what can be cleared away."""
_KEEP_HOUSE_EVERY = 60
_WAIT_S = 60.0
_HOPELESS_S = 2.0
"""For a ledger that cannot be written when the box stops: the journal has the tokens, and the next
start reads them from there."""


class Accounting:
    """Owns the ledger's thread and the journal's directory. Made before the engine starts."""

    def __init__(self, state_dir: Path, policy: LedgerConfig, identity: Identity) -> None:
        """Opens the ledger and closes what the last run left open. Raises LedgerError."""
        self.journal_dir = state_dir / JOURNAL_DIR
        self._policy = policy
        self._signer = open_signer(state_dir) if policy.sign else None
        self.ledger = Ledger.open(state_dir / FILE_NAME)
        try:
            self.recovered = recover(self.ledger, self.journal_dir, identity)
            self._note("started", build=identity.build, model_sha256=identity.model_sha256)
        except BaseException:
            self.ledger.close(0)
            raise
        self._task: asyncio.Task[None] | None = None
        self._numbers: dict[Path, frozenset[int]] = {}
        """Of the requests in each spent segment: what is in it does not change any more."""

    def keep(self, engine_pid: Callable[[], int]) -> None:
        """Starts the housekeeping: the journal is synced and cleared in turns."""
        self._task = asyncio.create_task(self._keep(engine_pid), name="accounting")

    async def close(self) -> None:
        """Everything is written, as far as it can be; the journal has what cannot."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        hopeless = not self.ledger.snapshot.ok
        if self.ledger.flush(_HOPELESS_S if hopeless else _WAIT_S):
            with contextlib.suppress(OSError, LedgerError, TimeoutError):
                self._tidy(0)  # the next start does what this cannot
            with contextlib.suppress(LedgerError):
                self._note("stopped")
        self.ledger.close(_HOPELESS_S if hopeless else CLOSE_S)

    def _note(self, event: str, **detail: str) -> None:
        note = Note(wall_ns=time.time_ns(), event=event, detail=detail)
        self.ledger.act(note).result(_WAIT_S)

    async def _keep(self, engine_pid: Callable[[], int]) -> None:
        turn = 0
        while True:
            await asyncio.sleep(SYNC_S)
            turn += 1
            try:
                await asyncio.to_thread(self._sync, engine_pid())
                if turn % _TIDY_EVERY == 0:
                    await asyncio.to_thread(self._tidy, engine_pid())
                if turn % _KEEP_HOUSE_EVERY == 0:
                    await asyncio.to_thread(self._keep_house)
            except (OSError, LedgerError, TimeoutError) as error:
                log.warning("the ledger could not be looked after: %s", error)

    def _keep_house(self) -> None:
        """Seals a segment that is full or old enough, and drops what is kept no longer."""
        keep = partial(housekeep, policy=self._policy, signer=self._signer, wall_ns=time.time_ns())
        for done in self.ledger.run(keep).result(_WAIT_S):
            log.info("%s", done)

    def _sync(self, pid: int) -> None:
        """What the engine wrote reaches the disk itself."""
        for segment in segments(self.journal_dir):
            if segment.pid == pid:
                handle = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    os.fdatasync(handle)
                finally:
                    os.close(handle)

    def _tidy(self, pid: int) -> None:
        """Segments whose every request has its final row are not needed any more. They are read
        here, once: on the ledger's thread it would hold up every admission."""
        found = spent(self.journal_dir, pid)
        known = self._numbers
        self._numbers = {
            one.path: known[one.path] if one.path in known else numbers_in(one) for one in found
        }
        for path, numbers in self._numbers.items():
            if self.ledger.run(partial(settled, numbers=numbers)).result(_WAIT_S):
                path.unlink(missing_ok=True)


class Unrecorded:
    """In place of a ledger, for measurements alone: `STEELYARD_LEDGER=off`. Nothing is counted, and
    the box says that it is degraded."""

    def __init__(self) -> None:
        self.snapshot = LedgerSnapshot(recording=False)
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def admit(self, row: Row, prompt: bytes) -> "Future[int]":
        return _done(0)

    def record(self, row: RequestRow, payload: Payload | None) -> "Future[int]":
        return _done(0)

    def record_made(self, make: Callable[[], object]) -> "Future[int]":
        return _done(0)

    def act(self, row: Row, payload: Payload | None = None) -> "Future[int]":
        return _done(0)

    def run(self, change: Callable[[Database], T]) -> "Future[T]":
        raise LedgerError("the ledger is off (STEELYARD_LEDGER=off)")


def _done(value: int) -> "Future[int]":
    future: Future[int] = Future()
    future.set_result(value)
    return future
