"""Reading the ledger: every list is complete and in order, and none reads more than it must."""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from appliance.ledger import queries
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.migrations import REQUEST_INDEXES
from appliance.ledger.queries import Link, RequestFilter, UsageFilter
from appliance.ledger.rows import RequestRow
from appliance.ledger.verify import USAGE_KEY, USAGE_SUMS, row_hash
from tests.unit.ledger_parts import DAY, SECOND, WALL, action, admitted, note, request

COUNT = 600
HOUR = 3600 * SECOND
MEMBERS = {
    "key_id": ("k1", "k2", "k3", ""),
    "tenant": ("acme", "büro"),
    "scenario": ("", "chat", "batch"),
    "outcome": ("stop", "length", "refused"),
    "model": ("smol", "big"),
    "route": ("/v1/chat/completions", "/v1/completions"),
}


def _rows() -> list[RequestRow]:
    """Over three days, with a clock that was set back for a while and once far ahead."""
    chance = random.Random(7)
    rows = []
    for n in range(1, COUNT + 1):
        wall = WALL + n * 3 * DAY // COUNT
        if 200 < n < 260:
            wall -= 30 * HOUR
        if n == 400:
            wall += 900 * DAY
        members = {name: chance.choice(values) for name, values in MEMBERS.items()}
        rows.append(request(n, wall_ns=wall, trace_id=f"{n // 2:032x}", **members))
    return rows


ROWS = _rows()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    with connect(path) as db, transaction(db):
        for row in ROWS:
            append(db, [(admitted(row.number), None), (row, None)])
            if row.number % 20 == 0:
                what = "key.create" if row.number % 40 else "request.cancel"
                append(db, [(note(), None), (action(what, target=str(row.number)), None)])
    return path


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with connect(path, read_only=True) as opened:
        yield opened


@pytest.fixture
def plans(db: Database) -> Callable[[], list[str]]:
    """What SQLite does for the statements since the last call."""
    statements: list[str] = []
    db.conn.set_trace_callback(statements.append)

    def explained() -> list[str]:
        db.conn.set_trace_callback(None)
        plan = [
            detail
            for statement in statements
            for *_, detail in db.execute(f"EXPLAIN QUERY PLAN {statement}")
        ]
        statements.clear()
        db.conn.set_trace_callback(statements.append)
        return plan

    return explained


def _wanted(row: RequestRow, wanted: RequestFilter) -> bool:
    members = asdict(wanted)
    since, until = members.pop("since_wall_ns"), members.pop("until_wall_ns")
    return (
        all(value in (None, getattr(row, name)) for name, value in members.items())
        and (since is None or row.wall_ns >= since)
        and (until is None or row.wall_ns < until)
    )


def _all_pages(db: Database, wanted: RequestFilter, **how: Any) -> list[int]:
    found: list[int] = []
    cursor = None
    for _ in range(20 * COUNT):
        page = queries.requests(db, wanted, cursor, **how)
        found += [entry.row.number for entry in page.entries]
        if page.cursor is None:
            return found
        cursor = page.cursor
    raise AssertionError("the pages never end")


def _filters() -> list[RequestFilter]:
    chance = random.Random(11)
    filters = [RequestFilter(), RequestFilter(key_id="nobody"), RequestFilter(until_wall_ns=0)]
    for _ in range(60):
        members: dict[str, Any] = {
            name: chance.choice(MEMBERS[name])
            for name in ("key_id", "tenant", "scenario", "outcome")
            if chance.random() < 0.4
        }
        if chance.random() < 0.5:
            members["since_wall_ns"] = WALL + chance.randrange(-HOUR, 3 * DAY)
        if chance.random() < 0.5:
            members["until_wall_ns"] = WALL + chance.randrange(0, 4 * DAY)
        filters.append(RequestFilter(**members))
    return filters


# -- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"limit": 7}, {"limit": 500}, {"limit": 3, "search_s": -1.0}])
def test_pages_hold_exactly_what_the_filter_wants_newest_first(
    db: Database, how: dict[str, Any]
) -> None:
    for wanted in _filters():
        expected = [row.number for row in reversed(ROWS) if _wanted(row, wanted)]
        assert _all_pages(db, wanted, **how) == expected, wanted


