"""The account of a run of the box: what is cleared away, on which thread, and how it ends."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from appliance import accounting
from appliance.accounting import JOURNAL_DIR, Accounting
from appliance.accounts.keys import FILE_NAME
from appliance.config import LedgerConfig
from appliance.engine.journal import Journal, Kind, Segment, segments
from appliance.ledger.books import Identity
from appliance.ledger.restart import numbers_in
from tests.unit.ledger_parts import admitted, request

HERE = Identity("tiny", "ab" * 32, "cd" * 32, "test", "boot")
RECORDS = 8
"""Of a segment here: its head, and a request with three tokens, two times over."""


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Accounting]:
    opened = Accounting(tmp_path, LedgerConfig(sign=False), HERE)
    yield opened
    opened.ledger.close(0)


def compute(journal: Journal, number: int) -> None:
    journal.write(Kind.START, number, 0, 1, 0)
    for place in range(1, 4):
        journal.write(Kind.TOKEN, number, 0, 7, place)
    journal.flush()


def finish(books: Accounting, number: int) -> None:
    books.ledger.admit(admitted(number)).result(20)
    books.ledger.record(request(number), None).result(20)


def test_segments_are_read_once_and_never_on_the_ledgers_thread(
    books: Accounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full one takes some tenths of a second, in which no request would be let in."""
    read: list[tuple[int, str]] = []

    def numbers(segment: Segment) -> frozenset[int]:
        read.append((segment.place, threading.current_thread().name))
        return numbers_in(segment)

    monkeypatch.setattr(accounting, "numbers_in", numbers)
    journal = Journal(books.journal_dir, segment_records=RECORDS)
    for number in (1, 2, 3):
        compute(journal, number)
    pid = segments(books.journal_dir)[0].pid
    books._tidy(pid)
    books._tidy(pid)
    assert read == [(0, threading.current_thread().name)]
    assert [one.place for one in segments(books.journal_dir)] == [0, 1, 2], "nothing has ended yet"
    finish(books, 1)
    books._tidy(pid)
    finish(books, 2)
    books._tidy(pid)
    assert len(read) == 1
    assert [one.place for one in segments(books.journal_dir)] == [1, 2]
    journal.close()


def test_a_journal_that_cannot_be_cleared_does_not_keep_the_stop_from_being_noted(
    books: Accounting, tmp_path: Path
) -> None:
    (tmp_path / JOURNAL_DIR / "1-2-000000.tokens").mkdir()
    asyncio.run(books.close())
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        rows = db.execute("SELECT body FROM entries WHERE kind = 'note' ORDER BY seq").fetchall()
    assert [json.loads(body)["event"] for (body,) in rows] == ["started", "stopped"]
