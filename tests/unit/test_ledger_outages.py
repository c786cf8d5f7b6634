"""Outages of the ledger: a disk that is full, a file that is locked, read-only or moved away."""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appliance.ledger import writer
from appliance.ledger.database import connect, transaction
from appliance.ledger.writer import Ledger
from tests.unit.ledger_parts import (
    BULKY,
    SOON,
    Disk,
    action,
    admitted,
    broken_links,
    disk,
    fails,
    ledger,
    numbers,
    path,
    request,
    until,
)

__all__ = ["disk", "ledger", "path"]
"""Fixtures."""


def test_full_disk_refuses_admissions_and_loses_no_final_row(
    ledger: Ledger, path: Path, disk: Disk
) -> None:
    ledger.admit(admitted(1)).result(SOON)
    disk.fill(ledger)
    kept = [ledger.record(request(n), BULKY) for n in range(1, 4)]
    until(lambda: not ledger.snapshot.ok)
    assert "is full: free some space on it" in ledger.snapshot.problem
    fails(ledger.admit(admitted(9)), "is full")
    fails(ledger.act(action()), "is full")
    fails(ledger.run(lambda db: db.execute("INSERT INTO keys VALUES (1, 1, 1)")), "is full")
    kept += [ledger.record(request(n), BULKY) for n in range(4, 8)]
    assert not ledger.flush(0.1)
    assert ledger.snapshot.waiting >= 3
    disk.free()
    assert [future.result(SOON) for future in kept] == list(range(2, 9))
    assert numbers(path) == list(range(1, 8))
    until(lambda: ledger.snapshot.ok)
    assert ledger.admit(admitted(9)).result(SOON) == 9
    assert broken_links(path) == []
    assert ledger.snapshot.waiting == 0


def test_admission_in_the_batch_that_fails_is_refused(
    ledger: Ledger, path: Path, disk: Disk
) -> None:
    disk.fill(ledger)
    fails(ledger.admit(admitted(1), bytes(50_000)), "is full")
    assert numbers(path, "admitted") == []


def test_idle_box_notices_that_the_disk_has_room_again(ledger: Ledger, disk: Disk) -> None:
    disk.fill(ledger)
    fails(ledger.admit(admitted(1), bytes(50_000)), "is full")
    until(lambda: sum("'test'" in statement for statement in disk.statements) >= 2)
    assert not ledger.snapshot.ok
    disk.free()
    until(lambda: ledger.snapshot.ok)
    assert ledger.snapshot.problem == ""
    assert ledger.admit(admitted(2)).result(SOON) == 1


def test_test_write_leaves_nothing_behind(ledger: Ledger, path: Path, disk: Disk) -> None:
    test_idle_box_notices_that_the_disk_has_room_again(ledger, disk)
    with connect(path, read_only=True) as db:
        assert {name for (name,) in db.execute("SELECT name FROM meta")} == {
            "format",
            "head",
            "keys_version",
            "number",
        }


def test_connection_that_went_read_only_heals(ledger: Ledger, path: Path) -> None:
    ledger.run(lambda db: db.execute("PRAGMA query_only = ON")).result(SOON)
    future = ledger.record(request(1), None)
    until(lambda: not ledger.snapshot.ok)
    assert "is read-only: check its owner and permissions" in ledger.snapshot.problem
    assert future.result(SOON) == 1


def test_lock_of_another_process_is_waited_out(ledger: Ledger, path: Path) -> None:
    with connect(path) as other:
        with transaction(other):
            future = ledger.record(request(1), None)
            fails(ledger.admit(admitted(2)), "another process has kept")
            assert not ledger.snapshot.ok
        assert future.result(SOON) == 1


def test_file_that_was_moved_away_is_missed_and_found_again(ledger: Ledger, path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    future = ledger.record(request(1), None)
    until(lambda: not ledger.snapshot.ok)
    assert "was removed or replaced while the box runs" in ledger.snapshot.problem
    path.with_name("elsewhere").rename(path)
    assert future.result(SOON) == 1


def test_ledger_that_lost_its_end_is_not_written_on(ledger: Ledger, path: Path) -> None:
    for n in (1, 2, 3):
        ledger.admit(admitted(n)).result(SOON)
    with connect(path) as other:
        older = other.execute("SELECT hex(hash) FROM entries WHERE seq = 2").fetchone()[0].lower()
        other.execute("DELETE FROM entries WHERE seq = 3")
        other.execute(
            "UPDATE meta SET value = ? WHERE name = 'head'", (f'{{"seq":2,"hash":"{older}"}}',)
        )
    fails(ledger.admit(admitted(4)), "already wrote entry 3")
    assert ledger.snapshot.chain_broken
    assert not ledger.snapshot.ok


def test_damaged_schema_is_an_outage_and_no_fault_of_a_row(ledger: Ledger, path: Path) -> None:
    with connect(path) as other:
        other.execute("ALTER TABLE entries RENAME TO gone")
    fails(ledger.admit(admitted(1)), "lacks a part of its schema")
    ledger.record(request(1), None)
    assert not ledger.flush(0.1)
    assert ledger.snapshot.set_apart == 0
    assert ledger.close(timeout=0) == 1


def test_long_backlog_is_written_in_bounded_batches(
    ledger: Ledger, path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_ROWS", 10)
    with connect(path) as other, transaction(other):
        fails(ledger.admit(admitted(1)), "another process")
        for n in range(1, 56):
            ledger.record(request(n), None)
        disk.statements.clear()
    assert ledger.flush(SOON)
    assert numbers(path) == list(range(1, 56))
    assert disk.statements.count("COMMIT") >= 6


# -- a disk that is really full ------------------------------------------------------------------

_FILLER = (sys.executable, "-m", "tests.unit.ledger_filler")
_ROOT = Path(__file__).parents[2]
_IN_TMPFS = 'mount -t tmpfs -o size=3m,mode=700 none "$0" && exec "$@"'


def _filled(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120)


def _in_small_file_system(directory: Path) -> subprocess.CompletedProcess[str] | None:
    """None where this machine lets nobody mount anything."""
    script = ["sh", "-c", _IN_TMPFS, str(directory), *_FILLER, str(directory)]
    for namespace in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        try_out = ["unshare", *namespace, "sh", "-c", _IN_TMPFS, str(directory), "true"]
        if shutil.which("unshare") and subprocess.run(try_out, capture_output=True).returncode == 0:
            return _filled(["unshare", *namespace, *script])
    return None


@pytest.mark.parametrize("means", ["small file system", "limit on the file"])
def test_disk_that_is_really_full_costs_no_row(tmp_path: Path, means: str) -> None:
    done = _in_small_file_system(tmp_path) if means == "small file system" else None
    if done is None:
        done = _filled([*_FILLER, str(tmp_path), "--limit"])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "is full" in told["problem"] or "its free space" in told["problem"]
    assert told["admission_while_full"] == told["problem"]
    assert told["waiting_while_full"] > 0
    assert told["ok_after"]
    assert told["not_written"] == 0
    assert told["recorded"] > 30
    assert told["final_rows"] == list(range(1, told["recorded"] + 1))
    assert told["broken_links"] == []


def test_a_new_ledger_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    """SQLite answers "locked" at once to whoever goes over to the log meanwhile."""
    path = tmp_path / "ledger.sqlite"
    path.touch(0o600)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    timer.start()
    try:
        connect(path).close()
    finally:
        timer.join()
        other.close()
