"""Keys and tenants: who gets in, who does not, what is chained, and what a damaged ledger does."""

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts.keys import (
    PREFIX,
    By,
    KeyExists,
    KeyRefused,
    KeyStore,
    KeyUnknown,
    LastAdmin,
)
from appliance.accounts.limits import Limits
from appliance.ledger.verify.check import verify
from tests.unit.keys_parts import NOW, actions, make_store

TODAY = NOW.date()
ALICE = By("k_0000000a", "console", "alice", "10.0.4.12")


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return make_store(tmp_path)


def files_of(store: KeyStore) -> Iterator[bytes]:
    return (path.read_bytes() for path in store.path.parent.iterdir())


# -- who gets in -----------------------------------------------------------------------------------


def test_created_key_authenticates_with_its_scopes(store: KeyStore) -> None:
    secret = store.create("app", ["infer", "metrics"])
    key = store.authenticate(secret)
    assert secret.startswith(PREFIX)
    assert len(secret) == len(PREFIX) + 43
    assert key is not None
    assert (key.name, key.tenant) == ("app", "default")
    assert key.scopes == frozenset(("infer", "metrics"))
    assert store.list() == (key,)


def test_secrets_are_not_on_disk_and_the_files_are_private(store: KeyStore) -> None:
    secrets = [store.create("app", ["infer"]), store.rotate("app", 60)[1]]
    for secret in secrets:
        assert not any(secret.removeprefix(PREFIX).encode() in body for body in files_of(store))
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "wrong", ["", "x", "sk-steelyard-", "Bearer x", "sk\u2010steelyard-\u0430", "\udcff\xff\0"]
)
def test_wrong_secret_authenticates_nobody(store: KeyStore, wrong: str) -> None:
    secret = store.create("app", ["infer"])
    assert store.authenticate(wrong) is None
    assert store.authenticate(secret + wrong) is None or wrong == ""


