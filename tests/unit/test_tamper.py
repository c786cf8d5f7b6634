"""Every change of a ledger that was not made by appending to it is found, and at its place."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.keysign import Signer
from appliance.ledger.rows import Payload as Stored
from appliance.ledger.rows import Replay
from appliance.ledger.verify.verdict import Verdict
from tests.unit.proof_ledger import (
    SIGNER,
    START,
    make_ledger,
    tampering,
    told,
    verdict_of,
    verdict_of_image,
)

Edit = Callable[[sqlite3.Connection], None]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small ledger without signatures: checking one takes longer than all the rest."""
    return make_image(tmp_path_factory.mktemp("image") / "ledger.sqlite", None)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_image(tmp_path_factory.mktemp("signed") / "ledger.sqlite", SIGNER)


def make_image(path: Path, signer: Signer | None) -> bytes:
    """Two sealed segments and an open one, as one piece of bytes that opens in memory."""
    make_ledger(path, segments=2, requests=1, signer=signer)
    db = connect(path)
    with transaction(db):
        replay = Replay(
            wall_ns=START, number=1, id="chatcmpl-00000001", trace_id="1" * 32, key_id="k_00000001",
            choice=0, result="differs", positions=9, differing=1, facts={"batch": 2},
        )  # fmt: skip
        append(db, [(replay, Stored(report=b"position 4 differs"))])
    db.close()
    with tampering(path):
        pass  # Without its indexes it is smaller.
    edit = sqlite3.connect(path)
    edit.execute("PRAGMA journal_mode = DELETE")
    edit.execute("VACUUM")
    edit.close()
    return path.read_bytes()


