"""Keys: who gets in, who does not, and what a damaged file does."""

import os
import stat
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts.keys import PREFIX, KeyFileError, KeyRefused, KeyStore

TODAY = date(2030, 5, 17)


def make_store(tmp_path: Path, today: date = TODAY) -> KeyStore:
    return KeyStore(tmp_path / "state" / "keys.json", today=lambda: today)


def test_created_key_authenticates_with_its_scopes(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    secret = store.create("app", ["infer", "metrics"])
    key = store.authenticate(secret)
    assert secret.startswith(PREFIX)
    assert len(secret) == len(PREFIX) + 43
    assert key is not None
    assert key.name == "app"
    assert key.scopes == frozenset(("infer", "metrics"))
    assert store.list() == (key,)


def test_secret_is_not_on_disk_and_file_is_private(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    secret = store.create("app", ["infer"])
    assert secret.removeprefix(PREFIX) not in store.path.read_text()
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert sorted(p.name for p in store.path.parent.iterdir()) == ["keys.json", "keys.lock"]


@pytest.mark.parametrize(
    "wrong", ["", "x", "sk-steelyard-", "Bearer x", "sk\u2010steelyard-\u0430", "\udcff\xff\0"]
)
def test_wrong_secret_authenticates_nobody(tmp_path: Path, wrong: str) -> None:
    store = make_store(tmp_path)
    secret = store.create("app", ["infer"])
    assert store.authenticate(wrong) is None
    assert store.authenticate(secret + wrong) is None or wrong == ""


@settings(deadline=10_000)
@given(wrong=st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_no_header_makes_authenticate_raise(
    wrong: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert KeyStore(tmp_path_factory.getbasetemp() / "none.json").authenticate(wrong) is None


def test_look_alike_of_a_secret_is_a_wrong_key(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    secret = store.create("app", ["infer"])
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isalnum() else c for c in secret)
    assert store.authenticate(wide) is None


def test_revoked_key_stops_working_in_another_store_of_the_same_file(tmp_path: Path) -> None:
    daemon, cli = make_store(tmp_path), make_store(tmp_path)
    kept, lost = cli.create("kept", ["infer"]), cli.create("lost", ["infer"])
    assert daemon.authenticate(lost) is not None
    assert cli.revoke("lost").name == "lost"
    assert daemon.authenticate(lost) is None
    assert daemon.authenticate(kept) is not None


def test_key_is_revoked_by_id(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.create("app", ["infer"])
    store.revoke(store.list()[0].id)
    assert store.list() == ()


def test_revoking_an_unknown_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyRefused, match="steelyard keys list"):
        make_store(tmp_path).revoke("nobody")


def test_key_is_good_through_its_last_day_and_no_longer(tmp_path: Path) -> None:
    secret = make_store(tmp_path).create("app", ["infer"], TODAY)
    assert make_store(tmp_path, TODAY).authenticate(secret) is not None
    assert make_store(tmp_path, TODAY + timedelta(days=1)).authenticate(secret) is None


def test_key_that_would_never_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyRefused, match="later day"):
        make_store(tmp_path).create("app", ["infer"], TODAY - timedelta(days=1))


@pytest.mark.parametrize("name", ["", " ", "k_12345678", "a\nb", "ü", "a" * 65, "a ", "../x"])
def test_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyRefused, match="is no name"):
        make_store(tmp_path).create(name, ["infer"])


@pytest.mark.parametrize("scopes", [[], ["root"], ["infer", "root"]])
def test_bad_scopes_are_refused(tmp_path: Path, scopes: list[str]) -> None:
    with pytest.raises(KeyRefused, match="admin, infer, metrics"):
        make_store(tmp_path).create("app", scopes)


def test_name_in_use_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.create("app", ["infer"])
    with pytest.raises(KeyRefused, match="exists"):
        store.create("app", ["infer"])


def test_store_is_empty_until_a_key_for_inference_exists(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert store.empty
    store.create("root", ["admin"])
    assert store.empty
    assert not store.has_live("infer")
    store.create("app", ["infer"])
    assert not store.empty
    assert store.has_live("infer")


def test_expired_key_does_not_open_the_box_again(tmp_path: Path) -> None:
    make_store(tmp_path).create("app", ["infer"], TODAY)
    later = make_store(tmp_path, TODAY + timedelta(days=1))
    assert not later.empty
    assert not later.has_live("infer")


def test_first_key_is_made_once(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    secret = store.create_first()
    assert secret is not None
    key = store.authenticate(secret)
    assert key is not None
    assert key.name == "admin"
    assert key.scopes == frozenset(("admin",))
    assert store.create_first() is None


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
def test_damaged_file_lets_nobody_in_and_says_so(tmp_path: Path, body: bytes) -> None:
    store = make_store(tmp_path)
    secret = store.create("app", ["infer"])
    store.path.write_bytes(body)
    assert store.authenticate(secret) is None
    assert not store.empty
    assert "cannot be used" in store.problem
    for change in (store.list, store.create_first, lambda: store.revoke("app")):
        with pytest.raises(KeyFileError, match="Nobody can authenticate"):
            change()
    assert store.path.read_bytes() == body


def test_restored_file_works_again(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    secret = store.create("app", ["infer"])
    good = store.path.read_bytes()
    store.path.write_bytes(b"{")
    assert store.authenticate(secret) is None
    store.path.write_bytes(good)
    assert store.authenticate(secret) is not None
    assert store.problem == ""


def test_file_that_others_may_write_to_lets_nobody_in(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    secret = store.create("app", ["infer"])
    store.path.chmod(0o666)
    assert store.authenticate(secret) is None
    assert "chmod 600" in store.problem
    store.path.chmod(0o600)
    assert store.authenticate(secret) is not None


def test_state_directory_that_is_a_file_does_not_pass_for_no_keys(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    store = make_store(tmp_path)
    assert not store.empty
    with pytest.raises(KeyFileError):
        store.create("app", ["infer"])


def test_two_processes_may_make_keys_at_the_same_time(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from appliance.accounts.keys import KeyStore\n"
        "store = KeyStore(pathlib.Path(sys.argv[1]))\n"
        "for i in range(10): store.create(f'{sys.argv[2]}{i}', ['infer'])"
    )
    store = make_store(tmp_path)
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(store.path), name])
        for name in ("a", "b")
    ]
    assert [child.wait(60) for child in children] == [0, 0]
    assert len(store.list()) == len({key.id for key in store.list()}) == 20


def test_left_over_temporary_file_is_replaced(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.create("one", ["infer"])
    os.symlink("/nowhere/else", store.path.with_suffix(".new"))
    store.create("two", ["infer"])
    assert [key.name for key in store.list()] == ["one", "two"]
