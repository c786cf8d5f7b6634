"""The cost report as commands, routes and metrics tell it."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.accounts.cost import Costing, PrefillPace, Rates
from appliance.accounts.costreport import Report, report
from appliance.cli import run
from appliance.commands.costtable import WIDTH
from appliance.ledger.writer import LedgerSnapshot
from appliance.observe.metrics import Metrics
from tests.unit.api_box import client_of, make_box
from tests.unit.costreport_parts import CONFIG, NOW, a_month, ledger
from tests.unit.test_cost import a_row

# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "steelyard.toml"
    file.write_text(
        '[server]\nstate_dir = "state"\n[cost]\ncurrency = "EUR"\ndevice_price = 2400\n'
        'overhead_per_month = 30\nprice_list = "prices.toml"\n'
    )
    (tmp_path / "prices.toml").write_text(
        '[[price]]\nname = "Example"\ninput_per_mtok = 1\noutput_per_mtok = 2\n'
    )
    return file


def test_command_prints_table_json_and_csv(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger(config_file.parent / "state", a_month())
    words = ["cost", "report", "--config", str(config_file), "--from", "2026-01-01", "--to"]
    words.append("2026-01-31")
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "Cost in EUR, 2026-01-01 to 2026-01-31" in shown
    assert re.search(r"^legal +2 ", shown, re.M)
    assert "Example" in shown
    assert run([*words, "--json", "--by", "model"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["group"] == {"model": "m"}
    assert run([*words, "--csv", "--by", "day", "--by", "key"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("day,key,key_name,requests,")
    assert not err


def test_csv_of_two_currencies_says_so_beside_it(
    config_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger(config_file.parent / "state", a_month())
    monkeypatch.setenv("STEELYARD_COST_CURRENCY", "USD")
    words = ["cost", "report", "--config", str(config_file), "--from", "2026-01-01", "--to"]
    assert run([*words, "2026-01-31", "--csv"]) == 0
    out, err = capsys.readouterr()
    assert "The ledger also has costs in EUR" in err
    assert "EUR" not in out


def test_command_says_what_is_wrong_and_what_to_do(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cost", "report", "--config", str(config_file)]
    state = config_file.parent / "state"
    state.mkdir()
    assert run(words) == 1
    assert "there is no ledger at" in capsys.readouterr().err
    ledger(state, a_month())
    assert run([*words, "--from", "2026-01-02", "--to", "2026-01-01"]) == 1
    assert "swap the days" in capsys.readouterr().err
    assert run([*words, "--json", "--csv"]) == 2
    assert run([*words, "--by", "colour"]) == 2
    (config_file.parent / "prices.toml").write_text("price = 1")
    capsys.readouterr()
    assert run(words) == 1
    assert "prices.toml: it has no entries" in capsys.readouterr().err


def test_rates_tell_how_each_came_about(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", "rates", "--config", str(config_file)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^device +0\.054757 +2400 over 5 years$", shown, re.M)
    assert re.search(r"^overhead +0\.041068 +30 per month$", shown, re.M)
    assert re.search(r"^idle share +0\.28747\d ", shown, re.M)
    assert all(len(line) <= WIDTH for line in shown.splitlines())


# -- the route -------------------------------------------------------------------------------------


async def ask(tmp_path: Path, query: str) -> Any:
    box = make_box(tmp_path, cost=CONFIG)
    secret = box.keys.create("admin", ["admin"])
    headers = {"Authorization": f"Bearer {secret}"}
    return await client_of(box).get(f"/admin/cost{query}", headers=headers)


async def test_route_answers_as_the_command_does(tmp_path: Path) -> None:
    ledger(tmp_path, a_month())
    answer = await ask(tmp_path, "?by=day,tenant&from=2026-01-01&to=2026-01-02")
    assert answer.status_code == 200
    same = msgspec.convert(answer.json(), Report)
    assert same == report(
        tmp_path / "ledger.sqlite", CONFIG, ["day", "tenant"],
        now_ns=NOW, first=date(2026, 1, 1), last=date(2026, 1, 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?by=colour", "by"),
        ("?by=day&by=day", "by"),
        ("?from=yesterday", "from"),
        ("?to=2026-02-30", "to"),
        ("?from=2026-01-02&to=2026-01-01", "from"),
        ("?since=2026-01-02", "since"),
    ],
)
async def test_route_refuses_what_it_cannot_answer(tmp_path: Path, query: str, param: str) -> None:
    ledger(tmp_path, [])
    answer = await ask(tmp_path, query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# -- metrics ---------------------------------------------------------------------------------------


def test_cost_is_counted_by_model_stage_and_tenant() -> None:
    metrics = Metrics(version="1", llama_commit="2", model="m", currency="EUR")
    costing = Costing(Rates.of(CONFIG), PrefillPace())
    costs = costing(a_row())
    metrics.cost("m", "legal", costs)
    metrics.cost("m", "legal", costs)
    text = metrics.text().decode()
    for stage in ("prefill", "decode", "cached", "idle"):
        line = f'llm_token_cost_eur_total{{model="m",stage="{stage}",tenant="legal"}} '
        found = float(text.partition(line)[2].splitlines()[0])
        assert found == pytest.approx(2 * getattr(costs, stage) / 1e9)


def test_ledgers_state_is_exported_where_there_is_a_ledger() -> None:
    without = Metrics(version="1", llama_commit="2", model="m").text().decode()
    assert "\nsteelyard:usage_unrecorded_total 0.0\n" in without
    assert "steelyard:ledger_up" not in without


def test_a_ledger_that_cannot_be_written_shows() -> None:
    snapshot = LedgerSnapshot(
        ok=False, problem="full", rows=7, seals=0, head="", last_commit_at=0.0, commit_ms=2.0,
        waiting=3, chain_broken=True, set_apart=1,
    )  # fmt: skip
    metrics = Metrics(version="1", llama_commit="2", model="m", ledger=lambda: snapshot)
    text = metrics.text().decode()
    for line in (
        "ledger_up 0.0",
        "ledger_rows 7.0",
        "ledger_queued 3.0",
        "ledger_commit_seconds 0.002",
        "ledger_chain_ok 0.0",
        "usage_unrecorded_total 1.0",
    ):
        assert f"\nsteelyard:{line}\n" in text
