"""`steelyard keys`, `tenants` and `usage`: what they change, print and refuse."""

import csv
import getpass
import io
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.accounts.limits import Limits
from appliance.cli import run
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from tests.unit.ledger_parts import request

LONG = "a" * 64
Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("STEELYARD_CONFIG", raising=False)
    return tmp_path / "state"


@pytest.fixture
def store(state: Path) -> KeyStore:
    return KeyStore(state / FILE_NAME)


def said(capsys: Out, *args: str) -> str:
    """What the command prints on standard output."""
    assert run(args) == 0
    return capsys.readouterr().out


def last_action(store: KeyStore) -> dict[str, Any]:
    with closing(sqlite3.connect(store.path)) as db:
        rows = db.execute("SELECT body FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    found: dict[str, Any] = json.loads(rows[0])
    return found


def test_whoever_is_logged_in_is_a_word_that_the_ledger_can_hold(
    store: KeyStore, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "caf\udce9\n\x1b[2K" + "a" * 99)
    assert said(capsys, "keys", "create", "app", "--scope", "infer")
    assert last_action(store)["operator"] == "caf???[2K" + "a" * 55


def test_key_is_made_with_tenant_and_limits_by_whoever_is_logged_in(
    store: KeyStore, capsys: Out
) -> None:
    secret = said(
        capsys, "keys", "create", "app", "--tenant", "sales", "--scope", "infer",
        "--limit", "tokens_per_min=2000", "--limit", "priority=flex",
    ).strip()  # fmt: skip
    key = store.authenticate(secret)
    assert key is not None
    assert (key.tenant, key.limits) == ("sales", Limits(tokens_per_min=2000, priority="flex"))
    assert last_action(store)["action"] == "key.create"
    assert (last_action(store)["operator"], last_action(store)["host"]) == (
        getpass.getuser(), "local",
    )  # fmt: skip


def test_rotated_secret_is_printed_and_the_old_one_kept_as_long_as_said(
    store: KeyStore, capsys: Out
) -> None:
    old = store.create("app", ["infer"])
    new = said(capsys, "keys", "rotate", "app", "--grace", "600").strip()
    assert store.authenticate(old) == store.authenticate(new) == store.find("app")
    newest = said(capsys, "keys", "rotate", "app").strip()
    assert store.authenticate(newest) is not None
    assert store.authenticate(new) is None


def test_limits_are_shown_set_whole_and_taken_away(store: KeyStore, capsys: Out) -> None:
    store.create("app", ["infer"], limits=Limits(concurrent=2))
    assert said(capsys, "keys", "limits", "app") == "app: concurrent=2\n"
    limits = ["--limit", "cost_per_month=12.5", "--limit", "tokens_per_day=7"]
    out = said(capsys, "keys", "limits", "app", *limits)
    assert out == "app: tokens_per_day=7 cost_per_month=12.50\n"
    assert said(capsys, "keys", "limits", "app", "--none") == "app: no limits\n"
    assert store.find("app").limits == Limits()


def test_tenants_are_limited_and_listed(store: KeyStore, capsys: Out) -> None:
    store.create("app", ["infer"], tenant="ops")
    said(capsys, "tenants", "set", "sales", "--limit", "concurrent=3")
    out = said(capsys, "tenants", "list")
    assert out == "default: no limits\nops: no limits\nsales: concurrent=3\n"
    listed = json.loads(said(capsys, "tenants", "list", "--json"))
    assert listed[2]["limits"]["concurrent"] == 3
    said(capsys, "tenants", "set", "sales", "--none")
    assert store.tenants.limits("sales") == Limits()


def test_last_admin_key_is_revoked_by_force_alone(store: KeyStore, capsys: Out) -> None:
    store.create("boss", ["admin"])
    assert run(["keys", "revoke", "boss"]) == 1
    assert "force it with --force" in capsys.readouterr().err
    said(capsys, "keys", "revoke", "boss", "--force")
    assert not store.has_live("admin")


def test_revoked_keys_are_pruned_after_their_days(store: KeyStore, capsys: Out) -> None:
    store.create("app", ["infer"])
    store.revoke("app")
    said(capsys, "keys", "prune")
    assert len(store.list()) == 1
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE keys SET body = json_set(body, '$.revoked', '2020-01-01T00:00:00Z')")
        db.execute("UPDATE meta SET value = value + 1 WHERE name = 'keys_version'")
    said(capsys, "keys", "prune")
    assert store.list() == ()


def test_list_fits_the_terminal_and_json_leaves_nothing_out(store: KeyStore, capsys: Out) -> None:
    limits = Limits(1, 2, 3, 4_000_000_000, 5, "default")
    store.create(LONG, ["infer", "metrics", "admin"], tenant=LONG, limits=limits)
    store.create("app", ["infer"])
    out = said(capsys, "keys", "list")
    assert max(map(len, out.splitlines())) <= 80
    assert "cost_per_month=4.00" in out
    assert store.find("app").id in out
    listed = json.loads(said(capsys, "keys", "list", "--json"))
    assert (listed[0]["name"], listed[0]["tenant"], listed[0]["state"]) == (LONG, LONG, "valid")
    assert "sha256" not in json.dumps(listed)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["keys", "create", "аpp"], 1, "is no name for a key"),
        (["keys", "create", "a", "--tenant", "a/b"], 1, "is no name for a tenant"),
        (["keys", "create", "a", "--limit", "rpm=5"], 2, "there are requests_per_min"),
        (["keys", "create", "a", "--limit", "concurrent"], 2, "write name=value"),
        (["keys", "create", "a", "--limit", "concurrent=0"], 2, "whole number from 1"),
        (["keys", "rotate", "nobody"], 1, "no key named 'nobody'"),
        (["keys", "limits", "nobody"], 1, "no key named 'nobody'"),
        (["keys", "limits", "a", "--none", "--limit", "concurrent=1"], 2, "exclude each other"),
        (["tenants", "set", "a"], 2, "or --none"),
        (["usage", "--by", "colour"], 1, "by 'colour'"),
        (["usage", "--json", "--csv"], 2, "exclude each other"),
        (["usage", "--from", "2030-02-01", "--to", "2030-01-01"], 1, "swap the days"),
    ],
)
def test_bad_use_says_what_is_wrong(
    store: KeyStore, args: list[str], code: int, says: str, capsys: Out
) -> None:
    store.create("first", ["metrics"])
    assert run(args) == code
    out = capsys.readouterr().err
    assert says in out
    assert "Traceback" not in out


