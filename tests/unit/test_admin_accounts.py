"""Keys, tenants and usage over HTTP: what operators do, and what callers see of themselves."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.accounts.keys import BOX
from appliance.accounts.limits import Limits
from appliance.accounts.quotas import DAY_S, Quotas
from appliance.accounts.usage import load
from appliance.api.box import Box
from appliance.api.idempotency import KEPT_S, MOST, Answers
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.rows import Costs, RequestRow
from tests.unit.api_box import client_of, make_box
from tests.unit.ledger_parts import request

LAN = "192.168.1.20"


class Operator:
    """An admin of a box of its own."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.client = client_of(box, peer=LAN)
        self.client.headers["X-Api-Key"] = box.keys.create("boss", ["admin"], by=BOX)
        self.client.headers["X-Operator"] = "alice"

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(path, json=body, headers=sent)

    async def made(self, **body: Any) -> Any:
        answer = await self.post("/admin/keys", {"name": "app", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def keys(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.client.get("/admin/keys")).json()["keys"]
        return found

    def actions(self) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.box.keys.path)) as db:
            rows = db.execute("SELECT body FROM entries WHERE kind = 'action' ORDER BY seq")
            return [json.loads(body) for (body,) in rows]

    def enter(self, *rows: RequestRow) -> None:
        """Puts final rows into the ledger."""
        with closing(connect(self.box.keys.path)) as db, transaction(db):
            append(db, [(row, None) for row in rows])


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(make_box(tmp_path))


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def used(number: int, when: datetime, **fields: Any) -> RequestRow:
    """A request that ended then, and cost 10 nano."""
    costs = Costs(currency="USD", prefill=1, decode=2, cached=3, idle=4)
    wall_ns = int(when.timestamp() * 1e9)
    return request(number, **{"wall_ns": wall_ns, "costs": costs, **fields})


# -- keys ------------------------------------------------------------------------------------------


async def test_a_made_key_works_at_once_and_its_secret_is_shown_once(operator: Operator) -> None:
    made = await operator.made(
        scopes=["infer", "metrics"], tenant="sales", expires="2999-12-31",
        limits={"tokens_per_min": 2000, "cost_per_month": "12.50", "priority": "flex"},
    )  # fmt: skip
    answer = await operator.client.get("/v1/models", headers={"X-Api-Key": made["secret"]})
    assert answer.status_code == 200
    key = made["key"]
    assert (key["name"], key["tenant"], key["state"]) == ("app", "sales", "valid")
    assert (key["scopes"], key["expires"]) == (["infer", "metrics"], "2999-12-31")
    assert (key["created_by"], key["created_from"]) == ("alice", LAN)
    assert key["limits"] == {
        "requests_per_min": None, "tokens_per_min": 2000, "tokens_per_day": None,
        "cost_per_month": "12.50", "concurrent": None, "priority": "flex",
    }  # fmt: skip
    assert key["used"]["cost_per_month"] == "0.00"
    listed = await operator.client.get("/admin/keys")
    assert listed.json()["keys"][1] == key
    assert made["secret"] not in listed.text
    assert operator.actions()[-1]["operator"] == "alice"


async def test_a_key_with_nothing_said_may_infer_for_the_default_tenant(operator: Operator) -> None:
    key = (await operator.made())["key"]
    assert (key["scopes"], key["tenant"], key["expires"]) == (["infer"], "default", None)
    assert set(key["limits"].values()) == {None}


async def test_rotating_ends_the_old_secret_or_gives_it_grace(operator: Operator) -> None:
    first = await operator.made()
    path = f"/admin/keys/{first['key']['id']}/rotate"

    async def works(secret: str) -> bool:
        answer = await operator.client.get("/v1/models", headers={"X-Api-Key": secret})
        return answer.status_code == 200

    second = (await operator.post(path)).json()
    assert await works(second["secret"])
    assert not await works(first["secret"])
    third = (await operator.post(path, {"grace_s": 60})).json()
    assert await works(second["secret"])
    assert await works(third["secret"])
    assert third["key"]["grace_until"] is not None


async def test_limits_are_replaced_whole_and_hold_at_once(operator: Operator) -> None:
    secret = (await operator.made(limits={"concurrent": 3}))["secret"]
    answer = await operator.post("/admin/keys/app/limits", {"requests_per_min": 1})
    assert answer.json()["key"]["limits"]["concurrent"] is None
    own = await operator.client.get("/v1/usage", headers={"X-Api-Key": secret})
    assert own.json()["limits"]["key"]["requests_per_min"] == 1
    await operator.post("/admin/keys/app/limits", {})
    assert operator.box.keys.find("app").limits == Limits()


