"""The ledger's thread: batches, outages that heal, rows that cannot be written, other processes."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlite_utils import Database

from appliance.ledger import writer
from appliance.ledger.append import append
from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError
from appliance.ledger.writer import Ledger
from tests.unit.ledger_parts import (
    BULKY,
    SECOND,
    SOON,
    WALL,
    Disk,
    action,
    admitted,
    broken_links,
    disk,
    fails,
    ledger,
    note,
    numbers,
    path,
    payload,
    request,
    until,
)

__all__ = ["disk", "ledger", "path"]
"""Fixtures."""


# -- writing -------------------------------------------------------------------------------------


def test_admission_is_durable_when_it_resolves(ledger: Ledger, path: Path) -> None:
    assert ledger.admit(admitted(1), b"prompt").result(SOON) == 1
    assert numbers(path, "admitted") == [1]
    assert ledger.snapshot.ok
    assert (ledger.snapshot.rows, ledger.snapshot.waiting) == (1, 0)


def test_rows_keep_the_order_in_which_they_were_queued(ledger: Ledger, path: Path) -> None:
    futures = [ledger.record(request(n), payload()) for n in range(1, 40)]
    futures.append(ledger.admit(admitted(40)))
    futures += [ledger.act(note()), ledger.record(request(41), None)]
    assert [future.result(SOON) for future in futures] == list(range(1, 43))
    assert broken_links(path) == []


def test_final_rows_wait_for_company_until_somebody_is_in_a_hurry(
    ledger: Ledger, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "COMPANY_S", 60.0)
    for n in range(1, 41):
        ledger.record(request(n), None)
        until(ledger._queue.empty)
    assert ledger.admit(admitted(41)).result(SOON) == 41
    assert disk.statements.count("COMMIT") == 1


def test_final_rows_alone_are_written_soon(ledger: Ledger) -> None:
    assert ledger.record(request(1), None).result(SOON) == 1


def test_flush_waits_for_what_was_queued_before(ledger: Ledger, path: Path) -> None:
    for n in range(1, 10):
        ledger.record(request(n), None)
    assert ledger.flush(SOON)
    assert numbers(path) == list(range(1, 10))


def test_queued_row_cannot_be_cancelled(ledger: Ledger, path: Path) -> None:
    future = ledger.admit(admitted(1))
    assert not future.cancel()
    assert future.result(SOON) == 1


def test_change_is_one_transaction_with_its_rows(ledger: Ledger, path: Path) -> None:
    def change(db: Database) -> str:
        append(db, [(action("key.create"), None)])
        db.execute("INSERT INTO keys VALUES ('k1', 'büro', '{}')")
        return "made"

    assert ledger.run(change).result(SOON) == "made"
    with pytest.raises(Exception, match="UNIQUE constraint failed: keys"):
        ledger.run(change).result(SOON)
    assert ledger.admit(admitted(1)).result(SOON) == 2
    assert ledger.snapshot.ok
    with connect(path, read_only=True) as db:
        assert db["entries"].count == 2


def test_clock_that_was_set_is_noted_before_the_rows(path: Path) -> None:
    now = [WALL]
    ledger = Ledger.open(path, wall=lambda: now[0], steady=lambda: 0)
    ledger.admit(admitted(1, wall_ns=WALL)).result(SOON)
    now[0] -= 3600 * SECOND
    ledger.record(request(1, wall_ns=now[0]), None)
    assert ledger.close() == 0
    with connect(path, read_only=True) as db:
        kinds = [kind for (kind,) in db.execute("SELECT kind FROM entries ORDER BY seq")]
    assert kinds == ["admitted", "note", "request"]
    assert broken_links(path) == []


def test_write_ahead_log_stays_small_however_much_is_written(ledger: Ledger, path: Path) -> None:
    for n in range(1, 400):
        ledger.record(request(n), BULKY)
        if n % 20 == 0:
            assert ledger.flush(SOON)
    assert path.stat().st_size > 15e6
    assert path.with_name(path.name + "-wal").stat().st_size < 8e6


# -- numbers -------------------------------------------------------------------------------------


def test_numbers_are_given_once_to_all_threads(ledger: Ledger) -> None:
    given: list[int] = []
    threads = [
        threading.Thread(target=lambda: given.extend(ledger.next_number() for _ in range(500)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == list(range(1, 2001))


def test_numbers_go_on_after_a_restart_and_above_the_journal(ledger: Ledger, path: Path) -> None:
    ledger.record(request(17), None)
    ledger.close()
    again = Ledger.open(path)
    assert again.next_number() == 18
    again.reserve_numbers(past=30)
    again.reserve_numbers(past=5)
    assert again.next_number() == 31
    again.close()


# -- rows that cannot be written -----------------------------------------------------------------


def test_second_final_row_of_a_request_is_dropped_and_counted(ledger: Ledger, path: Path) -> None:
    futures = [ledger.record(request(n), None) for n in (1, 2, 2, 3)]
    fails(futures[2], "it cannot be written")
    assert [futures[at].result(SOON) for at in (0, 1, 3)] == [1, 2, 3]
    assert ledger.flush(SOON)
    assert numbers(path) == [1, 2, 3]
    assert ledger.snapshot.duplicates == 1
    assert ledger.snapshot.ok


@pytest.mark.parametrize("poison", [{"sampling": {"x": object()}}, {"prompt_tokens": 1 << 80}])
def test_row_that_cannot_be_written_is_set_apart(
    path: Path, caplog: pytest.LogCaptureFixture, poison: dict[str, object]
) -> None:
    ledger = Ledger.open(path)
    futures = [ledger.record(request(n, **(poison if n == 5 else {})), None) for n in range(1, 10)]
    fails(futures.pop(4), "it cannot be written")
    for future in futures:
        future.result(SOON)
    assert ledger.flush(SOON)
    assert numbers(path) == [1, 2, 3, 4, 6, 7, 8, 9]
    assert broken_links(path) == []
    assert (ledger.snapshot.ok, ledger.snapshot.set_apart) == (False, 1)
    assert "Restart the box" in ledger.snapshot.problem
    fails(ledger.admit(admitted(10)), "cannot be written")
    assert ledger.act(note()).result(SOON) == 9
    (record,) = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert "chatcmpl-00000005" in record.getMessage()
    assert ledger.close() == 1


def test_admission_that_cannot_be_written_harms_nobody_else(ledger: Ledger) -> None:
    ledger.admit(admitted(1)).result(SOON)
    fails(ledger.admit(admitted(1)), "it cannot be written: IntegrityError")
    assert ledger.snapshot.ok
    assert ledger.admit(admitted(2)).result(SOON) == 2


def test_thread_that_ends_by_a_fault_leaves_a_box_that_admits_nobody(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ledger, "_attempt", broken)
    fails(ledger.record(request(1), None), "restart the box, and please report it")
    assert not ledger.snapshot.ok
    for future in (ledger.admit(admitted(2)), ledger.act(note()), ledger.record(request(2), None)):
        fails(future, "restart the box, and please report it")


# -- the end -------------------------------------------------------------------------------------


def test_closing_writes_what_is_queued(path: Path) -> None:
    ledger = Ledger.open(path)
    for n in range(1, 300):
        ledger.record(request(n), payload())
    assert ledger.close() == 0
    assert not path.with_name(path.name + "-wal").exists()
    assert numbers(path) == list(range(1, 300))
    fails(ledger.admit(admitted(300)), "the ledger is closed")
    assert ledger.close() == 0


def test_closing_tells_how_many_rows_could_not_be_written(path: Path, disk: Disk) -> None:
    ledger = Ledger.open(path, connect=disk.connect)
    disk.fill(ledger)
    futures = [ledger.record(request(n), BULKY) for n in range(1, 6)]
    assert ledger.close(timeout=0.1) == 5
    for future in futures:
        fails(future, "the box stopped before it could be written")


def test_opening_a_damaged_ledger_tells_so(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.admit(admitted(1)).result(SOON)
    ledger.close()
    with connect(path) as db:
        db.execute("UPDATE entries SET hash = zeroblob(32)")
    with pytest.raises(LedgerError, match="audit verify"):
        Ledger.open(path)


# -- other processes -----------------------------------------------------------------------------

_APPENDER = """
import sys, time
from pathlib import Path
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from tests.unit.ledger_parts import action

with connect(Path(sys.argv[1])) as db:
    print("ready", flush=True)
    for n in range(int(sys.argv[2])):
        with transaction(db):
            append(db, [(action("key.limits", target=str(n)), None)] * 2)
        time.sleep(0.002)  # SQLite's lock is not fair
"""


def test_two_processes_append_to_one_chain(path: Path) -> None:
    ledger = Ledger.open(path)
    command = [sys.executable, "-c", _APPENDER, str(path), "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        n, futures = 0, []
        while other.poll() is None or n < 60:
            n += 1
            ledger.admit(admitted(n)).result(SOON)
            futures.append(ledger.record(request(n), None))
    assert other.returncode == 0
    assert ledger.close() == 0
    assert numbers(path) == list(range(1, n + 1))
    assert broken_links(path) == []
    with connect(path, read_only=True) as db:
        order = "".join(
            "a" if kind == "action" else "r"
            for (kind,) in db.execute("SELECT kind FROM entries ORDER BY seq")
        )
    assert order.count("a") == 120
    assert "ra" in order
    assert "ar" in order
