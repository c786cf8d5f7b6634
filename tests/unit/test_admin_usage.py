"""What was used, as callers and operators are told, and what quotas know of it after a restart."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from appliance.accounts.quotas import DAY_S, Quotas
from appliance.accounts.usage import load
from appliance.ledger.rows import Costs
from tests.unit.admin_parts import Operator, used
from tests.unit.api_box import client_of, make_box


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(make_box(tmp_path))


# -- usage -----------------------------------------------------------------------------------------


async def test_callers_see_their_own_figures_and_no_others(operator: Operator) -> None:
    made = await operator.made(tenant="sales", limits={"tokens_per_day": 100, "cost_per_month": 1})
    id, now = made["key"]["id"], datetime.now(UTC)
    mine = {"key_id": id, "tenant": "sales", "prompt_tokens": 7, "completion_tokens": 4}
    refused = {"key_id": id, "tenant": "sales", "outcome": "refused", "prompt_tokens": 0,
               "completion_tokens": 0, "costs": None, "cached_tokens": 0}  # fmt: skip
    operator.enter(
        used(1, now, **mine),
        used(2, now, **refused),
        used(3, now, key_id="k_99999999", tenant="sales"),
        used(4, now - timedelta(days=40), **mine),
    )
    operator.box.quotas.load((), 0.0, time.time())
    answer = await operator.client.get("/v1/usage?days=41", headers={"X-Api-Key": made["secret"]})
    own = answer.json()
    assert own["key"] == {"id": id, "name": "app"}
    assert (own["tenant"], own["currency"]) == ("sales", operator.box.config.cost.currency)
    today = own["today"]
    assert (today["requests"], today["refused"]) == (2, 1)
    assert (today["prompt_tokens"], today["completion_tokens"], today["total_tokens"]) == (7, 4, 11)
    assert today["cost"] == "0.00000001"
    assert own["month"]["total_tokens"] == 11
    assert len(own["days"]) == 41
    assert [day["total_tokens"] for day in own["days"] if day["requests"]] == [11, 11]
    assert own["days"][-1] == today
    assert own["limits"]["key"]["tokens_per_day"] == 100
    assert own["remaining"]["key"]["tokens_per_day"] == 100
    assert own["remaining"]["key"]["cost_per_month"] == "1.00"
    assert own["remaining"]["key"]["requests_per_min"] is None


async def test_open_loopback_sees_what_was_used_without_a_key(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    operator = Operator(box)
    operator.enter(used(1, datetime.now(UTC), key_id="", tenant="default"))
    own = (await client_of(box).get("/v1/usage")).json()
    assert own["key"] == {"id": "", "name": ""}
    assert own["today"]["requests"] == 1
    assert "days" not in own


async def test_usage_of_a_box_without_a_ledger_is_nothing(tmp_path: Path) -> None:
    own = (await client_of(make_box(tmp_path)).get("/v1/usage")).json()
    assert own["today"]["requests"] == own["month"]["total_tokens"] == 0


async def test_operators_see_usage_by_what_they_ask_for(operator: Operator) -> None:
    id, day = (await operator.made())["key"]["id"], datetime(2030, 5, 17, 12, tzinfo=UTC)
    tokens = {"prompt_tokens": 5, "completion_tokens": 2}
    operator.enter(
        used(1, day, key_id=id, tenant="sales", **tokens),
        used(2, day, key_id=id, tenant="sales", **tokens),
        used(3, day + timedelta(days=1), key_id="", key_name="", tenant="ops", **tokens),
    )
    operator.box.keys.revoke("app")
    period = "from=2030-05-17&to=2030-05-18"
    found = (await operator.client.get(f"/admin/usage?by=key,day&{period}")).json()
    assert (found["from"], found["to"], found["by"]) == ("2030-05-17", "2030-05-18", ["key", "day"])
    assert [(row["key"], row["key_name"], row["day"]) for row in found["rows"]] == [
        ("", "", "2030-05-18"), (id, "app", "2030-05-17"),
    ]  # fmt: skip
    assert found["rows"][1]["total_tokens"] == 14
    assert found["rows"][1]["cost"] == "0.00000002"
    one = (await operator.client.get(f"/admin/usage?by=tenant&{period}")).json()
    assert [(row["tenant"], row["requests"]) for row in one["rows"]] == [("ops", 1), ("sales", 2)]


async def test_operators_are_told_of_costs_in_another_currency(operator: Operator) -> None:
    day = datetime(2030, 5, 17, 12, tzinfo=UTC)
    euros = Costs(currency="EUR", prefill=1, decode=1, cached=0, idle=0)
    operator.enter(used(1, day), replace(used(2, day + timedelta(days=1)), costs=euros))
    for last, notes in (("2030-05-17", 0), ("2030-05-18", 1)):
        asked = f"/admin/usage?from=2030-05-01&to={last}"
        found = (await operator.client.get(asked)).json()
        assert (found["currency"], len(found["notes"])) == ("USD", notes)


# -- quotas at start -------------------------------------------------------------------------------

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC)


def loaded(operator: Operator, wall: datetime) -> Quotas:
    quotas = Quotas()
    load(quotas, operator.box.keys.path, 0.0, wall.timestamp())
    return quotas


def test_quotas_go_on_from_the_ledger_after_a_restart(operator: Operator) -> None:
    mine = {"key_id": "k_00000001", "tenant": "sales", "prompt_tokens": 5, "completion_tokens": 2}
    operator.enter(
        used(1, NOON, **mine),
        used(2, NOON - timedelta(days=1), **mine),
        used(3, NOON - timedelta(days=20), **mine),
    )
    quotas = loaded(operator, NOON)
    found = quotas.key_used("k_00000001", 0.0, NOON.timestamp())
    assert (found.tokens_per_day, found.cost_per_month) == (7, 20)
    assert quotas.tenant_used("sales", 0.0, NOON.timestamp()).tokens_per_day == 7


def test_clock_set_back_before_a_restart_opens_no_new_day(operator: Operator) -> None:
    mine = {"key_id": "k_00000001", "tenant": "sales", "prompt_tokens": 5, "completion_tokens": 2}
    midnight = datetime(2030, 6, 1, tzinfo=UTC)
    operator.enter(used(1, midnight + timedelta(minutes=10), **mine))
    before = midnight - timedelta(minutes=30)
    quotas = loaded(operator, before)
    found = quotas.key_used("k_00000001", 1.0, before.timestamp())
    assert (found.tokens_per_day, found.cost_per_month) == (7, 10)
    found = quotas.key_used("k_00000001", DAY_S / 2, (midnight + timedelta(hours=11)).timestamp())
    assert found.tokens_per_day == 7


def test_box_without_a_ledger_begins_with_nothing_used(tmp_path: Path) -> None:
    quotas = Quotas()
    load(quotas, tmp_path / "none.sqlite", 0.0, NOON.timestamp())
    assert quotas.key_used("", 0.0, NOON.timestamp()).tokens_per_day == 0
