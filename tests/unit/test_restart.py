"""What a run of the box left open is closed at the next start: real ledger, real journal."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.config import LedgerConfig
from appliance.engine.journal import SIZE, Journal, Kind, segments
from appliance.ledger import restart
from appliance.ledger.books import Identity
from appliance.ledger.errors import LedgerError
from appliance.ledger.restart import recover
from appliance.ledger.retention import housekeep
from appliance.ledger.rows import RequestRow
from appliance.ledger.verify import pack_tokens, token_digest, unpack_tokens
from appliance.ledger.writer import Ledger
from tests.unit.test_entry import PROMPT, Desk, admitted

HERE = Identity("tiny", "ab" * 32, "cd" * 32, "test", "boot")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path / "ledger.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def journal_dir(tmp_path: Path) -> Path:
    made = tmp_path / "journal"
    made.mkdir()
    return made


def rows(ledger: Ledger) -> list[RequestRow]:
    bodies = ledger.run(
        lambda db: [
            body
            for (body,) in db.conn.execute(
                "SELECT body FROM entries WHERE kind = 'request' ORDER BY seq"
            )
        ]
    ).result()
    return [msgspec.json.decode(body, type=RequestRow) for body in bodies]


def admit(ledger: Ledger, number: int, **changes: Any) -> None:
    row = admitted(number=number, id=f"r{number}", **changes)
    ledger.admit(row, pack_tokens([PROMPT])).result()


def start(journal: Journal, number: int, *tokens: int, choice: int = 0, key: int = 1) -> None:
    journal.write(Kind.START, number, choice, key, 1)
    journal.write(Kind.PREFILL, number, choice, 2, 1)
    for place, token in enumerate(tokens, 1):
        journal.write(Kind.TOKEN, number, choice, token, place)
    journal.flush()


def test_a_request_in_flight_is_closed_with_its_tokens(ledger: Ledger, journal_dir: Path) -> None:
    admit(ledger, 1)
    start(Journal(journal_dir), 1, 21, 22)
    assert recover(ledger, journal_dir, HERE) == 1
    (row,) = rows(ledger)
    assert (row.outcome, row.code, row.recovered, row.exact) == (
        "interrupted",
        "interrupted",
        True,
        True,
    )
    assert (row.id, row.key_name, row.tenant, row.scenario) == ("r1", "app", "sales", "mail")
    assert (row.prompt_tokens, row.cached_tokens, row.prefill_tokens) == (3, 1, 2)
    assert row.completion_tokens == 2
    assert row.choices[0].digest == token_digest(PROMPT, (21, 22))
    (blob,) = ledger.run(
        lambda db: db.conn.execute("SELECT tokens FROM payloads").fetchone()
    ).result()
    assert [tuple(ids) for ids in unpack_tokens(blob)] == [PROMPT, (21, 22)]
    assert segments(journal_dir) == [], "the journal is empty again"


def test_recovering_twice_closes_nothing_twice(ledger: Ledger, journal_dir: Path) -> None:
    admit(ledger, 1)
    journal = Journal(journal_dir)
    start(journal, 1, 21)
    saved = {s.path: s.path.read_bytes() for s in segments(journal_dir)}
    assert recover(ledger, journal_dir, HERE) == 1
    for path, data in saved.items():  # as if the box had died before it removed them
        path.write_bytes(data)
    assert recover(ledger, journal_dir, HERE) == 0
    assert len(rows(ledger)) == 1


def test_a_finished_request_is_left_as_it_is(ledger: Ledger, journal_dir: Path) -> None:
    admit(ledger, 1)
    start(Journal(journal_dir), 1, 21, 22)
    desk = Desk()
    desk.start()
    desk.say(21, 22)
    desk.finish()
    ledger.record(desk.row, None).result()
    assert recover(ledger, journal_dir, HERE) == 0
    assert [row.outcome for row in rows(ledger)] == ["stop"]


def test_an_ended_request_keeps_its_end(ledger: Ledger, journal_dir: Path) -> None:
    admit(ledger, 1, n=2)
    journal = Journal(journal_dir)
    start(journal, 1, 21, 22)
    start(journal, 1, 31, choice=1)
    journal.write(Kind.END, 1, 0, 0, 1)
    journal.write(Kind.END, 1, 1, 1, 0)
    journal.flush()
    recover(ledger, journal_dir, HERE)
    (row,) = rows(ledger)
    assert row.outcome == "length"
    assert [choice.outcome for choice in row.choices] == ["stop", "length"]
    assert (row.completion_tokens, row.hidden_tokens) == (3, 1)


def test_a_request_of_which_one_choice_ended_was_interrupted(
    ledger: Ledger, journal_dir: Path
) -> None:
    admit(ledger, 1, n=2)
    journal = Journal(journal_dir)
    start(journal, 1, 21)
    journal.write(Kind.END, 1, 0, 0, 1)
    journal.flush()
    recover(ledger, journal_dir, HERE)
    (row,) = rows(ledger)
    assert row.outcome == "interrupted"
    assert [choice.outcome for choice in row.choices] == ["stop", "interrupted"]


def test_a_request_that_never_started_is_closed_too(ledger: Ledger, journal_dir: Path) -> None:
    admit(ledger, 1)
    assert recover(ledger, journal_dir, HERE) == 1
    (row,) = rows(ledger)
    assert (row.outcome, row.completion_tokens, row.prefill_tokens) == ("interrupted", 0, 0)


def test_tokens_without_an_admission_are_counted_to_their_key(
    ledger: Ledger, journal_dir: Path
) -> None:
    start(Journal(journal_dir), 7, 21, 22, key=0x1A2B3C4D)
    assert recover(ledger, journal_dir, HERE) == 1
    (row,) = rows(ledger)
    assert (row.number, row.key_id, row.completion_tokens) == (7, "k_1a2b3c4d", 2)
    assert not row.exact
    assert ledger.next_number() == 8, "its number is taken"


def test_after_a_power_cut_the_row_says_that_tokens_may_be_missing(
    ledger: Ledger, journal_dir: Path
) -> None:
    admit(ledger, 1, boot_id="before")
    start(Journal(journal_dir), 1, 21)
    recover(ledger, journal_dir, HERE)
    assert [row.exact for row in rows(ledger)] == [False]


def test_a_torn_tail_costs_the_torn_record_alone_and_is_noted(
    ledger: Ledger, journal_dir: Path
) -> None:
    admit(ledger, 1)
    start(Journal(journal_dir), 1, 21, 22)
    path = segments(journal_dir)[0].path
    data = bytearray(path.read_bytes())
    data[4 * SIZE : 5 * SIZE] = data[4 * SIZE : 4 * SIZE + 10].ljust(SIZE, b"\0")
    path.write_bytes(data)
    recover(ledger, journal_dir, HERE)
    (row,) = rows(ledger)
    assert row.completion_tokens == 1
    (note,) = ledger.run(
        lambda db: db.conn.execute("SELECT body FROM entries WHERE kind = 'note'").fetchone()
    ).result()
    assert '"torn_records":1' in note


def test_an_unreadable_journal_stops_the_start(ledger: Ledger, journal_dir: Path) -> None:
    (journal_dir / "1-2-000000.tokens").mkdir()
    with pytest.raises(LedgerError, match="would go uncounted"):
        recover(ledger, journal_dir, HERE)


def test_a_segment_is_settled_once_all_its_requests_have_their_rows(
    ledger: Ledger, journal_dir: Path
) -> None:
    admit(ledger, 1)
    start(Journal(journal_dir), 1, 21)
    segment = segments(journal_dir)[0]

    def is_settled() -> bool:
        numbers = restart.numbers_in(segment)
        return ledger.run(lambda db: restart.settled(db, numbers)).result()

    assert not is_settled()
    desk = Desk()
    desk.finish()
    ledger.record(desk.row, None).result()
    assert is_settled()


def drop_all(ledger: Ledger) -> None:
    """As on a box whose rows are kept for a day, two days later."""
    policy = LedgerConfig(keep_days=1, segment_hours=1)
    later = time.time_ns() + 2 * 86_400 * 10**9
    done = ledger.run(lambda db: housekeep(db, policy, None, later)).result()
    assert any("dropped segment" in line for line in done)


def test_what_was_dropped_for_its_age_is_not_counted_again(
    ledger: Ledger, journal_dir: Path
) -> None:
    """A box with little to do writes into one segment of the journal for weeks."""
    admit(ledger, 1)
    start(Journal(journal_dir), 1, 21, 22)
    desk = Desk()
    desk.finish()
    ledger.record(desk.row, None).result()
    drop_all(ledger)
    (segment,) = [one for one in segments(journal_dir) if one.place == 0]
    numbers = restart.numbers_in(segment)
    assert ledger.run(lambda db: restart.settled(db, numbers)).result(), "it can go"
    assert recover(ledger, journal_dir, HERE) == 0
    assert rows(ledger) == []


def test_a_request_that_outlived_dropped_ones_is_still_closed(
    ledger: Ledger, journal_dir: Path
) -> None:
    admit(ledger, 2)
    desk = Desk(number=2)
    desk.finish()
    ledger.record(desk.row, None).result()
    drop_all(ledger)
    admit(ledger, 1)
    journal = Journal(journal_dir)
    start(journal, 1, 21)
    start(journal, 3, 22)
    (segment,) = [one for one in segments(journal_dir) if one.place == 0]
    numbers = restart.numbers_in(segment)
    assert not ledger.run(lambda db: restart.settled(db, numbers)).result()
    assert recover(ledger, journal_dir, HERE) == 2
    assert [(row.number, row.completion_tokens) for row in rows(ledger)] == [(1, 1), (3, 1)]


def test_segments_that_an_engine_still_writes_are_not_spent(journal_dir: Path) -> None:
    journal = Journal(journal_dir, segment_records=16)
    pid = segments(journal_dir)[0].pid
    for place in range(1, 20):
        journal.write(Kind.TOKEN, 1, 0, 5, place)
    journal.flush()
    assert [s.place for s in restart.spent(journal_dir, pid)] == [0]
    assert len(restart.spent(journal_dir, pid + 1)) == 3
