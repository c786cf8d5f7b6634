"""Keys, tenants and usage over HTTP: what operators do, and what callers see of themselves."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.accounts.limits import Limits
from appliance.api.idempotency import KEPT_S, Answers
from tests.unit.admin_parts import LAN, Operator
from tests.unit.api_box import make_box


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(make_box(tmp_path))


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


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


async def test_failed_request_may_be_corrected_under_its_idempotency_key(
    operator: Operator,
) -> None:
    refused = await operator.post("/admin/keys", {"name": "boss"}, Idempotency_Key="one")
    assert (refused.status_code, error_of(refused)["code"]) == (409, "key_exists")
    corrected = await operator.post("/admin/keys", {"name": "boss2"}, Idempotency_Key="one")
    assert corrected.status_code == 200


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


async def test_answers_are_kept_for_ten_minutes(tmp_path: Path) -> None:
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