@settings(deadline=None)
@given(wrong=st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_no_header_makes_authenticate_raise(
    wrong: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert KeyStore(tmp_path_factory.getbasetemp() / "none.sqlite").authenticate(wrong) is None


def test_look_alike_of_a_secret_is_a_wrong_key(store: KeyStore) -> None:
    secret = store.create("app", ["infer"])
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isalnum() else c for c in secret)
    assert store.authenticate(wide) is None


def test_key_is_good_through_its_last_day_and_no_longer(tmp_path: Path) -> None:
    secret = make_store(tmp_path).create("app", ["infer"], TODAY)
    last = datetime(2030, 5, 17, 23, 59, 59, tzinfo=UTC)
    assert make_store(tmp_path, last).authenticate(secret) is not None
    assert make_store(tmp_path, last + timedelta(seconds=1)).authenticate(secret) is None


def test_store_is_empty_until_a_key_for_inference_exists(store: KeyStore) -> None:
    assert store.empty
    store.create("root", ["admin"])
    assert store.empty
    assert not store.has_live("infer")
    store.create("app", ["infer"])
    assert not store.empty
    assert store.has_live("infer")
    store.revoke("app")
    assert store.empty


def test_expired_key_does_not_open_the_box_again(tmp_path: Path) -> None:
    make_store(tmp_path).create("app", ["infer"], TODAY)
    later = make_store(tmp_path, NOW + timedelta(days=1))
    assert not later.empty
    assert not later.has_live("infer")


# -- what is refused -------------------------------------------------------------------------------


def test_key_that_would_never_work_is_refused(store: KeyStore) -> None:
    with pytest.raises(KeyRefused, match="later day"):
        store.create("app", ["infer"], TODAY - timedelta(days=1))


LOOK_ALIKES = ["аdmin", "admіn", "ａｄｍｉｎ", "admin\u200b", "ad\u00admin", "admin\u0301", "ᴀdmin"]
BAD_NAMES = ["", " ", "k_12345678", "a\nb", "ü", "a" * 65, "a ", "../x", *LOOK_ALIKES]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_name_is_refused_for_a_key_and_for_a_tenant(store: KeyStore, name: str) -> None:
    store.create("admin", ["infer"])
    for change in (
        lambda: store.create(name, ["infer"]),
        lambda: store.create("app", ["infer"], tenant=name),
        lambda: store.tenants.set(name, Limits(), ALICE),
    ):
        with pytest.raises(KeyRefused, match="is no name") as caught:
            change()
        assert str(caught.value).isascii(), "a look-alike is shown for what it is"
    assert [key.name for key in store.list()] == ["admin"]


@pytest.mark.parametrize("scopes", [[], ["root"], ["infer", "root"]])
def test_bad_scopes_are_refused(store: KeyStore, scopes: list[str]) -> None:
    with pytest.raises(KeyRefused, match="admin, infer, metrics"):
        store.create("app", scopes)


def test_name_in_use_is_refused_until_its_key_is_revoked(store: KeyStore) -> None:
    first = store.create("app", ["infer"])
    with pytest.raises(KeyExists, match="exists"):
        store.create("app", ["infer"])
    store.revoke("app")
    second = store.create("app", ["infer"])
    assert store.authenticate(first) is None
    assert store.authenticate(second) is not None
    assert [(key.name, key.state(TODAY)) for key in store.list()] == [
        ("app", "revoked"), ("app", "valid"),
    ]  # fmt: skip


def test_changing_an_unknown_key_is_refused(store: KeyStore) -> None:
    for change in (store.revoke, store.rotate, lambda name: store.set_limits(name, Limits())):
        with pytest.raises(KeyUnknown, match="steelyard keys list"):
            change("nobody")


def test_revoked_key_cannot_be_changed_any_more(store: KeyStore) -> None:
    store.create("app", ["infer"])
    id = store.revoke("app").id
    assert store.find(id).revoked is not None
    with pytest.raises(KeyUnknown):
        store.rotate(id)


def test_last_valid_admin_key_is_revoked_only_by_force(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.create("old", ["admin"], expires=TODAY)
    store.create("boss", ["admin"])
    store.revoke("old")
    with pytest.raises(LastAdmin, match="last valid key with scope admin"):
        store.revoke("boss")
    store.create("other", ["admin", "infer"], expires=TODAY)
    later = make_store(tmp_path, NOW + timedelta(days=1))
    with pytest.raises(LastAdmin):
        later.revoke("boss")
    store.revoke("boss")
    store.revoke("other", force=True)
    assert not store.has_live("admin")


# -- changes ---------------------------------------------------------------------------------------


def test_key_is_revoked_by_id(store: KeyStore) -> None:
    secret = store.create("app", ["infer"])
    store.revoke(store.list()[0].id)
    assert store.authenticate(secret) is None


def test_rotated_key_has_a_new_secret_and_the_old_one_for_its_grace(tmp_path: Path) -> None:
    store, late = make_store(tmp_path), make_store(tmp_path, NOW + timedelta(seconds=61))
    old = store.create("app", ["infer"])
    key, new = store.rotate("app", 60)
    assert key.grace_until == NOW + timedelta(seconds=60)
    assert store.authenticate(old) == store.authenticate(new) == key
    assert late.authenticate(old) is None
    assert late.authenticate(new) == key
    _, newest = store.rotate(key.id)
    assert store.authenticate(new) is None
    assert store.authenticate(old) is None, "grace is for one secret"
    assert store.authenticate(newest) is not None


@pytest.mark.parametrize("grace", [-1, 31 * 86_400, float("nan")])
def test_grace_without_bounds_is_refused(store: KeyStore, grace: float) -> None:
    store.create("app", ["infer"])
    with pytest.raises(KeyRefused, match="stay good"):
        store.rotate("app", grace)


def test_revoking_ends_the_grace_of_an_old_secret_too(store: KeyStore) -> None:
    old = store.create("app", ["infer"])
    _, new = store.rotate("app", 60)
    store.revoke("app")
    assert store.authenticate(old) is None
    assert store.authenticate(new) is None


def test_limits_are_replaced_whole(store: KeyStore) -> None:
    secret = store.create("app", ["infer"], limits=Limits(tokens_per_min=5, concurrent=2))
    store.set_limits("app", Limits(tokens_per_day=7))
    key = store.authenticate(secret)
    assert key is not None
    assert key.limits == Limits(tokens_per_day=7)


def test_tenants_are_those_that_keys_name_and_those_with_limits(store: KeyStore) -> None:
    store.create("a", ["infer"], tenant="sales")
    store.tenants.set("ops", Limits(concurrent=3), ALICE)
    assert [tenant.name for tenant in store.tenants.list()] == ["default", "ops", "sales"]
    assert store.tenants.limits("ops") == Limits(concurrent=3)
    assert store.tenants.limits("sales") == store.tenants.limits("nobody") == Limits()


def test_pruning_drops_what_was_revoked_before_that_day(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for name in ("a", "b"):
        store.create(name, ["infer"])
    store.revoke("a")
    make_store(tmp_path, NOW + timedelta(days=1)).revoke("b")
    assert store.prune(TODAY) == ()
    assert [key.name for key in store.prune(TODAY + timedelta(days=1))] == ["a"]
    assert [key.name for key in store.list()] == ["b"]


def test_first_key_is_made_once(store: KeyStore) -> None:
    secret = store.create_first()
    assert secret is not None
    key = store.authenticate(secret)
    assert key is not None
    assert key.name == "admin"
    assert key.scopes == frozenset(("admin",))
    assert store.create_first() is None
    store.revoke("admin", force=True)
    assert store.create_first() is not None, "or nobody could ever use the admin routes again"


# -- the chain -------------------------------------------------------------------------------------


def test_every_change_is_one_chained_action_with_all_of_the_new_state(store: KeyStore) -> None:
    store.create("app", ["infer"], tenant="sales", by=ALICE)
    store.set_limits("app", Limits(concurrent=2), by=ALICE)
    store.rotate("app", 60, by=ALICE)
    store.tenants.set("sales", Limits(tokens_per_day=9), ALICE)
    store.revoke("app", by=ALICE)
    store.prune(TODAY + timedelta(days=1), by=ALICE)
    found = actions(store)
    assert [entry["action"] for entry in found] == [
        "key.create", "key.limits", "key.rotate", "tenant.set", "key.revoke", "keys.prune",
    ]  # fmt: skip
    assert {(e["key_id"], e["key_name"], e["operator"], e["host"]) for e in found} == {
        ("k_0000000a", "console", "alice", "10.0.4.12")
    }
    first, limited, rotated, tenant, revoked, pruned = (entry["detail"] for entry in found)
    id = first["key"]["id"]
    assert first["key"]["tenant"] == "sales"
    assert (first["key"]["created_by"], first["key"]["created_from"]) == ("alice", "10.0.4.12")
    assert limited["key"]["limits"]["concurrent"] == 2
    assert rotated["key"]["previous"]["sha256"] == first["key"]["sha256"]
    assert tenant == {"tenant": {"name": "sales", "limits": {**limited["key"]["limits"],
                      "concurrent": None, "tokens_per_day": 9}}}  # fmt: skip
    assert revoked["key"]["revoked"] == "2030-05-17T12:00:00Z"
    assert pruned == {"removed": [id]}


def test_chain_verifies_after_every_kind_of_change(store: KeyStore) -> None:
    for name in ("a", "b", "c"):
        store.create(name, ["infer"])
    store.rotate("a", 60)
    store.revoke("b")
    store.create("b", ["admin"])
    store.tenants.set("sales", Limits(cost_per_month=5), ALICE)
    assert verify(store.path).faults == []
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE keys SET body = replace(body, '\"infer\"', '\"admin\"')")
    assert verify(store.path).faults != []


def test_change_that_is_refused_leaves_nothing(store: KeyStore) -> None:
    store.create("app", ["infer"])
    before = actions(store)
    with pytest.raises(KeyExists):
        store.create("app", ["infer"])
    assert actions(store) == before


# -- other processes -------------------------------------------------------------------------------


def test_change_counts_at_once_in_another_store_of_the_same_file(tmp_path: Path) -> None:
    daemon, cli = make_store(tmp_path), make_store(tmp_path)
    assert daemon.authenticate("x") is None
    kept, lost = cli.create("kept", ["infer"]), cli.create("lost", ["infer"])
    assert daemon.authenticate(lost) is not None
    assert cli.revoke("lost").name == "lost"
    assert daemon.authenticate(lost) is None
    cli.set_limits("kept", Limits(concurrent=1))
    cli.tenants.set("default", Limits(concurrent=2), ALICE)
    key = daemon.authenticate(kept)
    assert key is not None
    assert key.limits.concurrent == 1
    assert daemon.tenants.limits("default").concurrent == 2


def test_two_processes_may_make_keys_at_the_same_time(store: KeyStore) -> None:
    program = (
        "import sys, pathlib; from appliance.accounts.keys import KeyStore\n"
        "store = KeyStore(pathlib.Path(sys.argv[1]))\n"
        "for i in range(10): store.create(f'{sys.argv[2]}{i}', ['infer'])"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(store.path), name])
        for name in ("a", "b")
    ]
    assert [child.wait(60) for child in children] == [0, 0]
    assert len(store.list()) == len({key.id for key in store.list()}) == 20
    assert len(actions(store)) == 20
    assert verify(store.path).faults == []


def test_authenticating_waits_for_no_writer(store: KeyStore) -> None:
    secret = store.create("app", ["infer"])
    with closing(sqlite3.connect(store.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE meta SET value = value + 1 WHERE name = 'keys_version'")
        assert make_store(store.path.parent.parent).authenticate(secret) is not None
        assert store.authenticate(secret) is not None
        writer.execute("ROLLBACK")
