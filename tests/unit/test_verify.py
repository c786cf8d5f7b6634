"""The verifier: what it says of a ledger and of digests, and that it changes nothing."""

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.ledger import verify as package
from appliance.ledger.append import MAX_SCENARIOS, append
from appliance.ledger.database import connect, transaction
from appliance.ledger.rows import Note, Payload
from appliance.ledger.verify import (
    pack_tokens,
    row_hash,
    token_digest,
)
from appliance.ledger.verify.canon import PARTS, REQUIRED, SEAL
from appliance.ledger.verify.command import main, progress_line
from appliance.ledger.verify.opening import Unreadable
from tests.unit.proof_ledger import (
    DAY,
    START,
    add,
    make_admitted,
    make_ledger,
    make_request,
    tampering,
    told,
    verdict_of,
)

# -- what is intact --------------------------------------------------------------------------------


def test_an_untouched_ledger_is_intact_and_its_sums_are_told(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=2, requests=3)
    verdict = verdict_of(path)
    assert verdict.ok, verdict
    assert (verdict.requests, verdict.prompt_tokens, verdict.completion_tokens) == (9, 45, 36)
    assert verdict.last_seq == verdict.rows
    assert "intact" in str(verdict)


def test_an_empty_ledger_is_intact(tmp_path: Path) -> None:
    connect(tmp_path / "ledger.sqlite").close()
    assert verdict_of(tmp_path / "ledger.sqlite").ok


def test_a_ledger_that_is_being_written_is_verified_as_it_is_now(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    with transaction(db):
        append(db, [(Note(wall_ns=START, event="started"), None)])
    assert path.with_name("ledger.sqlite-wal").stat().st_size > 0
    head = db.execute("SELECT max(seq) FROM entries").fetchone()[0]
    verdict = verdict_of(path)
    assert verdict.ok
    assert verdict.last_seq == head


def test_verifying_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    before = path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(tmp_path))
    assert verdict_of(path).ok
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(tmp_path))) == before


def test_scenarios_beyond_the_bound_are_counted_together(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=0, requests=0)
    lists = ((1, 2), (3,))
    rows = [
        make_request(number, START, lists, scenario=f"s{number % (MAX_SCENARIOS + 20)}")
        for number in range(1, 2 * MAX_SCENARIOS + 60)
    ]
    add(path, *[make_admitted(row.number, START, 2, scenario=row.scenario) for row in rows], *rows)
    assert verdict_of(path).ok


