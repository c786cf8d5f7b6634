"""Keys in a ledger that is damaged or of an earlier version: nobody gets in who should not."""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from appliance.accounts.keys import FILE_NAME, KeyFileError, KeyStore
from appliance.accounts.limits import Limits
from appliance.ledger.verify.check import verify
from tests.unit.keys_parts import actions, make_store


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return make_store(tmp_path)


# -- damage ----------------------------------------------------------------------------------------


def nobody_gets_in(store: KeyStore, secret: str) -> None:
    assert store.authenticate(secret) is None
    assert not store.empty
    assert not store.has_live("infer")
    assert "cannot be read" in store.problem
    for change in (store.list, store.create_first, lambda: store.revoke("app")):
        with pytest.raises(KeyFileError, match="Nobody can authenticate"):
            change()


def overwrite(path: Path, body: bytes) -> None:
    """Puts another file in its place, as an editor or a broken copy does."""
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    new = path.with_name("new")
    new.write_bytes(body)
    new.chmod(0o600)
    new.replace(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: overwrite(path, b"{"),
        lambda path: overwrite(path, b"\xff" * 100_000),
        lambda path: overwrite(path, b"SQLite format 3\0" + bytes(5000)),
        lambda path: overwrite(path, b""),
        lambda path: path.unlink(),
        lambda path: path.chmod(0o666),
        lambda path: path.chmod(0o620),
    ],
    ids=["text", "noise", "zeros", "empty", "gone", "666", "620"],
)
def test_damaged_ledger_lets_nobody_in_and_says_so(
    store: KeyStore, damage: Callable[[Path], None]
) -> None:
    secret = store.create("app", ["infer"])
    assert store.authenticate(secret) is not None
    damage(store.path)
    nobody_gets_in(store, secret)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE keys SET body = '{'",
        "UPDATE keys SET body = '{}'",
        "UPDATE keys SET body = json_set(body, '$.sha256', 'zz')",
        "UPDATE keys SET body = json_set(body, '$.more', 1)",
        "DROP TABLE keys",
        "DELETE FROM meta",
    ],
)
def test_rows_that_make_no_sense_let_nobody_in(store: KeyStore, change: str) -> None:
    secret = store.create("app", ["infer"])
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(change)
        db.execute("UPDATE meta SET value = value + 1 WHERE name = 'keys_version'")
    nobody_gets_in(store, secret)


def test_restored_ledger_works_again(store: KeyStore, tmp_path: Path) -> None:
    secret = store.create("app", ["infer"])
    with closing(sqlite3.connect(store.path)) as db, closing(sqlite3.connect(tmp_path / "c")) as to:
        db.backup(to)
    overwrite(store.path, b"{")
    assert store.authenticate(secret) is None
    overwrite(store.path, (tmp_path / "c").read_bytes())
    assert store.authenticate(secret) is not None
    assert store.problem == ""
    store.revoke("app")


def test_file_whose_making_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FILE_NAME).touch(0o600)
    store = make_store(tmp_path)
    assert store.problem == ""
    assert store.authenticate(store.create("app", ["infer"])) is not None


def test_state_directory_that_is_a_file_does_not_pass_for_no_keys(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    store = make_store(tmp_path)
    assert not store.empty
    with pytest.raises(KeyFileError):
        store.create("app", ["infer"])


# -- the keys.json of earlier versions -------------------------------------------------------------

OLD_SECRET = "sk-steelyard-" + "A" * 43


def old_file(path: Path, **changes: Any) -> Path:
    key = {
        "id": "k_12345678",
        "name": "app",
        "scopes": ["infer"],
        "sha256": hashlib.sha256(OLD_SECRET.encode()).hexdigest(),
        "created": "2030-01-01T00:00:00Z",
        "expires": None,
    }
    path.parent.mkdir(exist_ok=True)
    file = path.with_name("keys.json")
    file.write_text(json.dumps({"version": 1, "keys": [key | changes]}))
    return file


def test_keys_of_an_earlier_version_are_taken_over_once(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    file = old_file(store.path)
    key = store.authenticate(OLD_SECRET)
    assert key is not None
    assert (key.id, key.name, key.tenant) == ("k_12345678", "app", "default")
    assert not file.exists()
    assert file.with_name("keys.json.imported").exists()
    (imported,) = actions(store)
    assert imported["action"] == "keys.import"
    assert imported["detail"]["keys"][0]["id"] == "k_12345678"
    assert make_store(tmp_path).authenticate(OLD_SECRET) is not None
    assert len(actions(store)) == 1
    assert verify(store.path).faults == []


def test_key_taken_over_twice_or_under_a_taken_name_is_not_lost(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    old_file(store.path)
    assert store.authenticate(OLD_SECRET) is not None
    store.set_limits("app", Limits(concurrent=1))
    shutil.copy(store.path.with_name("keys.json.imported"), store.path.with_name("keys.json"))
    again = make_store(tmp_path)
    assert again.find("app").limits.concurrent == 1
    old_file(store.path, id="k_87654321", sha256="ab" * 32)
    assert [key.name for key in make_store(tmp_path).list()] == ["app", "app 87654321"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"version": 2, "keys": []}',
        b'{"version": 1}',
        b'{"version": 1, "keys": [{}]}',
        b'{"version": 1, "keys": [], "more": 1}',
        b'{"version": 1, "keys": [{"id": "k_1", "name": "a", "scopes": ["infer"], "sha256": "zz", '
        b'"created": "2030-01-01T00:00:00Z", "expires": null}]}',
        b"[" * 100_000,
    ],
)
def test_damaged_key_file_of_an_earlier_version_lets_nobody_in(tmp_path: Path, body: bytes) -> None:
    secret = make_store(tmp_path).create("app", ["infer"])
    store = make_store(tmp_path)
    file = store.path.with_name("keys.json")
    file.write_bytes(body)
    assert store.authenticate(secret) is None
    assert not store.empty
    assert "cannot be taken over" in store.problem
    with pytest.raises(KeyFileError, match="Nobody can authenticate"):
        store.create("b", ["infer"])
    assert file.read_bytes() == body
    file.unlink()
    assert store.authenticate(secret) is not None


def test_expired_day_of_an_earlier_version_is_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    old_file(store.path, expires="2030-05-16")
    assert store.authenticate(OLD_SECRET) is None
    assert store.list()[0].expires == date(2030, 5, 16)
    assert os.listdir(store.path.parent).count("keys.json") == 0
