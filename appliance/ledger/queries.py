"""Reading the ledger: lists newest first, single requests, usage. Each call is short, whatever the
ledger's size, and wants a connection of its own (`connect(path, read_only=True)`).

Several filters at once are met by leaping: each has an index of (member, seq), and in turn each
index is asked for its newest entry not newer than the others' last answer, until all agree. A
search that finds little for long ends early with a cursor to go on from, rather than late.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from sqlite_utils import Database

from appliance.ledger.append import HOUR_NS
from appliance.ledger.migrations import REQUEST_INDEXES
from appliance.ledger.rows import Action, RequestRow, Row
from appliance.ledger.verify import USAGE_KEY, USAGE_SUMS

R = TypeVar("R", bound=Row)

MAX_LIMIT = 500
"""Entries of one page."""
SEARCH_S = 0.05
_LAST = 1 << 62
"""Above every seq and every hour."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[R]):
    """One entry of the chain."""

    seq: int
    hash: str
    row: R


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """Some entries, and where to go on: None after the last. A page may be short, or empty, and
    still not be the last."""

    entries: tuple[Entry[R], ...]
    cursor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilter:
    """Which final rows: all that is not None must hold."""

    id: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    key_id: str | None = None
    tenant: str | None = None
    scenario: str | None = None
    outcome: str | None = None
    since_wall_ns: int | None = None
    until_wall_ns: int | None = None
    """Exclusive."""


def requests(
    db: Database,
    wanted: RequestFilter = RequestFilter(),
    cursor: int | None = None,
    limit: int = 50,
    search_s: float = SEARCH_S,
) -> Page[RequestRow]:
    """Final rows in the reverse order of the chain, from before `cursor` on."""
    deadline = time.monotonic() + search_s
    with _one_instant(db):
        low, high = _bounds(db, wanted)
        start = min(high, _LAST if cursor is None else max(cursor - 1, -1))
        search = _Search(_probes(db, wanted), start, low, deadline)
        found: list[int] = []
        while len(found) < min(limit, MAX_LIMIT) and (seq := search.next()) is not None:
            if _in_time(db, seq, wanted):
                found.append(seq)
        cursor = found[-1] if found and search.next() is not None else search.cursor
        return Page(tuple(_entry(db, seq, RequestRow) for seq in found), cursor)


def request(db: Database, name: str, limit: int = 64) -> tuple[Entry[RequestRow], ...]:
    """The newest requests whose id, trace id or X-Request-Id is `name`, oldest first."""
    seqs: set[int] = set()
    with _one_instant(db):
        for member in ("id", "trace_id", "request_id"):
            sql = f"{_request_seqs(member)} ORDER BY seq DESC LIMIT ?"
            seqs.update(seq for (seq,) in db.conn.execute(sql, (name, _LAST, limit)))
        return tuple(_entry(db, seq, RequestRow) for seq in sorted(seqs)[-limit:])


@contextmanager
def _one_instant(db: Database) -> Iterator[None]:
    """Everything that is read comes of one state: what retention drops meanwhile is still there."""
    if db.conn.in_transaction:
        yield
        return
    db.conn.execute("BEGIN")
    try:
        yield
    finally:
        if db.conn.in_transaction:
            db.conn.execute("ROLLBACK")


def request_at(db: Database, seq: int) -> tuple[Entry[RequestRow], ...]:
    """The final row at this place of the chain, if that is one."""
    sql = "SELECT seq, hash, body FROM entries WHERE seq = ? AND kind = 'request'"
    return tuple(_decoded(row, RequestRow) for row in db.conn.execute(sql, (min(seq, _LAST),)))


