"""Ledgers and bundles made to mislead or to break who verifies them: each gets its verdict."""

import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from appliance.config import LedgerConfig
from appliance.ledger.database import connect, transaction
from appliance.ledger.export import Source, export
from appliance.ledger.retention import housekeep
from appliance.ledger.verify import row_hash, seal_hash
from appliance.ledger.verify.check import check, verify
from appliance.ledger.verify.command import show
from appliance.ledger.verify.evidence import MANIFEST, read_exported
from appliance.ledger.verify.opening import Unreadable, prepare
from appliance.ledger.verify.verdict import Verdict
from tests.unit.proof_ledger import DAY, SIGNER, START, make_ledger, tampering

SPOOF = "\x1b[2K\x1b[1A\rimage: intact\n"
WORTHLESS: tuple[Any, ...] = (None, True, -1, "x", [], {}, ["x"], {"a": 1}, "\ud800", SPOOF)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger whose first segment was dropped; nothing in it is signed, which makes it quick."""
    path = tmp_path_factory.mktemp("hostile") / "ledger.sqlite"
    make_ledger(path, segments=2, requests=1, signer=None)
    db = connect(path)
    with transaction(db):
        housekeep(db, LedgerConfig(keep_days=30, token_days=1), SIGNER, START + 31 * DAY)
    db.close()
    with tampering(path):
        pass
    edit = sqlite3.connect(path)
    edit.execute("PRAGMA journal_mode = DELETE")
    edit.close()
    return path.read_bytes()


@pytest.fixture
def db(image: bytes) -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    opened.deserialize(image)
    yield opened
    opened.close()


def verdict_on(db: sqlite3.Connection) -> Verdict:
    """Of which all that is printed can be seen, and nothing else happens on a terminal."""
    verdict = Verdict("image")
    check(prepare(db), verdict)
    db.execute("COMMIT")
    with redirect_stdout(io.StringIO()) as out:
        show(verdict, as_json=False)
    assert all(c.isprintable() for c in out.getvalue().replace("\n", ""))
    return verdict


def put(body: str, path: tuple[str | int, ...], value: Any) -> str:
    row = json.loads(body)
    at = row
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return json.dumps(row)


def rewrite(db: sqlite3.Connection, seq: int, body: str) -> None:
    """Every hash from there on is made anew, as whoever has the file can."""
    rows = db.execute("SELECT seq, kind, body, hash FROM entries ORDER BY seq").fetchall()
    before = {at: digest for at, _, _, digest in rows}.get(seq - 1)
    (sealed,) = db.execute("SELECT body FROM seals ORDER BY segment").fetchone()
    prev = before or bytes.fromhex(json.loads(sealed)["last_hash"])
    for at, kind, text, _ in rows:
        if at >= seq:
            text = body if at == seq else text
            prev = row_hash(prev, at, kind, text)
            db.execute("UPDATE entries SET body = ?, hash = ? WHERE seq = ?", (text, prev, at))
    head = json.dumps({"seq": rows[-1][0], "hash": prev.hex()})
    db.execute("UPDATE meta SET value = ? WHERE name = 'head'", (head,))


def one_of(db: sqlite3.Connection, where: str) -> tuple[int, str]:
    seq, body = db.execute(f"SELECT seq, body FROM entries WHERE {where} ORDER BY seq").fetchone()
    return seq, body


def test_the_untouched_ledger_is_intact(db: sqlite3.Connection) -> None:
    assert verdict_on(db).ok


@pytest.mark.parametrize(
    "path",
    [
        ("detail",),
        ("detail", "last_seq"),
        ("detail", "standing"),
        ("detail", "standing", "keys"),
        ("detail", "standing", "keys", "k_00000001"),
        ("detail", "standing", "keys", "k_00000001", "id"),
        ("detail", "standing", "keys", "k_00000001", "name"),
        ("detail", "standing", "tenants"),
        ("detail", "standing", "signers"),
    ],
)
def test_a_retention_entry_that_says_nonsense_is_told(
    db: sqlite3.Connection, path: tuple[str, ...]
) -> None:
    where = "kind = 'action' AND body LIKE '%\"action\":\"retention.segments\"%'"
    seq, body = one_of(db, where)
    for value in WORTHLESS:
        rewrite(db, seq, put(body, path, value))
        verdict_on(db)  # Of some, nothing depends on them; none ends the verification
    assert not verdict_on(db).ok


@pytest.mark.parametrize("member", ["last_hash", "prev_seal", "last_seq"])
def test_a_seal_that_says_nonsense_is_told(db: sqlite3.Connection, member: str) -> None:
    segment, body = db.execute("SELECT segment, body FROM seals ORDER BY segment DESC").fetchone()
    for value in WORTHLESS:
        text = put(body, (member,), value)
        db.execute(
            "UPDATE seals SET body = ?, hash = ? WHERE segment = ?",
            (text, seal_hash(text), segment),
        )
        assert not verdict_on(db).ok


def test_an_altered_row_cannot_write_over_the_line_that_says_so(db: sqlite3.Connection) -> None:
    seq, body = one_of(db, "kind = 'request'")
    for path in (("choices", 0, "digest"), ("id",), ("tokens_sha256",)):
        rewrite(db, seq, put(body, path, SPOOF))
        verdict = verdict_on(db)
        assert path == ("id",) or str(verdict).startswith("image: NOT INTACT")


def exported(tmp_path: Path) -> Path:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=1, requests=1)
    return export(Source(path, None, "box", "1", "root"), tmp_path, START + 9 * DAY).path


def test_a_bundle_whose_list_leads_out_of_it_is_told(tmp_path: Path) -> None:
    """Such as to a device that never ends, or to a file that is nobody's business."""
    bundle = exported(tmp_path)
    manifest = json.loads((bundle / MANIFEST).read_text())
    about = manifest["files"]["README.txt"]
    (bundle / "README.txt").rename(tmp_path / "README.txt")
    (bundle / "link.txt").symlink_to(tmp_path / "README.txt")
    names = {"../README.txt": about, str(tmp_path / "README.txt"): about, "link.txt": about}
    manifest["files"] = names | {f"{SPOOF}.txt": about}
    (bundle / MANIFEST).write_text(json.dumps(manifest))
    verdict = verify(bundle)
    assert [fault.what for fault in verdict.faults] == ["bundle"] * 4
    assert "\x1b" not in str(verdict)


@pytest.mark.parametrize("seals", [3, [3], [{}], [{"body": 1}], [{"body": "x", "hash": 1}]])
def test_evidence_that_is_none_is_refused(tmp_path: Path, seals: Any) -> None:
    (tmp_path / "seals.json").write_text(json.dumps({"seals": seals}))
    with pytest.raises(Unreadable, match="altered itself"):
        read_exported(tmp_path / "seals.json")
