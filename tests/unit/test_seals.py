"""When a segment of the ledger is sealed, and what a seal proves."""

import stat
import time
from datetime import date
from pathlib import Path

import pytest
from sqlite_utils import Database

from appliance.accounts.keyrow import By
from appliance.accounts.keys import KeyStore
from appliance.accounts.limits import Limits
from appliance.config import LedgerConfig
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.errors import LedgerError
from appliance.ledger.keysign import KEY_FILE, PUBLIC_FILE, open_signer
from appliance.ledger.retention import housekeep
from appliance.ledger.rows import Action
from appliance.ledger.seals import Sealed, last_seal, seal_now, seal_when_due
from appliance.ledger.verify.evidence import public_key
from tests.unit.proof_ledger import (
    DAY,
    SIGNER,
    START,
    make_admitted,
    make_entries,
    make_ledger,
    make_request,
    put_key,
    told,
    verdict_of,
)

HOUR = 3600 * 10**9


def open_ledger(path: Path, requests: int = 0, wall_ns: int = START) -> Database:
    db = connect(path)
    with transaction(db):
        append(db, make_entries(range(1, requests + 1), wall_ns))
    return db


def seal_if_due(db: Database, rows: int, hours: float, wall_ns: int) -> Sealed | None:
    with transaction(db):
        return seal_when_due(db, rows, hours, SIGNER, wall_ns)


def keep_house(db: Database, wall_ns: int, **policy: int) -> list[str]:
    with transaction(db):
        return housekeep(db, LedgerConfig(**policy), SIGNER, wall_ns)


def test_a_segment_closes_at_so_many_rows(tmp_path: Path) -> None:
    db = open_ledger(tmp_path / "ledger.sqlite", requests=4)
    assert seal_if_due(db, 9, 24, START) is None
    sealed = seal_if_due(db, 8, 24, START)
    assert sealed is not None
    # The key that signs for the first time is told of in the segment itself.
    assert (sealed.body.first_seq, sealed.body.last_seq, sealed.body.requests) == (1, 9, 4)
    assert verdict_of(tmp_path / "ledger.sqlite").ok


def test_a_segment_closes_after_so_many_hours(tmp_path: Path) -> None:
    db = open_ledger(tmp_path / "ledger.sqlite", requests=1)
    assert seal_if_due(db, 100, 24, START + 23 * HOUR) is None
    assert seal_if_due(db, 100, 24, START + 25 * HOUR) is not None


def test_an_idle_box_makes_no_seals_of_seals(tmp_path: Path) -> None:
    db = open_ledger(tmp_path / "ledger.sqlite", requests=1)
    assert seal_if_due(db, 1, 1, START + HOUR * 2) is not None
    assert seal_if_due(db, 1, 1, START + DAY) is None
    with transaction(db):
        assert seal_now(db, SIGNER, START + DAY) is None


def test_a_clock_set_back_seals_nothing_early(tmp_path: Path) -> None:
    db = open_ledger(tmp_path / "ledger.sqlite", requests=1)
    assert seal_if_due(db, 100, 1, START - DAY) is None


def test_seals_follow_from_each_other_and_are_announced(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=3)
    verdict = verdict_of(path, trusted=[SIGNER.public_key])
    assert verdict.ok
    assert (verdict.seals, verdict.signed, verdict.signers) == (3, 3, [SIGNER.id])


def test_an_altered_segment_is_not_sealed(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=0)
    db = connect(path)
    db.execute("UPDATE entries SET body = replace(body, 'acme', 'acne') WHERE seq = 4")
    with pytest.raises(LedgerError, match="entry 4 does not follow"), transaction(db):
        seal_now(db, SIGNER, START)
    assert last_seal(db) is None