async def test_revoked_key_stays_listed_and_its_name_is_free(operator: Operator) -> None:
    first = await operator.made()
    gone = (await operator.client.delete("/admin/keys/app")).json()["key"]
    assert (gone["id"], gone["state"]) == (first["key"]["id"], "revoked")
    assert gone["revoked"] is not None
    second = await operator.made()
    states = [(key["name"], key["state"]) for key in await operator.keys()]
    assert states == [("boss", "valid"), ("app", "revoked"), ("app", "valid")]
    headers = {"X-Api-Key": first["secret"]}
    assert (await operator.client.get("/v1/models", headers=headers)).status_code == 401
    headers = {"X-Api-Key": second["secret"]}
    assert (await operator.client.get("/v1/models", headers=headers)).status_code == 200


async def test_last_valid_admin_key_goes_only_by_force(operator: Operator) -> None:
    refused = await operator.client.delete("/admin/keys/boss")
    assert (refused.status_code, error_of(refused)["code"]) == (409, "last_admin_key")
    assert "force=1" in error_of(refused)["message"]
    assert (await operator.client.delete("/admin/keys/boss?force=1")).status_code == 200
    assert (await operator.client.get("/admin/keys")).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "param"),
    [
        ("POST", "/admin/keys", {"name": "boss"}, 409, "key_exists", "name"),
        ("POST", "/admin/keys", {"name": "аdmin"}, 400, "invalid_value", None),
        ("POST", "/admin/keys", {"name": "a", "tenant": "ѕales"}, 400, "invalid_value", None),
        ("POST", "/admin/keys", {}, 400, "invalid_value", "name"),
        ("POST", "/admin/keys", {"name": "a", "scopes": ["root"]}, 400, "invalid_value",
         "scopes.0"),
        ("POST", "/admin/keys", {"name": "a", "scopes": []}, 400, "invalid_value", "scopes"),
        ("POST", "/admin/keys", {"name": "a", "scope": "infer"}, 400, "unknown_field", "scope"),
        ("POST", "/admin/keys", {"name": "a", "expires": "soon"}, 400, "invalid_value", "expires"),
        ("POST", "/admin/keys", {"name": "a", "expires": "2030-02-31"}, 400, "invalid_value",
         "expires"),
        ("POST", "/admin/keys", {"name": "a", "expires": "2001-01-01"}, 400, "invalid_value", None),
        ("POST", "/admin/keys", {"name": "a", "limits": {"requests_per_min": 0}}, 400,
         "invalid_value", "limits.requests_per_min"),
        ("POST", "/admin/keys", {"name": "a", "limits": {"cost_per_month": "free"}}, 400,
         "invalid_value", "cost_per_month"),
        ("POST", "/admin/keys/x/rotate", None, 404, "key_not_found", "id"),
        ("POST", "/admin/keys/boss/rotate", {"grace_s": -1}, 400, "invalid_value", "grace_s"),
        ("POST", "/admin/keys/x/limits", {}, 404, "key_not_found", "id"),
        ("POST", "/admin/keys/boss/limits", {"rpm": 5}, 400, "unknown_field", "rpm"),
        ("DELETE", "/admin/keys/x", None, 404, "key_not_found", "id"),
        ("POST", "/admin/tenants", {"name": "k_1", "limits": {}}, 400, "invalid_value", None),
        ("GET", "/admin/usage?by=colour", None, 400, "invalid_value", "by"),
        ("GET", "/admin/usage?from=now", None, 400, "invalid_value", "from"),
        ("GET", "/admin/usage?form=2030-01-01", None, 400, "unknown_field", "form"),
        ("GET", "/v1/usage?days=0", None, 400, "invalid_value", "days"),
        ("GET", "/v1/usage?days=９", None, 400, "invalid_value", "days"),
    ],
)  # fmt: skip
async def test_bad_requests_are_told_what_is_wrong_and_change_nothing(
    operator: Operator, method: str, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    before = operator.actions()
    answer = await operator.client.request(method, path, json=body)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code), answer.text
    assert error_of(answer)["param"] == param
    assert operator.actions() == before