def test_page_is_no_longer_than_its_limit_and_the_last_has_no_cursor(db: Database) -> None:
    page = queries.requests(db, limit=10)
    assert [entry.row for entry in page.entries] == ROWS[: -10 - 1 : -1]
    assert page.cursor == page.entries[-1].seq
    assert queries.requests(db, limit=COUNT).cursor is not None  # 500 at most
    assert queries.requests(db, cursor=page.entries[0].seq, limit=1).entries == page.entries[1:2]
    wanted = RequestFilter(trace_id=f"{5:032x}")
    assert queries.requests(db, wanted, limit=2).cursor is None


def test_entry_tells_its_place_in_the_chain(db: Database) -> None:
    (entry,) = queries.requests(db, limit=1).entries
    before, link = queries.tail(db, entry.seq - 2, 2)
    assert entry.hash == row_hash(before.hash, link.seq, link.kind, link.body).hex()


def test_search_that_finds_nothing_for_long_ends_in_time_and_goes_on_later(db: Database) -> None:
    wanted = RequestFilter(key_id="k1", tenant="büro", scenario="batch", outcome="refused")
    page = queries.requests(db, wanted, limit=50, search_s=-1.0)
    assert len(page.entries) <= 1
    assert page.cursor is not None


@pytest.mark.parametrize("name", ["chatcmpl-00000009", f"{4:032x}", "req-9"])
def test_request_is_found_by_any_of_its_names(db: Database, name: str) -> None:
    found = [entry.row.number for entry in queries.request(db, name)]
    assert found == ([8, 9] if len(name) == 32 else [9])
    assert queries.request(db, name + "x") == ()


@pytest.mark.parametrize("look", [queries.requests, lambda db: queries.request(db, "req-1")])
def test_rows_that_are_dropped_meanwhile_are_still_told(
    tmp_path: Path, look: Callable[[Database], object]
) -> None:
    """Retention may take what a search has found before its entry is read."""
    path = tmp_path / "ledger.sqlite"
    with connect(path) as db, transaction(db):
        append(db, [(request(1), None)])
    with connect(path) as writing, connect(path, read_only=True) as reading:

        def drop(statement: str) -> None:
            if statement.startswith("SELECT seq, hash, body FROM entries WHERE seq"):
                writing.conn.execute("DELETE FROM entries")

        reading.conn.set_trace_callback(drop)
        found = look(reading)
        reading.conn.set_trace_callback(None)
        assert writing.conn.execute("SELECT count(*) FROM entries").fetchone() == (0,)
        entries = found.entries if isinstance(found, queries.Page) else found
        assert [entry.row.number for entry in entries] == [1]  # type: ignore[attr-defined]


def test_names_shared_by_many_give_the_newest(db: Database) -> None:
    assert [entry.row.number for entry in queries.request(db, f"{4:032x}", limit=1)] == [9]


@pytest.mark.parametrize("name", sorted(REQUEST_INDEXES))
def test_every_list_of_requests_uses_its_index(
    db: Database, plans: Callable[[], list[str]], name: str
) -> None:
    queries.requests(db, RequestFilter(**dict[str, Any]({name: "k1"})), limit=5)
    plan = plans()
    assert any(f"USING INDEX requests_by_{name} ({name}" in step for step in plan)
    assert not [step for step in plan if re.match("SCAN entries|USE TEMP", step)]


def test_list_of_some_time_looks_at_its_hours(db: Database, plans: Callable[[], list[str]]) -> None:
    queries.requests(db, RequestFilter(since_wall_ns=WALL, until_wall_ns=WALL + HOUR), limit=5)
    plan = plans()
    assert any("request_hours USING INTEGER PRIMARY KEY (rowid>? AND rowid<?" in s for s in plan)
    assert not [step for step in plan if step.startswith("SCAN")]


def test_search_ends_where_the_time_begins(db: Database) -> None:
    statements: list[str] = []
    db.conn.set_trace_callback(statements.append)
    wanted = RequestFilter(since_wall_ns=ROWS[-6].wall_ns, until_wall_ns=WALL + 4 * DAY)
    assert len(queries.requests(db, wanted).entries) == 6
    assert len(statements) < 50


def test_list_without_a_filter_uses_an_index(db: Database, plans: Callable[[], list[str]]) -> None:
    queries.requests(db, limit=5)
    queries.request(db, "req-9")
    queries.actions(db)
    queries.actions(db, "key.create")
    queries.tail(db, 100)
    plan = plans()
    for index in ("requests_by_seq", "requests_by_id", "actions_by_seq", "actions_by_action"):
        assert any(f"INDEX {index} (" in step for step in plan), index
    assert not [step for step in plan if re.match("SCAN|USE TEMP", step)]