def stored_values(image: bytes, sql: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(":memory:")
    db.deserialize(image)
    found = db.execute(sql).fetchall()
    db.close()
    return found


def every_bit_of(image: bytes, value: str | bytes, step: int = 1) -> Iterator[bytearray]:
    """The image with each bit of this value in turn flipped, where the value lies in it."""
    raw = value.encode() if isinstance(value, str) else value
    at = image.index(raw)
    assert image.find(raw, at + 1) < 0, "a value that occurs twice could be flipped in vain"
    changed = bytearray(image)
    for bit in range(0, 8 * len(raw), step):
        changed[at + (bit >> 3)] ^= 1 << (bit & 7)
        yield changed
        changed[at + (bit >> 3)] ^= 1 << (bit & 7)


def test_the_untouched_images_are_intact(image: bytes, signed: bytes) -> None:
    assert verdict_of_image(image).ok
    assert verdict_of_image(signed).signed == 2


@pytest.mark.parametrize(("seq", "step"), [(1, 1), (2, 1), (4, 5), (5, 1)])
def test_every_bit_of_a_row_and_of_its_hash_is_found_at_the_row(
    image: bytes, seq: int, step: int
) -> None:
    """A note, an action, a request (of which every fifth: it is long), the announcement of a
    seal."""
    [(body, digest)] = stored_values(image, f"SELECT body, hash FROM entries WHERE seq = {seq}")
    assert isinstance(body, str)
    assert isinstance(digest, bytes)
    for part, every in ((body, step), (digest, 1)):
        for changed in every_bit_of(image, part, every):
            assert told(verdict_of_image(changed)) == [("chain", seq, None)]


def test_every_bit_of_an_admission_is_found_at_its_row(image: bytes) -> None:
    """Every fifth: it is long, and otherwise like a request."""
    [(body,)] = stored_values(image, "SELECT body FROM entries WHERE seq = 6")
    assert isinstance(body, str)
    for changed in every_bit_of(image, body, 5):
        assert told(verdict_of_image(changed)) == [("chain", 6, None)]


def test_every_bit_of_a_kind_is_found_at_the_row(image: bytes) -> None:
    [(body,)] = stored_values(image, "SELECT body FROM entries WHERE seq = 1")
    for changed in every_bit_of(image, f"note{body}"):
        assert told(verdict_of_image(changed)) == [("chain", 1, None)]


def test_every_bit_of_a_position_is_found_at_the_row(image: bytes, tmp_path: Path) -> None:
    for bit in range(64):
        other = 4 ^ (1 << bit)
        other -= (1 << 64) if other >> 63 else 0
        if 1 <= other <= 12:
            continue  # Taken: see the tests of rows that change places.
        verdict = edited(image, tmp_path, f"UPDATE entries SET seq = {other} WHERE seq = 4")
        assert ("missing", 4, None) in told(verdict)
        assert ("inserted", other, None) in told(verdict)


def edited(image: bytes, tmp_path: Path, *statements: str) -> Verdict:
    path = tmp_path / "edited.sqlite"
    path.write_bytes(image)
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return verdict_of(path)


@pytest.mark.parametrize("part", ["tokens", "prompt", "answers"])
def test_every_bit_of_a_payload_is_found_at_its_row(image: bytes, part: str) -> None:
    for seq, value in stored_values(
        image, f"SELECT seq, {part} FROM payloads WHERE {part} NOTNULL"
    ):
        assert isinstance(value, str | bytes)
        for changed in every_bit_of(image, value):
            assert told(verdict_of_image(changed)) == [("payload", seq, None)]


def test_every_bit_of_a_report_is_found_at_its_row(image: bytes) -> None:
    for changed in every_bit_of(image, b"position 4 differs"):
        [(what, seq, _)] = told(verdict_of_image(changed))
        assert what == "payload"
        assert stored_values(image, f"SELECT kind FROM entries WHERE seq = {seq}") == [("replay",)]


def test_a_payload_moved_to_another_row_is_found_at_both(image: bytes, tmp_path: Path) -> None:
    verdict = edited(image, tmp_path, "UPDATE payloads SET seq = 5 WHERE seq = 4")
    assert {("payload", 4, None), ("payload", 5, None)} <= set(told(verdict))
    verdict = edited(image, tmp_path, "UPDATE payloads SET seq = 500 WHERE seq = 4")
    assert {("payload", 4, None), ("payload", 500, None)} == set(told(verdict))


@pytest.mark.parametrize("part", ["tokens", "prompt", "answers"])
def test_a_removed_payload_is_found_at_its_row(image: bytes, tmp_path: Path, part: str) -> None:
    verdict = edited(image, tmp_path, f"UPDATE payloads SET {part} = NULL WHERE seq = 4")
    assert told(verdict) == [("payload", 4, None)]


@pytest.mark.parametrize(("segment", "step"), [(1, 3), (2, 5)])
def test_every_bit_of_a_seal_is_found_at_the_seal(image: bytes, segment: int, step: int) -> None:
    [parts] = stored_values(image, f"SELECT body, hash FROM seals WHERE segment = {segment}")
    """Every third or fifth: in each byte one at least."""
    for part in parts:
        assert isinstance(part, str | bytes)
        for changed in every_bit_of(image, part, step):
            assert_found_at_seal(segment, verdict_of_image(changed))


def assert_found_at_seal(segment: int, verdict: Verdict) -> None:
    assert not verdict.ok
    assert {(seq, place) for _, seq, place in told(verdict)} == {(None, segment)}


def test_every_bit_of_a_signature_is_found_at_its_seal(signed: bytes) -> None:
    [(signature,)] = stored_values(signed, "SELECT signature FROM seals WHERE segment = 1")
    assert isinstance(signature, bytes)
    for changed in every_bit_of(signed, signature, 3):
        assert_found_at_seal(1, verdict_of_image(changed))


def test_every_bit_of_a_seals_signer_and_place_is_found_at_the_seal(
    signed: bytes, tmp_path: Path
) -> None:
    for bit in range(0, 8 * len(SIGNER.id), 5):
        raw = bytearray(SIGNER.id.encode())
        raw[bit >> 3] ^= 1 << (bit & 7)
        change = f"UPDATE seals SET signer = CAST(x'{raw.hex()}' AS TEXT) WHERE segment = 2"
        assert {place for _, _, place in told(edited(signed, tmp_path, change))} == {2}
    for bit in range(2, 63, 4):
        change = f"UPDATE seals SET segment = {2 ^ (1 << bit)} WHERE segment = 2"
        assert not edited(signed, tmp_path, change).ok


def test_every_bit_of_the_head_is_found(image: bytes) -> None:
    [(head,)] = stored_values(image, "SELECT value FROM meta WHERE name = 'head'")
    assert isinstance(head, str)
    for changed in every_bit_of(image, head):
        found = told(verdict_of_image(changed))
        assert len(found) == 1
        assert found[0][0] in ("head", "missing")


@pytest.mark.parametrize("column", ["requests", "prompt_tokens", "energy_uj", "cost_idle"])
def test_every_bit_of_a_sum_is_found(image: bytes, tmp_path: Path, column: str) -> None:
    for bit in range(0, 62, 3):
        change = f"UPDATE usage_daily SET {column} = {column} + {1 << bit} WHERE tenant = 'acme'"
        assert {what for what, _, _ in told(edited(image, tmp_path, change))} == {"usage"}


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM usage_daily WHERE day = (SELECT min(day) FROM usage_daily)", "usage"),
        ("UPDATE usage_daily SET tenant = 'other' WHERE day = 20417", "usage"),
        ("UPDATE usage_daily SET day = day + 1 WHERE day = 20418", "usage"),
        ("DELETE FROM keys", "key"),
        ("UPDATE keys SET name = 'other'", "key"),
        ("UPDATE keys SET id = 'k_00000009'", "key"),
        ("UPDATE keys SET body = replace(body, '\"infer\"', '\"admin\"')", "key"),
        ("INSERT INTO keys VALUES ('k_9', 'mine', '{}')", "key"),
        ("INSERT INTO tenants VALUES ('mine', '{}')", "tenant"),
        ("UPDATE meta SET value = 1 WHERE name = 'number'", "meta"),
        ("UPDATE meta SET value = 'x' WHERE name = 'format'", "meta"),
        ("DELETE FROM meta WHERE name = 'head'", "head"),
    ],
)
def test_edited_tables_beside_the_chain_are_found(
    image: bytes, tmp_path: Path, statement: str, what: str
) -> None:
    found = {found for found, _, _ in told(edited(image, tmp_path, statement))}
    assert found == {what}
