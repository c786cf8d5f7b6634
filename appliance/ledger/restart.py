"""At the start of the box: what the last run left open is closed, once and for all.

An admission without a final row was in flight when the box ended. Its tokens are in the token
journal, its prompt beside the admission. A request that is in the journal alone was being admitted
at that very moment: nobody was told anything of it, but it was computed, so it gets a row too.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace
from sqlite_utils import Database

from appliance.engine import journal
from appliance.engine.journal import Segment, segments
from appliance.ledger.append import append
from appliance.ledger.books import Identity, key_of_number
from appliance.ledger.entry import lost_row, with_digests
from appliance.ledger.errors import LedgerError
from appliance.ledger.recovery import Harvest, Recovered, harvest
from appliance.ledger.retention import DROPPED_NUMBER
from appliance.ledger.rows import Admitted, Note, Outcome, Payload, RequestRow
from appliance.ledger.verify import pack_tokens, unpack_tokens

log = logging.getLogger(__name__)
T = TypeVar("T")

_WAIT_S = 60.0
_OPEN = (
    "SELECT entries.body, pending.prompt FROM pending"
    " JOIN entries ON entries.number = pending.number AND entries.kind = 'admitted'"
    " ORDER BY pending.number"
)
_CLOSED = (
    "SELECT 1 FROM entries WHERE number = :number AND kind = 'request'"
    " UNION ALL SELECT 1 FROM meta WHERE name = :mark AND value >= :number"
    " AND NOT EXISTS (SELECT 1 FROM pending WHERE number = :number)"
)
"""Its final row is there, or was there and was dropped for its age."""


class Ledger(Protocol):
    """What a restart needs of the ledger; `writer.Ledger` is the real one."""

    def run(self, change: "Callable[[Database], T]") -> "Future[T]": ...

    def reserve_numbers(self, past: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Open:
    """An admission without a final row."""

    admitted: Admitted
    prompt: tuple[int, ...]


def recover(ledger: Ledger, directory: Path, identity: Identity) -> int:
    """Closes what the last run left open, then empties the journal. How many requests that were.
    Raises LedgerError when it cannot be done: the box must not start over it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = segments(directory)
    try:
        lost = harvest(segment.path for segment in found)
    except OSError as error:
        raise LedgerError(
            f"the token journal in {directory} cannot be read: {error.strerror or error}. Its "
            "tokens would go uncounted: repair the disk, or move the directory away by hand"
        ) from error
    ledger.reserve_numbers(max(lost.requests, default=0))
    closed = ledger.run(lambda db: _close(db, lost, identity)).result(_WAIT_S)
    for segment in found:
        segment.path.unlink()
    return closed


def _close(db: Database, lost: Harvest, identity: Identity) -> int:
    """In one transaction: should the box die meanwhile, the next start begins from the beginning;
    and where it cannot be written, the start fails at once."""
    rows = _rows(db, lost, identity)
    append(db, [*rows, *_note(rows, lost)])
    return len(rows)


def _rows(
    db: Database, lost: Harvest, identity: Identity
) -> list[tuple[RequestRow, Payload | None]]:
    opened = {one.admitted.number: one for one in _opened(db)}
    rows = [
        _closed(one, lost.requests.get(number), identity.boot_id) for number, one in opened.items()
    ]
    for number, request in sorted(lost.requests.items()):
        if number and number not in opened and not _is_closed(db, number):
            rows.append(_orphan(request, identity))
    return rows


def _opened(db: Database) -> Iterable[_Open]:
    for body, prompt in db.conn.execute(_OPEN):
        admitted = msgspec.json.decode(body, type=Admitted)
        yield _Open(admitted, tuple(unpack_tokens(prompt)[0]) if prompt else ())


def _closed(one: _Open, lost: Recovered | None, boot: str) -> tuple[RequestRow, Payload | None]:
    admitted = one.admitted
    known = lost.tokens if lost is not None else {}
    tokens = [known.get(choice, []) for choice in range(admitted.n)]
    row = lost_row(admitted, tokens, lost, outcome=_outcome(lost, admitted.n), code="interrupted")
    row = replace(
        row,
        choices=with_digests(row.choices, one.prompt, tokens),
        recovered=True,
        # Without power, what was written last may never have reached the disk.
        exact=row.exact and admitted.boot_id == boot,
    )
    return row, Payload(tokens=pack_tokens([one.prompt, *tokens]))


def _outcome(lost: Recovered | None, n: int) -> Outcome:
    """As the engine ended it, if it did; whether the client was told is not known."""
    if lost is None or len(lost.ended) < n:
        return "interrupted"
    reasons = {reason for reason, _ in lost.ended.values()}
    for reason, outcome in _ENDED.items():
        if reason in reasons:
            return outcome
    return "interrupted"


_ENDED: Mapping[str, Outcome] = {
    "error": "failed",
    "deadline": "deadline",
    "cancelled": "cancelled",
    "length": "length",
    "stop": "stop",
}


def _orphan(lost: Recovered, identity: Identity) -> tuple[RequestRow, Payload | None]:
    """Computed, but its admission never reached the disk: what is known is who asked."""
    tokens = [lost.tokens[choice] for choice in sorted(lost.tokens)]
    facts = Admitted(
        wall_ns=time.time_ns(),
        number=lost.number,
        id=f"lost-{lost.number}",
        trace_id="",
        request_id="",
        route="",
        key_id=key_of_number(lost.key),
        key_name="",
        tenant="",
        scenario="",
        model=identity.model,
        model_sha256="",
        template_sha256="",
        build="",
        sampling={},
        n=len(tokens),
        max_tokens=0,
        tier="",
        stream=False,
        prompt_tokens=lost.cached_tokens + lost.prefill_tokens,
        received_wall_ns=0,
        received_ns=0,
        boot_id="",
    )
    row = lost_row(facts, tokens, lost, outcome="interrupted", code="interrupted")
    return replace(row, recovered=True, exact=False), None


def _note(
    rows: list[tuple[RequestRow, Payload | None]], lost: Harvest
) -> list[tuple[Note, Payload | None]]:
    if not rows and not lost.torn:
        return []
    detail = {
        "requests": len(rows),
        "completion_tokens": sum(row.completion_tokens for row, _ in rows),
        "torn_records": lost.torn,
    }
    log.warning("recovered %(requests)d requests that the last run left open", detail)
    return [(Note(wall_ns=time.time_ns(), event="recovered", detail=detail), None)]


def numbers_in(segment: Segment) -> frozenset[int]:
    """Of the requests in it. Takes some tenths of a second for a full one. Raises OSError."""
    return frozenset(number for number in harvest([segment.path]).requests if number)


def settled(db: Database, numbers: Iterable[int]) -> bool:
    """Whether all of these requests have their final rows, so that the segment can go."""
    return all(_is_closed(db, number) for number in numbers)


def _is_closed(db: Database, number: int) -> bool:
    found = db.conn.execute(_CLOSED, {"number": number, "mark": DROPPED_NUMBER})
    return found.fetchone() is not None


def spent(directory: Path, live_pid: int) -> list[Segment]:
    """Segments that no engine writes to any more."""
    return [
        segment
        for segment in segments(directory)
        if segment.pid != live_pid or journal.is_full(segment.path)
    ]