def test_unsigned_seals_verify_unless_a_key_is_demanded(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    db = open_ledger(path, requests=1)
    with transaction(db):
        seal_now(db, None, START)
    assert verdict_of(path).ok
    assert told(verdict_of(path, trusted=[SIGNER.public_key])) == [("signature", None, 1)]


def test_a_new_key_is_named_before_it_signs(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    other = open_signer(tmp_path)
    db = connect(path)
    with transaction(db):
        seal_now(db, other, START + 9 * DAY)
    verdict = verdict_of(path)
    assert verdict.ok
    assert sorted(verdict.signers) == sorted([SIGNER.id, other.id])
    only_old = verdict_of(path, trusted=[SIGNER.public_key])
    assert told(only_old) == [("signature", None, 3)]


# -- the key ---------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    signer = open_signer(tmp_path)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert open_signer(tmp_path).public_key == signer.public_key
    assert public_key(str(tmp_path / PUBLIC_FILE)) == signer.public_key
    assert public_key(signer.public_key.hex()) == signer.public_key
    assert sorted(path.name for path in tmp_path.iterdir()) == [KEY_FILE, PUBLIC_FILE]


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    open_signer(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(LedgerError, match="chmod 600"):
        open_signer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAA=="])
def test_a_broken_key_is_refused_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / KEY_FILE
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="restore it from a backup"):
        open_signer(tmp_path)
    assert path.read_bytes() == content


# -- retention -------------------------------------------------------------------------------------


def test_nothing_to_do_costs_no_entry(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    before = db.execute("SELECT max(seq) FROM entries").fetchone()
    assert keep_house(db, START + 2 * DAY + HOUR, keep_days=30, token_days=30) == []
    assert db.execute("SELECT max(seq) FROM entries").fetchone() == before


def test_whole_segments_are_dropped_and_their_seals_stay(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=3)
    db = connect(path)
    first = last_of_segment(db, 1) + 1
    done = keep_house(db, START + 11 * DAY, keep_days=10, text_days=0)
    assert done[-1].startswith("dropped segment 1, entries 1-")
    verdict = verdict_of(path, trusted=[SIGNER.public_key])
    assert verdict.ok, verdict
    assert (verdict.first_seq, verdict.dropped_rows) == (first, first - 1)
    assert verdict.seals == 4
    assert db.execute("SELECT min(seq) FROM payloads").fetchone()[0] >= first


def last_of_segment(db: Database, segment: int) -> int:
    found = db.execute(
        "SELECT json_extract(body, '$.last_seq') FROM seals WHERE segment = ?", (segment,)
    )
    return int(found.fetchone()[0])


def test_one_segment_is_dropped_at_a_time_until_none_is_old_enough(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=4)
    db = connect(path)
    now = START + 13 * DAY - HOUR
    dropped = [
        done for _ in range(6) for done in keep_house(db, now, keep_days=10) if "segment" in done
    ]
    assert [line.split(",")[0] for line in dropped if line.startswith("dropped segment")] == [
        f"dropped segment {number}" for number in (1, 2, 3)
    ]
    assert verdict_of(path).ok


def test_a_segment_with_a_request_in_flight_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    db = open_ledger(path, requests=1)
    with transaction(db):
        append(db, [(make_admitted(7, START), None)])
        seal_now(db, SIGNER, START)
    keep_house(db, START + 99 * DAY, keep_days=1)
    assert verdict_of(path).first_seq == 1
    with transaction(db):
        append(db, [(make_request(7, START + 99 * DAY), None)])
    keep_house(db, START + 99 * DAY, keep_days=1)
    verdict = verdict_of(path)
    assert verdict.first_seq > 1
    assert verdict.ok, verdict


def test_keys_made_in_a_dropped_segment_are_still_proven(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    keep_house(db, START + 99 * DAY, keep_days=1)
    with transaction(db):
        put_key(db, "k_00000002", "second")
    assert verdict_of(path).ok
    db.execute("UPDATE keys SET body = replace(body, 'infer', 'admin') WHERE id = 'k_00000001'")
    assert told(verdict_of(path)) == [("key", None, None)]


def test_usage_of_dropped_days_stays_and_that_of_kept_days_is_proven(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=3)
    db = connect(path)
    keep_house(db, START + 11 * DAY, keep_days=10)
    assert verdict_of(path).ok
    days = [day for (day,) in db.execute("SELECT day FROM usage_daily ORDER BY day")]
    assert len(days) == 4
    db.execute("UPDATE usage_daily SET requests = requests + 1 WHERE day = ?", (days[-1],))
    assert told(verdict_of(path)) == [("usage", None, None)]


def test_old_texts_go_and_token_ids_stay(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    done = keep_house(db, START + 40 * DAY, text_days=30)
    assert any(line.startswith("dropped the prompt and answers of 2 entries") for line in done)
    assert verdict_of(path).ok
    left = db.execute("SELECT count(prompt), count(answers), count(tokens) FROM payloads")
    assert left.fetchone() == (4, 4, 6)
    assert keep_house(db, START + 40 * DAY, text_days=30) != []
    assert verdict_of(path).ok


def test_old_token_ids_go_by_themselves(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    db = connect(path)
    keep_house(db, START + 40 * DAY, text_days=0, token_days=30)
    assert verdict_of(path).ok
    left = db.execute("SELECT count(prompt), count(tokens) FROM payloads").fetchone()
    assert left == (6, 4)


def test_dropped_bytes_are_overwritten(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    assert b"question 1" in path.read_bytes()
    db = connect(path)
    for _ in range(4):
        keep_house(db, START + 400 * DAY, text_days=30)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    assert b"question 1" not in path.read_bytes()


def test_keys_and_tenants_as_operators_leave_them_are_proven_before_and_after(
    tmp_path: Path,
) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", segments=0)
    db = connect(path)
    db.execute("DELETE FROM keys")
    with transaction(db):
        gone = Action(wall_ns=START, action="keys.prune", detail={"removed": ["k_00000001"]})
        append(db, [(gone, None)])
    keys = KeyStore(path)
    limits = Limits(requests_per_min=5)
    for name in ("web", "app", "old"):
        keys.create(name, ["infer"], tenant="acme")
    keys.rotate("web", 60)
    keys.set_limits("app", limits)
    keys.revoke("old")
    keys.create("old", ["metrics"])
    keys.revoke("old")
    keys.tenants.set("acme", limits, By())
    assert verdict_of(path).ok
    with transaction(db):
        seal_now(db, SIGNER, START)
    wall_ns = time.time_ns() + 9 * DAY
    assert keep_house(db, wall_ns, keep_days=1)[-1].startswith("dropped segment 1,")
    keys.prune(date(2100, 1, 1))
    keys.rotate("app")
    verdict = verdict_of(path)
    assert verdict.ok, verdict
    assert len(keys.list()) == 2