async def test_ledger_that_cannot_be_written_is_503_and_nothing_is_half_done(
    operator: Operator,
) -> None:
    path = operator.box.keys.path
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(FAIL, 'x'); END"
        )
    answer = await operator.post("/admin/keys", {"name": "app"})
    assert (answer.status_code, error_of(answer)["code"]) == (503, "ledger_unavailable")
    assert "nothing was changed" in error_of(answer)["message"]
    assert [key["name"] for key in await operator.keys()] == ["boss"]


# -- asking again ----------------------------------------------------------------------------------


async def test_asking_again_with_the_same_idempotency_key_makes_no_second_key(
    operator: Operator,
) -> None:
    body = {"name": "app"}
    first, second = await asyncio.gather(
        *(operator.post("/admin/keys", body, Idempotency_Key="one") for _ in range(2))
    )
    assert first.json() == second.json()
    assert [answer.headers.get("idempotent-replayed") for answer in (first, second)] == [
        None, "true",
    ]  # fmt: skip
    assert len(await operator.keys()) == 2
    rotated = [
        (await operator.post("/admin/keys/app/rotate", None, Idempotency_Key="one")).json()
        for _ in range(2)
    ]
    assert rotated[0] == rotated[1]
    assert rotated[0]["secret"] != first.json()["secret"]


async def test_idempotency_key_is_for_one_request_of_one_caller(operator: Operator) -> None:
    await operator.post("/admin/keys", {"name": "a"}, Idempotency_Key="one")
    reused = await operator.post("/admin/keys", {"name": "b"}, Idempotency_Key="one")
    assert (reused.status_code, error_of(reused)["code"]) == (409, "idempotency_key_reused")
    other = operator.box.keys.create("other", ["admin"])
    theirs = await operator.post("/admin/keys", {"name": "b"}, Idempotency_Key="one",
                                 X_Api_Key=other)  # fmt: skip
    assert theirs.status_code == 200
    for bad in ("", "a b", "x" * 256):
        answer = await operator.post("/admin/keys", {"name": "c"}, Idempotency_Key=bad)
        assert (answer.status_code, error_of(answer)["param"]) == (400, "Idempotency-Key")


async def test_failed_request_may_be_tried_again_under_its_idempotency_key(
    operator: Operator,
) -> None:
    refused = await operator.post("/admin/keys", {"name": "boss"}, Idempotency_Key="one")
    assert refused.status_code == 409
    operator.box.keys.create("next", ["admin"])
    operator.box.keys.revoke("boss", force=True)
    operator.client.headers["X-Api-Key"] = operator.box.keys.rotate("next")[1]
    again = await operator.post("/admin/keys", {"name": "boss"}, Idempotency_Key="one")
    assert again.status_code == 200


async def test_answers_are_kept_for_ten_minutes_and_not_without_end(tmp_path: Path) -> None:
    now = [0.0]
    box = make_box(tmp_path)
    object.__setattr__(box, "answers", Answers(lambda: now[0]))
    operator = Operator(box)
    await operator.post("/admin/keys", {"name": "a"}, Idempotency_Key="one")
    now[0] = KEPT_S - 1
    again = await operator.post("/admin/keys", {"name": "a"}, Idempotency_Key="one")
    assert again.status_code == 200
    now[0] = KEPT_S
    late = await operator.post("/admin/keys", {"name": "a"}, Idempotency_Key="one")
    assert error_of(late)["code"] == "key_exists"
    for number in range(MOST + 5):
        await operator.post("/admin/keys", {"name": "a"}, Idempotency_Key=f"n{number}")
    held: Any = box.answers
    assert len(held._held) == MOST


# -- tenants ---------------------------------------------------------------------------------------


async def test_tenants_are_listed_with_limits_and_use(operator: Operator) -> None:
    await operator.made(tenant="sales")
    limits = {"tokens_per_day": 500, "cost_per_month": 3}
    set_ = await operator.post("/admin/tenants", {"name": "sales", "limits": limits})
    assert set_.json()["tenant"]["limits"]["cost_per_month"] == "3.00"
    listed = (await operator.client.get("/admin/tenants")).json()["tenants"]
    assert [tenant["name"] for tenant in listed] == ["default", "sales"]
    assert listed[1]["limits"]["tokens_per_day"] == 500
    assert listed[1]["used"]["tokens_per_day"] == 0
    assert operator.actions()[-1]["action"] == "tenant.set"


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
