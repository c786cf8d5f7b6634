"""Rows that were removed, put in or changed places, and histories that were made anew."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.config import LedgerConfig
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.export import Source, export
from appliance.ledger.retention import housekeep
from appliance.ledger.seals import seal_now
from appliance.ledger.verify import row_hash
from appliance.ledger.verify.evidence import read_exported
from appliance.ledger.verify.verdict import Fault, Verdict
from tests.unit.proof_ledger import (
    DAY,
    SIGNER,
    START,
    make_entries,
    make_ledger,
    tampering,
    told,
    verdict_of,
)

Edit = Callable[[sqlite3.Connection], None]


def tampered(tmp_path: Path, edit: Edit, **made: int) -> Verdict:
    path = make_ledger(tmp_path / "ledger.sqlite", **made)
    with tampering(path) as db:
        edit(db)
    return verdict_of(path)


def faults_of(verdict: Verdict, what: str) -> list[Fault]:
    return [fault for fault in verdict.faults if fault.what == what]


def test_removed_rows_are_named(tmp_path: Path) -> None:
    verdict = tampered(tmp_path, lambda db: run(db, "DELETE FROM entries WHERE seq IN (4, 5)"))
    [fault] = faults_of(verdict, "missing")
    assert (fault.seq, fault.last_seq) == (4, 5)
    assert {found.what for found in verdict.faults} == {"missing", "payload"}


def run(db: sqlite3.Connection, *statements: str) -> None:
    for statement in statements:
        db.execute(statement)


def test_a_removed_row_whose_place_was_closed_is_found_at_its_place(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        run(db, "DELETE FROM payloads WHERE seq = 4", "DELETE FROM entries WHERE seq = 4")
        for table in ("entries", "payloads"):
            run(db, f"UPDATE {table} SET seq = -seq WHERE seq > 4")
            run(db, f"UPDATE {table} SET seq = -seq - 1 WHERE seq < 0")

    assert faults_of(tampered(tmp_path, edit), "chain")[0].seq == 4


def test_a_row_put_in_between_is_found_at_its_place(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        for table in ("entries", "payloads"):
            run(db, f"UPDATE {table} SET seq = -seq WHERE seq >= 5")
            run(db, f"UPDATE {table} SET seq = 1 - seq WHERE seq < 0")
        body = db.execute("SELECT body, hash FROM entries WHERE seq = 3").fetchone()
        db.execute("INSERT INTO entries VALUES (5, 'admitted', ?, ?)", body)

    assert faults_of(tampered(tmp_path, edit), "chain")[0].seq == 5


def test_a_duplicated_row_at_the_end_is_found(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        run(db, "INSERT INTO entries SELECT max(seq) + 1, kind, body, hash FROM entries")

    verdict = tampered(tmp_path, edit)
    assert faults_of(verdict, "chain")[0].seq == verdict.last_seq
    assert faults_of(verdict, "head")


def test_a_row_chained_onto_the_end_without_the_head_is_found(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        seq, prev = db.execute("SELECT max(seq), hash FROM entries").fetchone()
        body = '{"wall_ns":1,"event":"x","detail":{}}'
        row = (seq + 1, "note", body, row_hash(prev, seq + 1, "note", body))
        db.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", row)

    assert told(tampered(tmp_path, edit)) == [("head", None, None)]


def test_two_rows_that_changed_places_are_named(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        run(
            db,
            "UPDATE entries SET seq = -3 WHERE seq = 3",
            "UPDATE entries SET seq = 3 WHERE seq = 5",
        )
        run(db, "UPDATE entries SET seq = 5 WHERE seq = -3")

    verdict = tampered(tmp_path, edit)
    [fault] = faults_of(verdict, "chain")
    assert (fault.seq, fault.last_seq) == (3, 5)


def test_neighbours_that_changed_places_are_named_and_no_row_after_them(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        run(
            db,
            "UPDATE entries SET seq = -3 WHERE seq = 3",
            "UPDATE entries SET seq = 3 WHERE seq = 4",
        )
        run(db, "UPDATE entries SET seq = 4 WHERE seq = -3")
        run(db, "UPDATE payloads SET seq = 3 WHERE seq = 4")

    [fault] = faults_of(tampered(tmp_path, edit), "chain")
    assert (fault.seq, fault.last_seq) == (3, 4)


def test_removed_rows_at_the_end_are_named(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        run(db, "DELETE FROM payloads WHERE seq > 15", "DELETE FROM entries WHERE seq > 15")

    [fault] = faults_of(tampered(tmp_path, edit), "missing")
    assert (fault.seq, fault.last_seq) == (16, 17)


def test_removed_rows_at_the_beginning_are_named(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        run(db, "DELETE FROM payloads WHERE seq < 8", "DELETE FROM entries WHERE seq < 8")

    [fault] = faults_of(tampered(tmp_path, edit), "missing")
    assert (fault.seq, fault.last_seq) == (1, 7)


def test_segments_that_changed_places_are_found(tmp_path: Path) -> None:
    def edit(db: sqlite3.Connection) -> None:
        first, second = (
            json.loads(body) for (body,) in db.execute("SELECT body FROM seals ORDER BY segment")
        )
        span = first["rows"]
        run(db, f"UPDATE entries SET seq = -seq WHERE seq <= {second['last_seq']}")
        run(
            db, f"UPDATE entries SET seq = -seq + {second['rows']} WHERE seq BETWEEN {-span} AND -1"
        )
        run(db, f"UPDATE entries SET seq = -seq - {span} WHERE seq < 0")

    verdict = tampered(tmp_path, edit)
    assert faults_of(verdict, "chain")[0].seq == 1
    assert faults_of(verdict, "seal")


def test_seals_that_changed_places_or_went_are_found(tmp_path: Path) -> None:
    def swap(db: sqlite3.Connection) -> None:
        run(db, "UPDATE seals SET segment = 3 - segment WHERE segment > 99")
        run(
            db, "UPDATE seals SET segment = segment + 10", "UPDATE seals SET segment = 13 - segment"
        )

    assert {place for _, _, place in told(tampered(tmp_path / made(tmp_path, "a"), swap))} == {1, 2}
    gone = tampered(tmp_path / made(tmp_path, "b"), lambda db: run(db, "DELETE FROM seals"))
    assert {place for _, _, place in told(gone)} == {1, 2}


def made(tmp_path: Path, name: str) -> str:
    (tmp_path / name).mkdir()
    return name


def test_a_stripped_signature_is_found(tmp_path: Path) -> None:
    strip = "UPDATE seals SET signature = NULL, signer = NULL WHERE segment = 1"
    verdict = tampered(tmp_path, lambda db: run(db, strip))
    assert told(verdict) == [("signature", None, 1)]


# -- forgeries -------------------------------------------------------------------------------------


def forge(path: Path) -> None:
    """What root can do: the whole history made anew from the beginning, every hash right."""
    path.unlink()
    db = connect(path)
    with transaction(db):
        append(db, make_entries(range(1, 9), START + 1))
        seal_now(db, None, START + DAY)
    db.close()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = make_ledger(tmp_path / "ledger.sqlite")
    stick = tmp_path / "stick"
    stick.mkdir()
    return export(Source(path, SIGNER, "box", "1", "root"), stick, START + 9 * DAY).path


def test_a_history_made_anew_looks_whole_and_is_found_with_an_earlier_export(
    tmp_path: Path, bundle: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(path.read_bytes())
    forge(path)
    assert verdict_of(path).ok
    for earlier in (bundle, bundle / "seals.json", bundle / "MANIFEST.json", copy):
        verdict = verdict_of(path, against=read_exported(earlier))
        assert {fault.what for fault in verdict.faults} == {"export"}


def test_a_history_made_anew_is_found_with_the_public_key(tmp_path: Path, bundle: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    forge(path)
    found = told(verdict_of(path, trusted=[SIGNER.public_key]))
    assert found == [("signature", None, 1)]


def test_a_tail_removed_with_its_head_is_found_with_an_earlier_export(
    tmp_path: Path, bundle: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    with tampering(path) as db:
        last = json.loads(db.execute("SELECT body FROM seals WHERE segment = 2").fetchone()[0])
        seq = last["last_seq"] + 1
        run(db, f"DELETE FROM payloads WHERE seq > {seq}", f"DELETE FROM entries WHERE seq > {seq}")
        run(db, "DELETE FROM seals WHERE segment > 2", "DELETE FROM usage_daily WHERE day > 20417")
        digest = db.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone()[0]
        head = json.dumps({"seq": seq, "hash": digest.hex()})
        db.execute("UPDATE meta SET value = ? WHERE name = 'head'", (head,))
    assert verdict_of(path).ok
    found = told(verdict_of(path, against=read_exported(bundle)))
    assert found == [("export", None, 3), ("export", seq + 1, None)]


def test_an_honest_ledger_that_went_on_fits_its_earlier_exports(
    tmp_path: Path, bundle: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    db = connect(path)
    with transaction(db):
        append(db, make_entries(range(100, 105), START + 10 * DAY))
        seal_now(db, SIGNER, START + 11 * DAY)
    assert verdict_of(path, against=read_exported(bundle), trusted=[SIGNER.public_key]).ok


def test_an_honest_ledger_that_dropped_old_rows_fits_its_earlier_exports(
    tmp_path: Path, bundle: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    db = connect(path)
    for _ in range(4):
        with transaction(db):
            housekeep(db, LedgerConfig(keep_days=1), SIGNER, START + 99 * DAY)
    verdict = verdict_of(path, against=read_exported(bundle))
    assert verdict.ok, verdict
    assert verdict.first_seq > 12


def test_one_recomputed_row_is_named_with_its_successor_in_doubt(tmp_path: Path) -> None:
    """Its own hash made to fit: then the next row does not follow any more."""

    def edit(db: sqlite3.Connection) -> None:
        prev = db.execute("SELECT hash FROM entries WHERE seq = 3").fetchone()[0]
        body = db.execute("SELECT body FROM entries WHERE seq = 4").fetchone()[0]
        body = body.replace('"acme"', '"acne"')
        digest = row_hash(prev, 4, "request", body)
        db.execute("UPDATE entries SET body = ?, hash = ? WHERE seq = 4", (body, digest))

    [fault] = faults_of(tampered(tmp_path, edit), "chain")
    assert fault.seq == 5
    assert "the row before it was replaced" in fault.detail
    assert fault.computed != fault.stored
    assert len(fault.computed) == len(hashlib.sha256().hexdigest())
