"""What the random lives of test_account_property.py are made of."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sqlite_utils import Database

from appliance.engine.journal import SIZE, Journal, Kind, read, segments
from appliance.engine.reports import Delta, Event, Finished
from appliance.errors import ApiError
from appliance.ledger.database import connect
from appliance.ledger.entry import Entry
from appliance.ledger.recovery import Recovered
from appliance.ledger.rows import Admitted, Payload, RequestRow
from appliance.ledger.writer import Ledger, LedgerSnapshot
from appliance.snapshot import Unreported

SEGMENT = 48
"""Records: a few requests fill a segment."""


class Killed(Exception):
    """SIGKILL of the engine."""


@dataclass(slots=True)
class Truth:
    """What the journal was given of one request."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    prefill: int = 0
    cached: int = 0

    def take(self, kind: Kind, choice: int, a: int, b: int) -> None:
        if kind is Kind.START:
            assert choice not in self.tokens, "a choice started twice"
            self.tokens[choice] = []
            self.cached += b if choice == 0 else 0
        elif kind is Kind.PREFILL:
            self.prefill += a
        elif kind is Kind.TOKEN:
            self.tokens.setdefault(choice, []).append(a)

    @property
    def sums(self) -> Unreported:
        return Unreported(self.prefill, self.cached, sum(map(len, self.tokens.values())))


Truths = dict[int, Truth]


class MortalJournal(Journal):
    """Knows what has reached its files, and can die amid a write: the kernel ends one between two
    pages, so whole records are there or are not."""

    def __init__(self, directory: Path, truths: Truths) -> None:
        self.dies_after: int | None = None
        self._truths = truths
        self._unwritten: list[tuple[Kind, int, int, int, int]] = []
        super().__init__(directory, segment_records=SEGMENT)

    def write(self, kind: Kind, number: int, choice: int, a: int, b: int) -> None:
        self._unwritten.append((kind, number, choice, a, b))
        super().write(kind, number, choice, a, b)

    def flush(self) -> None:
        reach = len(self._unwritten)
        if dying := self.dies_after is not None and reach > 0:
            reach = min(reach, self.dies_after or 0)
            del self._pending[reach * SIZE :]
        super().flush()
        for kind, number, choice, a, b in self._unwritten[:reach]:
            self._truths.setdefault(number, Truth()).take(kind, choice, a, b)
        self._unwritten.clear()
        if dying:
            raise Killed


class Desk:
    """In front of the ledger: holds rows back until they are to be durable, and forgets them with
    the daemon."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue: list[tuple[Future[int], Callable[[], Future[int]]]] = []

    @property
    def snapshot(self) -> LedgerSnapshot:
        return self._ledger.snapshot

    def next_number(self) -> int:
        return self._ledger.next_number()

    def admit(self, row: Admitted, prompt: bytes) -> "Future[int]":
        return self._put(partial(self._ledger.admit, row, prompt))

    def record(self, row: RequestRow, payload: Payload | None) -> "Future[int]":
        return self._put(partial(self._ledger.record, row, payload))

    def record_made(self, make: Callable[[], tuple[RequestRow, Payload | None]]) -> "Future[int]":
        return self._put(partial(self._ledger.record_made, make))

    def act(self, row: RequestRow) -> "Future[int]":
        return self._put(partial(self._ledger.act, row))

    def commit(self, count: int | None = None) -> None:
        """The oldest rows become durable."""
        now = self._queue[:count]
        self._queue = self._queue[len(now) :]
        written = [(future, write()) for future, write in now]
        for future, inner in written:
            future.set_result(inner.result(30))

    def _put(self, write: Callable[[], "Future[int]"]) -> "Future[int]":
        future: Future[int] = Future()
        self._queue.append((future, write))
        return future


class Client:
    """What one request's client is told, once its admission is durable."""

    def __init__(self, entry: Entry, n: int) -> None:
        self.error: ApiError | None = None
        self.ends: dict[int, Finished] = {}
        self._entry = entry
        self._tokens: dict[int, list[int]] = {choice: [] for choice in range(n)}

    def event(self, event: Event) -> None:
        self._entry.event(event)
        if isinstance(event, Delta):
            self._tokens[event.choice].extend(event.token_ids)
        elif isinstance(event, Finished):
            self.ends[event.choice] = event

    def cancelled(self, by: str) -> None:
        self._entry.cancelled(by)

    def failed(self, error: ApiError) -> None:
        self.error = error
        self._entry.failed(error)

    def settle(self, lost: Recovered | None) -> None:
        self._entry.settle(lost)

    @property
    def admitted(self) -> bool:
        return self._entry.durable.done()

    @property
    def received(self) -> dict[int, list[int]]:
        return self._tokens if self.admitted else {}


def quick(path: Path) -> Database:
    """Processes die here, machines do not: what the kernel has is safe."""
    db = connect(path)
    db.execute("PRAGMA synchronous = OFF")
    return db


def minus(total: Unreported, before: Unreported) -> Unreported:
    return Unreported(
        total.prompt_tokens - before.prompt_tokens,
        total.cached_tokens - before.cached_tokens,
        total.predicted_tokens - before.predicted_tokens,
    )


def cut(directory: Path, left: float) -> None:
    """Keeps that share of the records that were written last, segment by segment; zeros follow."""
    for segment in segments(directory):
        data = segment.path.read_bytes()
        written = len(data.rstrip(b"\0")) // SIZE + 1
        kept = round(written * left) * SIZE
        segment.path.write_bytes(data[:kept].ljust(len(data), b"\0"))


def truths_in(directory: Path) -> Truths:
    found: Truths = {}
    for segment in segments(directory):
        for record in read(segment.path, lambda slot: None):
            truth = found.setdefault(record.number, Truth())
            truth.take(record.kind, record.choice, record.a, record.b)
    return found