def test_usage_without_a_ledger_says_so(capsys: Out) -> None:
    assert run(["usage"]) == 1
    assert "state_dir" in capsys.readouterr().err


def enter(store: KeyStore) -> str:
    """Two requests of a key, and one of nobody, on two days of May 2030."""
    store.create("app", ["infer"])
    id = store.find("app").id
    when = int(datetime(2030, 5, 17, 12, tzinfo=UTC).timestamp() * 1e9)
    facts = [
        {"key_id": id, "tenant": "sales", "scenario": "=1+1"},
        {"key_id": id, "tenant": "sales", "scenario": "\x1b[31m" + "長" * 30},
        {"key_id": "", "key_name": "", "tenant": "default", "wall_ns": when + 86_400 * 10**9},
    ]
    rows = [request(number, **{"wall_ns": when, **one}) for number, one in enumerate(facts)]
    with closing(connect(store.path)) as db, transaction(db):
        append(db, [(row, None) for row in rows])
    return id


MAY = ["--from", "2030-05-01", "--to", "2030-05-31"]


def test_usage_is_a_table_whose_total_is_the_sum(store: KeyStore, capsys: Out) -> None:
    enter(store)
    lines = said(capsys, "usage", *MAY).splitlines()
    assert lines[0] == "Usage from 2030-05-01 to 2030-05-31 (UTC), by key"
    rows = {line.rsplit(maxsplit=5)[0].strip(): line.split()[-5:] for line in lines if line}
    assert rows["app"] == ["2", "0", "20", "10", "0.000000024"]
    assert rows["(no key)"] == ["1", "0", "10", "5", "0.000000012"]
    assert rows["total"] == ["3", "0", "30", "15", "0.000000036"]


def test_usage_tells_of_costs_in_another_currency(
    store: KeyStore, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(store)
    says = "The ledger also has costs in EUR in this period"
    monkeypatch.setenv("STEELYARD_COST_CURRENCY", "EUR")
    assert says not in said(capsys, "usage", *MAY)
    assert json.loads(said(capsys, "usage", "--json", *MAY))["notes"] == []
    monkeypatch.setenv("STEELYARD_COST_CURRENCY", "USD")
    assert says in said(capsys, "usage", *MAY).replace("\n", " ")
    (note,) = json.loads(said(capsys, "usage", "--json", *MAY))["notes"]
    assert note.startswith(says)
    assert run(["usage", "--csv", *MAY]) == 0
    assert says in capsys.readouterr().err


def test_usage_fits_the_terminal_and_moves_no_cursor(store: KeyStore, capsys: Out) -> None:
    enter(store)
    out = said(capsys, "usage", "--by", "key,tenant,scenario,model,day", *MAY)
    assert "\x1b" not in out
    widths = [sum(2 if ord(c) > 0x2E80 and c != "\ufffd" else 1 for c in line)
              for line in out.splitlines()]  # fmt: skip
    assert max(widths) <= 80


def test_usage_as_json_and_csv(store: KeyStore, capsys: Out) -> None:
    id = enter(store)
    found = json.loads(said(capsys, "usage", "--by", "key,day", "--json", *MAY))
    assert (found["from"], found["to"], found["by"]) == ("2030-05-01", "2030-05-31", ["key", "day"])
    assert [(row["key"], row["key_name"], row["day"], row["total_tokens"]) for row in found["rows"]
            ] == [("", "", "2030-05-18", 15), (id, "app", "2030-05-17", 30)]  # fmt: skip
    out = said(capsys, "usage", "--by", "scenario", "--csv", *MAY)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["scenario"] for row in rows} >= {"", "'=1+1"}, "no formula for a spreadsheet"
    assert sum(int(row["requests"]) for row in rows) == 3