def test_a_ledger_on_a_read_only_stick_is_verified(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert verdict_of(path).ok
    finally:
        tmp_path.chmod(0o700)


# -- what requests must do -------------------------------------------------------------------------


def test_a_request_in_flight_is_no_fault(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    add(path, make_admitted(100, START))
    verdict = verdict_of(path)
    assert verdict.ok
    assert verdict.in_flight == [100]


@pytest.mark.parametrize("event", ["recovered", "stopped"])
def test_a_request_without_an_end_after_a_recovery_is_a_fault(tmp_path: Path, event: str) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    add(path, make_admitted(100, START), Note(wall_ns=START, event=event))
    add(path, make_admitted(101, START))
    verdict = verdict_of(path)
    seq = verdict.last_seq - 2
    assert told(verdict) == [("final", seq, None)]
    assert verdict.in_flight == [100, 101]


def test_tokens_of_a_request_that_was_never_admitted_are_a_fault(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    add(path, make_request(100, START))
    assert told(verdict := verdict_of(path)) == [("final", verdict.last_seq, None)]


@pytest.mark.parametrize(
    "changed",
    [
        {"outcome": "refused", "status": 429, "completion_tokens": 0, "choices": ()},
        {"recovered": True},
        {"outcome": "failed", "code": "ledger_unavailable"},
    ],
)
def test_some_requests_end_without_having_been_admitted(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    add(path, make_request(100, START, **changed))
    assert verdict_of(path).ok


def test_a_second_end_is_a_fault(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    db.execute("DROP INDEX request_number")
    with transaction(db):
        append(db, [(make_request(1, START + DAY), None)])
    assert told(verdict := verdict_of(path)) == [("final", verdict.last_seq, None)]


def test_token_ids_that_do_not_give_the_digest_are_found_unless_fast(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    with transaction(db):
        append(db, [(make_admitted(100, START), None)])
        other = Payload(tokens=pack_tokens([[1, 2, 3], [4, 6]]))
        append(db, [(make_request(100, START, ((1, 2, 3), (4, 5))), other)])
    assert told(verdict := verdict_of(path)) == [("digest", verdict.last_seq, None)]
    assert verdict_of(path, deep=False).ok


def test_fewer_token_ids_than_were_counted_are_found(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    with transaction(db):
        append(db, [(make_admitted(100, START), None)])
        other = Payload(tokens=pack_tokens([[1, 2, 3]]))
        append(db, [(make_request(100, START, ((1, 2, 3), (4, 5))), other)])
    assert told(verdict := verdict_of(path)) == [("digest", verdict.last_seq, None)]


def test_a_body_that_makes_no_sense_is_a_fault_even_where_it_is_chained(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=0)
    bodies = ["[1]", "{}", '{"wall_ns":1,"event":"x","detail":{}} ', "[" * 100_000]
    with tampering(path) as db:
        newest = "SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1"
        seq, prev = db.execute(newest).fetchone()
        for body in bodies:
            seq += 1
            prev = row_hash(prev, seq, "note", body)
            insert = "INSERT INTO entries (seq, kind, body, hash) VALUES (?, ?, ?, ?)"
            db.execute(insert, (seq, "note", body, prev))
        head = json.dumps({"seq": seq, "hash": prev.hex()})
        db.execute("UPDATE meta SET value = ? WHERE name = 'head'", (head,))
    verdict = verdict_of(path)
    assert told(verdict) == [("content", seq + at, None) for at in range(-3, 1)]


# -- the program -----------------------------------------------------------------------------------


def test_the_directory_alone_verifies_with_another_python_and_no_packages(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    alone = tmp_path / "stick" / "verify"
    shutil.copytree(
        Path(package.__file__).parent, alone, ignore=shutil.ignore_patterns("__pycache__")
    )
    command = [sys.executable, "-B", "-I", "-S", str(alone), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"{path}: intact" in done.stdout
    assert not (alone / "__pycache__").exists()


def test_the_program_uses_nothing_newer_than_python_3_9() -> None:
    """Its syntax; the standard library's part of it was tried by hand."""
    import ast

    for module in Path(package.__file__).parent.glob("*.py"):
        ast.parse(module.read_text(encoding="utf-8"), feature_version=(3, 9))
        assert module.name == "__main__.py" or len(module.read_text().splitlines()) < 400


def test_the_module_runs_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    assert main([str(path)]) == 0
    capsys.readouterr()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entries SET hash = zeroblob(32) WHERE seq = 3")
    assert main([str(path)]) == 1
    out = capsys.readouterr().out
    assert "NOT INTACT, 1 fault" in out
    assert "FAULT row 3 (admitted, chatcmpl-00000001, 2025-11-24 16:00:01 UTC)" in out
    assert f"stored    {'0' * 64}" in out
    assert main([str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["faults"][0]["seq"] == 3


@pytest.mark.parametrize("content", [None, b"", b"SQLite format 3\0", b"x" * 5000])
def test_what_is_no_ledger_cannot_be_read(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.sqlite"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    assert "verify: " in capsys.readouterr().err


def test_another_database_and_another_version_cannot_be_read(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(Unreadable, match="no ledger"):
        verdict_of(tmp_path / "other")
    path = make_ledger(tmp_path / "ledger.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = 'steelyard-ledger-v2' WHERE name = 'format'")
    with pytest.raises(Unreadable, match="use a newer one"):
        verdict_of(path)


def test_a_damaged_file_is_a_fault(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=1, requests=40)
    raw = bytearray(path.read_bytes())
    at = raw.index(b'"chatcmpl-00000020"') // 4096 * 4096
    raw[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(raw)
    verdict = verdict_of(path)
    assert not verdict.ok


def test_progress_is_told_on_a_terminal_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert progress_line(io.StringIO()) is None
    out, now = Terminal(), [10.0]
    tell = progress_line(out, lambda: now[0])
    assert tell is not None
    tell(1, 100)
    assert out.getvalue() == ""
    now[0] = 12.0
    tell(50_000, 200_000)
    assert out.getvalue() == "\r\x1b[K50000 of 200000 rows, 25,000 rows/s, 6 s left"


# -- the documentation -----------------------------------------------------------------------------


def test_the_clients_check_in_the_documentation_works(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "ledger.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 30
    (tmp_path / "check_answer.py").write_text(code, encoding="utf-8")
    answer = {
        "prompt_token_ids": [1, 2, 3],
        "choices": [{"token_ids": [4, 5]}, {"token_ids": []}],
    }
    (tmp_path / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    right = [token_digest([1, 2, 3], [4, 5]), token_digest([1, 2, 3], [])]
    for header, code_due in ((", ".join(right), 0), (right[0], 1), (",".join(right[::-1]), 1)):
        command = [sys.executable, "-I", "check_answer.py", "answer.json", header]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == code_due, done.stderr
        assert done.stdout.startswith("the same tokens" if code_due == 0 else "NOT the same")


def test_the_documentation_has_the_members_that_are_checked() -> None:
    text = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")
    for name in (*SEAL, *REQUIRED, *(f"{part}_sha256" for part in PARTS)):
        assert f"`{name}`" in text, name
