"""What the ledger remembers of lengths, for a forecaster that starts anew."""

from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.entry import request_row
from appliance.ledger.lengths import Ended, read_past
from appliance.ledger.rows import ChoiceRow, Payload
from appliance.ledger.verify import pack_tokens
from tests.unit.test_entry import admitted, counts

MODEL = "ab" * 32


def write(db: Database, path: Path, number: int, *choices: tuple[int, str], **changes: Any) -> None:
    """One ended request with the prompt (number, 7)."""
    made = request_row(
        admitted(number=number, id=f"r{number}", n=len(choices), **changes),
        outcome="stop",
        status=200,
        code="",
        choices=tuple(
            ChoiceRow(
                outcome="stop",
                stop_type=kind,
                completion_tokens=length,
                hidden_tokens=1,
                digest="",
            )
            for length, kind in choices
        ),
        submitted_ns=1,
        counts=[counts(length) for length, _ in choices],
    )
    payload = Payload(tokens=pack_tokens([(number, 7), *[(1,) * length for length, _ in choices]]))
    with transaction(db, path):
        append(db, [(made, payload)])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    db = connect(path)
    write(db, path, 1, (30, "eos"))
    write(db, path, 2, (40, "limit"), (0, "none"), (9, "eos"))
    write(db, path, 3, (50, "eos"), model_sha256="ef" * 32)
    write(db, path, 4, (60, "eos"), route="/admin/audit/{trace_id}/replay")
    write(db, path, 5, (70, "limit"), sampling={"ignore_eos": True})
    for number in range(6, 40):
        write(db, path, number, (number, "word"))
    db.close()
    return path


def test_answers_come_oldest_first_with_their_prompts_cut_ones_as_censored(ledger: Path) -> None:
    found = list(read_past(ledger, MODEL, 4096))
    answers = [answer for row in found for answer in row.answers]
    assert answers[:3] == [
        Ended((1, 7), 30, False),
        Ended((2, 7), 40, True),
        Ended((2, 7), 9, False),
    ]
    assert answers[3:] == [Ended((number, 7), number, True) for number in range(6, 40)]
    assert [row.seq for row in found] == sorted(row.seq for row in found)


def test_other_models_and_replays_are_left_out_and_forced_lengths_give_only_their_pace(
    ledger: Path,
) -> None:
    found = {row.seq: row for row in read_past(ledger, MODEL, 4096)}
    assert 3 not in found
    assert 4 not in found
    assert found[5].answers == ()
    assert (found[5].decode_ns, found[5].completion_tokens) == (200, 70)


def test_no_more_than_the_newest_are_read(ledger: Path) -> None:
    found = list(read_past(ledger, MODEL, 20))
    assert [row.answers[0].length for row in found] == list(range(20, 40))


def test_a_ledger_that_cannot_be_read_is_an_empty_past(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert list(read_past(tmp_path / "none.sqlite", MODEL, 10)) == []
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database" * 100)
    assert list(read_past(broken, MODEL, 10)) == []
    assert caplog.text.count("remembers nothing more") == 2


def test_rows_without_their_tokens_give_only_their_pace(ledger: Path) -> None:
    db = connect(ledger)
    with transaction(db, ledger):
        db.conn.execute("UPDATE payloads SET tokens = NULL")
    db.close()
    found = list(read_past(ledger, MODEL, 4096))
    assert found
    assert all(row.answers == () for row in found)


def test_a_damaged_row_ends_the_memory_and_nothing_else(ledger: Path) -> None:
    db = connect(ledger)
    with transaction(db, ledger):
        db.conn.execute("UPDATE payloads SET tokens = x'00' WHERE seq = 20")
    db.close()
    assert all(row.seq < 20 for row in read_past(ledger, MODEL, 4096))