def actions(
    db: Database, action: str | None = None, cursor: int | None = None, limit: int = 50
) -> Page[Action]:
    """What operators and the box itself did, in the reverse order of the chain."""
    below, limit = cursor if cursor is not None else _LAST, min(limit, MAX_LIMIT)
    by, also = ("seq", "") if action is None else ("action", " AND action = :action")
    rows = db.conn.execute(
        f"SELECT seq, hash, body FROM entries INDEXED BY actions_by_{by}"
        f" WHERE kind = 'action'{also} AND seq < :below ORDER BY seq DESC LIMIT :limit",
        {"action": action, "below": below, "limit": limit},
    ).fetchall()
    entries = tuple(_decoded(row, Action) for row in rows)
    return Page(entries, entries[-1].seq if len(entries) == limit else None)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry as it is chained."""

    seq: int
    kind: str
    body: str
    hash: bytes


def tail(db: Database, after: int, limit: int = MAX_LIMIT) -> tuple[Link, ...]:
    """Entries of every kind in the order of the chain, from after entry `after` on."""
    rows = db.conn.execute(
        "SELECT seq, kind, body, hash FROM entries WHERE seq > ? ORDER BY seq LIMIT ?",
        (after, limit),
    )
    return tuple(Link(*row) for row in rows)


# -- usage ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Which sums: all that is not None must hold. Days are counted since 1970, UTC."""

    first_day: int | None = None
    last_day: int | None = None
    key_id: str | None = None
    tenant: str | None = None
    scenario: str | None = None
    model: str | None = None
    route: str | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums of what was used; the members it is not grouped by are None."""

    day: int | None = None
    key_id: str | None = None
    tenant: str | None = None
    scenario: str | None = None
    model: str | None = None
    route: str | None = None
    requests: int
    """All that ended, refused ones too."""
    refused: int
    prompt_tokens: int
    cached_tokens: int
    prefill_tokens: int
    completion_tokens: int
    prefill_ns: int
    decode_ns: int
    energy_uj: int
    """Of the requests whose energy is known."""
    cost_prefill: int
    cost_decode: int
    cost_cached: int
    cost_idle: int


def usage(
    db: Database,
    wanted: UsageFilter = UsageFilter(),
    by: Collection[str] = (),
) -> tuple[Usage, ...]:
    """Sums for each combination of the members in `by` (of USAGE_KEY), in their order. Nothing
    used: nothing, or without `by` one row of zeros."""
    sql, params = _usage_sql(wanted, by)
    cursor = db.conn.execute(sql, params)
    names = [name for name, *_ in cursor.description]
    return tuple(Usage(**dict(zip(names, row, strict=True))) for row in cursor)


def _usage_sql(wanted: UsageFilter, by: Collection[str]) -> tuple[str, dict[str, Any]]:
    if unknown := set(by) - set(USAGE_KEY):
        raise ValueError(f"usage cannot be grouped by {', '.join(sorted(unknown))}")
    grouped = [name for name in USAGE_KEY if name in by]
    params = {
        name: value
        for name in UsageFilter.__dataclass_fields__
        if (value := getattr(wanted, name)) is not None
    }
    tests = [_USAGE_TESTS.get(name, f"{name} = :{name}") for name in params]
    sums = [f"coalesce(sum({name}), 0) AS {name}" for name in USAGE_SUMS]
    group = ", ".join(grouped)
    sql = (
        f"SELECT {', '.join((*grouped, *sums))} FROM usage_daily"
        f"{' WHERE ' + ' AND '.join(tests) if tests else ''}"
        f"{f' GROUP BY {group} ORDER BY {group}' if grouped else ''}"
    )
    return sql, params


_USAGE_TESTS = {"first_day": "day >= :first_day", "last_day": "day <= :last_day"}


# -- the search ----------------------------------------------------------------------------------

Probe = Callable[[int], int | None]
"""The newest entry, of those in one index, that is not newer than this one."""


class _Search:
    """Backwards through the entries on which all probes agree."""

    def __init__(self, probes: list[Probe], start: int, low: int, deadline: float) -> None:
        self._probes = probes
        self._at = start
        self._low = low
        self._deadline = deadline
        self._first = True
        self.cursor: int | None = start + 1
        """To go on from, where `next` has answered None."""

    def next(self) -> int | None:
        """The next one. None: there is none (and no cursor), or not found in time."""
        if self._late():
            return None
        agreed = 0
        while True:
            for probe in self._probes:
                found = probe(self._at)
                if found is None or found < self._low:
                    self.cursor = None
                    return None
                agreed = agreed + 1 if found == self._at else 1
                self._at = found
                if agreed == len(self._probes):
                    self._at -= 1
                    return found
            if self._late():
                return None

    def _late(self) -> bool:
        """Never before the first round of probes, so that every search gets further."""
        self.cursor = self._at + 1
        first, self._first = self._first, False
        return not first and time.monotonic() > self._deadline


def _request_seqs(member: str) -> str:
    index = REQUEST_INDEXES[member]
    return (
        f"SELECT seq FROM entries INDEXED BY {index} WHERE kind = 'request'"
        f" AND {member} = ? AND seq <= ?"
    )


_ANY_REQUEST = (
    "SELECT seq FROM entries INDEXED BY requests_by_seq WHERE kind = 'request' AND seq <= ?"
)
_NEWEST = " ORDER BY seq DESC LIMIT 1"


def _probes(db: Database, wanted: RequestFilter) -> list[Probe]:
    values = {name: getattr(wanted, name) for name in REQUEST_INDEXES}
    probes = [
        _probe(db, _request_seqs(name), value)
        for name, value in values.items()
        if value is not None
    ]
    return probes or [_probe(db, _ANY_REQUEST)]


def _probe(db: Database, sql: str, *values: str) -> Probe:
    def newest(at: int) -> int | None:
        found = db.conn.execute(sql + _NEWEST, (*values, at)).fetchone()
        return found[0] if found is not None else None

    return newest


_HOURS = "SELECT min(first_seq), max(last_seq) FROM request_hours WHERE hour BETWEEN ? AND ?"


def _bounds(db: Database, wanted: RequestFilter) -> tuple[int, int]:
    """Between which entries all requests of that time lie, to the hour. The chain's order is not
    the wall clock's where that was set, so every hour counts."""
    since, until = wanted.since_wall_ns, wanted.until_wall_ns
    if since is None and until is None:
        return 0, _LAST
    first = since // HOUR_NS if since is not None else -_LAST
    last = until // HOUR_NS if until is not None else _LAST
    low, high = db.conn.execute(_HOURS, (first, last)).fetchone()
    return (low, high) if low is not None else (1, 0)


def _in_time(db: Database, seq: int, wanted: RequestFilter) -> bool:
    since, until = wanted.since_wall_ns, wanted.until_wall_ns
    if since is None and until is None:
        return True
    (wall,) = db.conn.execute("SELECT wall_ns FROM entries WHERE seq = ?", (seq,)).fetchone()
    return (since is None or wall >= since) and (until is None or wall < until)


def _entry(db: Database, seq: int, kind: type[R]) -> Entry[R]:
    row = db.conn.execute("SELECT seq, hash, body FROM entries WHERE seq = ?", (seq,)).fetchone()
    return _decoded(row, kind)


def _decoded(found: tuple[int, bytes, str], kind: type[R]) -> Entry[R]:
    seq, hash, body = found
    return Entry(seq, hash.hex(), msgspec.json.decode(body, type=kind))