# -- actions and the tail ------------------------------------------------------------------------


def test_actions_are_listed_newest_first(db: Database) -> None:
    first = queries.actions(db, limit=20)
    rest = queries.actions(db, cursor=first.cursor, limit=20)
    targets = [int(entry.row.target) for entry in (*first.entries, *rest.entries)]
    assert targets == list(range(COUNT, 0, -20))
    assert rest.cursor is None


def test_actions_of_one_kind_are_listed(db: Database) -> None:
    page = queries.actions(db, "request.cancel")
    assert [int(entry.row.target) for entry in page.entries] == list(range(COUNT, 0, -40))
    assert {entry.row.action for entry in page.entries} == {"request.cancel"}


def test_tail_follows_the_chain(db: Database) -> None:
    links: list[Link] = []
    after = 0
    while found := queries.tail(db, after, 100):
        links += found
        after = found[-1].seq
    assert [link.seq for link in links] == list(range(1, 2 * COUNT + 2 * COUNT // 20 + 1))
    assert {link.kind for link in links} == {"admitted", "request", "note", "action"}


# -- usage ---------------------------------------------------------------------------------------


def _day(row: RequestRow) -> int:
    return row.wall_ns // DAY


def _summed(rows: list[RequestRow], by: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Requests and completion tokens."""
    sums: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in rows:
        key = tuple(_day(row) if name == "day" else getattr(row, name) for name in by)
        count, tokens = sums.get(key, (0, 0))
        sums[key] = (count + 1, tokens + row.completion_tokens)
    return sums


@pytest.mark.parametrize("width", range(len(USAGE_KEY) + 1))
def test_usage_is_grouped_by_any_members(db: Database, width: int) -> None:
    for by in itertools.combinations(USAGE_KEY, width):
        found = queries.usage(db, by=by[::-1])
        keys = [tuple(getattr(one, name) for name in by) for one in found]
        sums = [(one.requests, one.completion_tokens) for one in found]
        assert dict(zip(keys, sums, strict=True)) == _summed(ROWS, by)
        assert keys == sorted(keys)


def test_usage_is_of_the_days_and_members_asked_for(db: Database) -> None:
    wanted = UsageFilter(
        first_day=WALL // DAY + 1, last_day=WALL // DAY + 2, key_id="k1", model="big"
    )
    rows = [
        row
        for row in ROWS
        if row.key_id == "k1" and row.model == "big" and 1 <= _day(row) - WALL // DAY <= 2
    ]
    (found,) = queries.usage(db, wanted)
    assert (found.requests, found.completion_tokens) == _summed(rows, ())[()]
    assert found.refused == sum(row.outcome == "refused" for row in rows)


def test_usage_of_nobody_is_zero(db: Database) -> None:
    (nothing,) = queries.usage(db, UsageFilter(key_id="nobody"))
    assert {getattr(nothing, name) for name in USAGE_SUMS} == {0}
    assert queries.usage(db, UsageFilter(key_id="nobody"), by=["day"]) == ()


def test_usage_cannot_be_grouped_by_anything_else(db: Database) -> None:
    with pytest.raises(ValueError, match="cannot be grouped by requests; DROP"):
        queries.usage(db, by=["day", "requests; DROP"])


@pytest.mark.parametrize(
    ("wanted", "step"),
    [
        ({"key_id": "k1"}, "usage_by_key (key_id=?"),
        ({"key_id": "k1", "first_day": 20_000}, "usage_by_key (key_id=? AND day>?"),
        ({"tenant": "acme", "last_day": 20_000}, "usage_by_tenant (tenant=? AND day<?"),
        ({"first_day": 20_000, "last_day": 20_001}, "PRIMARY KEY (day>? AND day<?"),
    ],
)
def test_usage_reads_no_more_than_asked_for(
    db: Database, plans: Callable[[], list[str]], wanted: dict[str, Any], step: str
) -> None:
    queries.usage(db, UsageFilter(**wanted), by=["day", "model"])
    plan = plans()
    assert any(step in found for found in plan), plan
    assert not [found for found in plan if "entries" in found]
