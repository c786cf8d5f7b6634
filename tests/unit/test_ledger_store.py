"""The ledger's file: opening it, appending to it, and what follows from each entry."""

import contextlib
import ctypes
import hashlib
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlite_utils import Database

from appliance.ledger import append as appending
from appliance.ledger.append import append, head, largest_number
from appliance.ledger.clock import WallClock
from appliance.ledger.database import BrokenChain, Unwritable, connect, meaning, transaction
from appliance.ledger.errors import LedgerError
from appliance.ledger.payload import Redaction, redact, redactions
from appliance.ledger.rows import Payload, RequestRow
from appliance.ledger.soundness import check
from appliance.ledger.verify import GENESIS, USAGE_SUMS, pack_tokens, unpack_tokens
from tests.unit.ledger_parts import (
    DAY,
    SECOND,
    WALL,
    action,
    admitted,
    broken_links,
    note,
    numbers,
    payload,
    request,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with connect(path) as opened:
        yield opened


def _append(db: Database, *rows: Any) -> list[int]:
    with transaction(db):
        return append(db, [row if isinstance(row, tuple) else (row, None) for row in rows])


def _usage(db: Database) -> dict[tuple[int, str, str], int]:
    """Requests by day, key and scenario."""
    rows = db.execute("SELECT day, key_id, scenario, sum(requests) FROM usage_daily GROUP BY 1,2,3")
    return {(day, key, scenario): count for day, key, scenario, count in rows}


# -- opening -------------------------------------------------------------------------------------


def test_new_ledger_is_private_durable_and_empty(db: Database, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    for suffix in ("-wal", "-shm"):
        assert path.with_name(path.name + suffix).stat().st_mode & 0o777 == 0o600
    pragmas = {
        name: db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 5000,
    }
    assert head(db).seq == 0
    assert head(db).hash == GENESIS


def test_opening_again_changes_nothing(db: Database, path: Path) -> None:
    before = db.schema
    with connect(path) as again:
        assert again.schema == before
        assert again.execute("SELECT count(*) FROM _sqlite_migrations").fetchone()[0] >= 7


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="nowhere is not a directory: make it"):
        connect(tmp_path / "nowhere" / "ledger.sqlite")


def test_reader_makes_no_ledger(path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        connect(path, read_only=True)
    assert not path.exists()


def test_reader_cannot_write(db: Database, path: Path) -> None:
    with connect(path, read_only=True) as reader, pytest.raises(Unwritable, match="read-only"):
        _append(reader, note())


def test_file_of_something_else_is_refused(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(LedgerError, match="is not a SQLite database: move it away"):
        connect(path)


def test_database_of_something_else_is_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE songs (name)")
    with pytest.raises(LedgerError, match="a database of something else"):
        connect(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE meta SET value = 'steelyard-ledger-v9' WHERE name = 'format'",
        "INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('steelyard.ledger', 'm999')",
    ],
)
def test_ledger_of_a_newer_version_is_refused(db: Database, path: Path, change: str) -> None:
    db.execute(change)
    with pytest.raises(LedgerError, match="probably newer, version of Steelyard"):
        connect(path)


def test_damaged_pages_are_found_when_opening(path: Path) -> None:
    with connect(path) as db:
        _append(db, *(request(n) for n in range(1, 200)))
    data = bytearray(path.read_bytes())
    data[8 * 4096 : 60 * 4096] = os.urandom(52 * 4096)
    path.write_bytes(data)
    with (
        pytest.raises(LedgerError, match=r"is damaged.*restore the newest backup"),
        connect(path) as db,
    ):
        check(db, path)


def test_entry_that_was_changed_is_found_when_opening(db: Database, path: Path) -> None:
    _append(db, *(request(n) for n in range(1, 9)))
    db.execute("UPDATE entries SET body = replace(body, 'acme', 'evil') WHERE seq = 5")
    with pytest.raises(BrokenChain, match="entry 5 of the ledger is not what was written"):
        check(db, path)


def test_removed_end_of_the_chain_is_found(db: Database) -> None:
    _append(db, *(request(n) for n in range(1, 9)))
    db.execute("DELETE FROM entries WHERE seq > 6")
    with pytest.raises(BrokenChain, match="ends with entry 6, and its head names entry 8"):
        head(db)


@contextlib.contextmanager
def _no_longer_root() -> Iterator[None]:
    """Root may write anything; without its file-system identity this thread may not."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None)
    libc.setfsuid(65534)
    try:
        yield
    finally:
        libc.setfsuid(0)


def test_read_only_file_is_told_as_such() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "ledger.sqlite")
        connect(path).close()
        path.chmod(0o444)
        Path(directory).chmod(0o777)
        with _no_longer_root(), pytest.raises(LedgerError, match="is read-only: check its owner"):
            connect(path)


def test_unwritable_directory_is_told_as_such() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        with _no_longer_root(), pytest.raises(LedgerError, match=r"cannot be made .*owner"):
            connect(Path(directory, "ledger.sqlite"))
        Path(directory).chmod(0o755)


def test_lock_of_another_process_is_told_as_such(db: Database, path: Path) -> None:
    with connect(path) as other:
        other.execute("PRAGMA busy_timeout = 1")
        with transaction(db), pytest.raises(Unwritable, match="another process has kept"):
            _append(other, note())


def test_errors_of_statements_are_not_the_files() -> None:
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as conn,
        pytest.raises(sqlite3.OperationalError) as caught,
    ):
        conn.execute("SELECT nothing")
    assert meaning(caught.value, "x") is None


# -- appending -----------------------------------------------------------------------------------


def test_entries_are_chained_without_gaps(db: Database, path: Path) -> None:
    assert _append(db, admitted(1), request(1)) == [1, 2]
    assert _append(db, note(), action()) == [3, 4]
    assert broken_links(path) == []
    assert head(db).seq == 4


def test_transaction_that_fails_leaves_nothing(db: Database, path: Path) -> None:
    _append(db, admitted(1))
    with pytest.raises(sqlite3.IntegrityError):
        _append(db, admitted(2), request(1), request(1))
    assert numbers(path, "admitted") == [1]
    assert head(db).seq == 1
    assert largest_number(db) == 1
    assert _usage(db) == {}


@pytest.mark.parametrize("make", [admitted, request])
def test_number_is_used_once(db: Database, make: Any) -> None:
    _append(db, make(7))
    with pytest.raises(sqlite3.IntegrityError):
        _append(db, make(7))


def test_payload_is_stored_with_its_digests(db: Database) -> None:
    stored = Payload(tokens=pack_tokens([[1, 2, 3], [7]]), prompt="Grüße", answers="ja")
    _append(db, (request(1), stored))
    body, tokens, prompt, answers = db.execute(
        "SELECT body, tokens, prompt, answers FROM payloads JOIN entries USING (seq)"
    ).fetchone()
    assert [list(ids) for ids in unpack_tokens(tokens)] == [[1, 2, 3], [7]]
    assert (prompt, answers) == ("Grüße", "ja")
    for name, part in (("tokens", tokens), ("prompt", prompt.encode()), ("answers", b"ja")):
        assert f'"{name}_sha256":"{hashlib.sha256(part).hexdigest()}"' in body


def test_request_without_payload_says_so(db: Database) -> None:
    _append(db, (request(1), Payload()), request(2))
    assert db["payloads"].count == 0
    assert all('"tokens_sha256":null' in body for (body,) in db.execute("SELECT body FROM entries"))


def test_deleted_entry_takes_its_payload_along(db: Database) -> None:
    _append(db, (request(1), payload()), (request(2), payload()))
    db.execute("DELETE FROM entries WHERE seq = 1")
    assert [seq for (seq,) in db.execute("SELECT seq FROM payloads")] == [2]


def test_prompt_of_a_request_in_flight_is_kept_until_its_final_row(db: Database) -> None:
    prompt = Payload(tokens=pack_tokens([[1, 2]]))
    _append(db, (admitted(1), prompt), (admitted(2), prompt), admitted(3))
    _append(db, request(2))
    assert [tuple(row) for row in db.execute("SELECT * FROM pending")] == [
        (1, prompt.tokens),
        (3, b""),
    ]
    assert db["payloads"].count == 0


def test_largest_number_outlives_its_rows(db: Database) -> None:
    _append(db, request(5), admitted(3))
    _append(db, admitted(4))
    db.execute("DELETE FROM entries WHERE seq = 1")
    assert largest_number(db) == 5


# -- usage ---------------------------------------------------------------------------------------


def test_usage_sums_every_final_row_once(db: Database) -> None:
    _append(db, admitted(1), request(1), request(2))
    _append(db, request(3, outcome="refused", count=40, energy_uj=None, costs=None), note())
    sums = db.execute(f"SELECT {', '.join(USAGE_SUMS)} FROM usage_daily").fetchall()
    assert sums == [(42, 40, 30, 12, 18, 15, 1800, 1500, 14, 12, 10, 2, 0)]


def test_clock_set_back_over_midnight_neither_loses_nor_doubles_nor_moves_usage(
    db: Database,
) -> None:
    today = WALL // DAY
    _append(db, request(1, wall_ns=WALL - SECOND), request(2, wall_ns=WALL + SECOND))
    assert _usage(db) == {(today - 1, "k1", ""): 1, (today, "k1", ""): 1}
    _append(db, request(3, wall_ns=WALL - 3600 * SECOND), request(4, wall_ns=WALL + 2 * SECOND))
    assert _usage(db) == {(today - 1, "k1", ""): 2, (today, "k1", ""): 2}


def test_scenarios_of_a_key_and_day_are_bounded(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "MAX_SCENARIOS", 3)
    today = WALL // DAY
    _append(db, *(request(n, scenario=f"s{n}") for n in range(1, 4)))
    _append(db, *(request(n, scenario=f"s{n - 2}") for n in range(4, 9)))
    _append(db, request(9, scenario="s9", key_id="k2"), request(10, scenario="s6"))
    assert _usage(db) == {
        (today, "k1", "s1"): 1,
        (today, "k1", "s2"): 2,
        (today, "k1", "s3"): 2,
        (today, "k1", "(other)"): 4,
        (today, "k2", "s9"): 1,
    }
    assert db.execute("SELECT count(*) FROM entries WHERE scenario = 's6'").fetchone()[0] == 2


# -- the clock -----------------------------------------------------------------------------------


class _Clocks:
    """A wall clock and a steady one, both set by hand."""

    def __init__(self, last_wall_ns: int = 0) -> None:
        self.wall, self.steady = WALL, 0
        self.watch = WallClock(last_wall_ns, lambda: self.wall, lambda: self.steady)

    def pass_by(self, steady: float, wall: float) -> dict[str, Any] | None:
        """What is noted after so many seconds of each."""
        self.steady += int(steady * SECOND)
        self.wall += int(wall * SECOND)
        found, accept = self.watch.check()
        accept()
        return dict(found.detail) if found is not None else None


def test_clocks_that_agree_are_not_worth_a_note() -> None:
    clocks = _Clocks(last_wall_ns=WALL - 90 * DAY)
    moves = [(0, 0), (86_400, 86_400), (10, 8.5), (10, 3500), (10, 10)]
    assert [clocks.pass_by(*move) for move in moves] == [None] * 5


def test_clock_set_back_is_noted_once() -> None:
    clocks = _Clocks()
    clocks.pass_by(0, 0)
    assert clocks.pass_by(10, -3590) == {"by_ms": -3_600_000, "from_wall_ns": WALL + 10 * SECOND}
    assert clocks.pass_by(10, 10) is None


def test_clock_set_forward_is_noted() -> None:
    clocks = _Clocks()
    clocks.pass_by(0, 0)
    assert clocks.pass_by(10, 7210) == {"by_ms": 7_200_000, "from_wall_ns": WALL + 10 * SECOND}


def test_clock_set_back_while_the_box_was_off_is_noted() -> None:
    clocks = _Clocks(last_wall_ns=WALL + 5 * SECOND)
    assert clocks.pass_by(0, 0) == {"by_ms": -5000, "from_wall_ns": WALL + 5 * SECOND}


def test_note_that_did_not_become_durable_is_made_again() -> None:
    clocks = _Clocks(last_wall_ns=WALL + 5 * SECOND)
    first, _ = clocks.watch.check()
    second, _ = clocks.watch.check()
    assert first == second
    assert first is not None


# -- redaction -----------------------------------------------------------------------------------


def test_redaction_strikes_out_every_match_in_the_order_of_the_rules() -> None:
    rules = redactions([r"\b\d{16}\b", r"(?i)secret \w+"])
    text = "card 4111111111111111, SECRET word, secret \\1 and 12"
    assert redact(text, rules) == "card [redacted], [redacted], secret \\1 and 12"
    assert redact(text, ()) == text


def test_replacement_is_taken_as_it_stands() -> None:
    assert redact("abc", [Redaction(re.compile("(b)"), r"\1\g<0>")]) == r"a\1\g<0>c"


def test_pattern_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"'\(' is not a regular expression"):
        redactions(["a", "("])


def test_rows_read_back_as_they_were(db: Database) -> None:
    row = request(1, scenario="Ünïcode \u0000 \U0001f600 \"'")
    _append(db, row)
    (body,) = db.execute("SELECT body FROM entries").fetchone()
    assert msgspec.json.decode(body, type=RequestRow) == row
