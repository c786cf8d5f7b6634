"""Who may use which route, from where, under which name."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from appliance.accounts.keys import Key
from appliance.api.app import create_app
from appliance.api.auth import Need, is_local, refuse, secret_in
from appliance.api.guard import host_name
from appliance.api.routes import DOCS, ROUTES, need_of
from tests.unit.api_box import chat, client_of, make_box

LAN = "192.168.1.20"


def key(*scopes: Any) -> Key:
    return Key("k_1", "app", frozenset(scopes), datetime.now(UTC))


@pytest.mark.parametrize(
    ("need", "scopes"),
    [
        ("infer", {"infer"}),
        ("read", {"infer", "metrics", "admin"}),
        ("metrics", {"metrics", "admin"}),
        ("docs", {"infer", "metrics", "admin"}),
        ("known", {"infer", "metrics", "admin"}),
        ("admin", {"admin"}),
    ],
)
def test_each_need_is_met_by_its_scopes_alone(need: Need, scopes: set[str]) -> None:
    for scope in ("infer", "metrics", "admin"):
        fault = refuse(need, key=key(scope), given="sk-x", open_here=False)
        assert (fault is None) == (scope in scopes)
        if fault is not None:
            assert fault.status == 403
            assert fault.type == "permission_error"


@pytest.mark.parametrize("need", ["infer", "read", "metrics", "docs", "known", "admin"])
def test_nobody_known_is_401(need: Need) -> None:
    for given in ("sk-x", None):
        fault = refuse(need, key=None, given=given, open_here=False)
        assert fault is not None
        assert (fault.status, fault.type) == (401, "authentication_error")


def test_an_open_box_is_open_for_all_but_admin() -> None:
    for need in ("infer", "read", "metrics", "docs", "known"):
        assert refuse(need, key=None, given="sk-x", open_here=True) is None
    assert refuse("admin", key=None, given=None, open_here=True) is not None


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ({"authorization": "Bearer sk-1"}, "sk-1"),
        ({"authorization": "bearer   sk-1 "}, "sk-1"),
        ({"authorization": "Basic abc", "x-api-key": "sk-2"}, "sk-2"),
        ({"x-api-key": "sk-2"}, "sk-2"),
        ({"authorization": "Bearer "}, None),
        ({}, None),
    ],
)
def test_the_key_is_found_where_clients_put_it(headers: dict[str, str], secret: str | None) -> None:
    assert secret_in(Headers(headers)) == secret


@pytest.mark.parametrize(
    ("host", "headers", "local"),
    [
        ("127.0.0.1", {}, True),
        ("127.9.9.9", {}, True),
        ("::1", {}, True),
        ("::ffff:127.0.0.1", {}, True),
        ("192.168.1.2", {}, False),
        (None, {}, False),
        ("testclient", {}, False),
        ("127.0.0.1", {"x-forwarded-for": "8.8.8.8"}, False),
        ("127.0.0.1", {"forwarded": "for=8.8.8.8"}, False),
    ],
)
def test_a_proxy_on_this_machine_makes_nobody_local(
    host: str | None, headers: dict[str, str], local: bool
) -> None:
    assert is_local(host, Headers(headers)) == local


def test_every_route_stands_in_the_table_and_only_health_is_public(tmp_path: Path) -> None:
    app = create_app(make_box(tmp_path))
    assert len(app.router.routes) >= len(ROUTES)
    public = {path for route in (*ROUTES, *DOCS) for path in route.paths if route.need == "public"}
    assert public == {"/health", "/v1/health"}


@pytest.mark.parametrize("path", ["/admin", "/admin/x", "/admin/requests/a/b", "/admin/../health"])
def test_everything_under_admin_is_for_operators(path: str) -> None:
    assert need_of(path) == "admin"


@pytest.mark.parametrize("path", ["/", "/nope", "/v1/modelsx", "//health", "/health/", "/HEALTH"])
def test_what_is_in_no_table_needs_somebody_known(path: str) -> None:
    assert need_of(path) == "known"


async def test_a_box_on_the_lan_answers_nothing_but_health_without_a_key(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path), peer=LAN)
    for route in (*ROUTES, *DOCS):
        path = route.path.replace("{id:path}", "x").replace("{id}", "x")
        answer = await client.request(route.method, path)
        assert answer.status_code == (200 if route.need == "public" else 401), path
        if answer.status_code == 401:
            assert answer.json()["error"]["type"] == "authentication_error"
    assert (await client.get("/nope")).status_code == 401


async def test_right_wrong_and_lesser_keys(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    secrets = {scope: box.keys.create(scope, [scope]) for scope in ("infer", "metrics", "admin")}
    client = client_of(box, peer=LAN)

    async def status(path: str, secret: str) -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        return int((await client.get(path, headers=headers)).status_code)

    assert await status("/v1/models", secrets["infer"]) == 200
    assert await status("/v1/models", "sk-wrong") == 401
    assert await status("/metrics", secrets["infer"]) == 403
    assert await status("/metrics", secrets["metrics"]) == 200
    assert await status("/admin/status", secrets["metrics"]) == 403
    assert await status("/admin/status", secrets["admin"]) == 200
    assert await status("/nope", secrets["infer"]) == 404
    headers = {"X-Api-Key": secrets["admin"]}
    answer = await client.post("/v1/chat/completions", json=chat(), headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize("place", ["Authorization", "X-Api-Key"])
async def test_look_alike_of_a_secret_is_refused_in_clear_words(tmp_path: Path, place: str) -> None:
    box = make_box(tmp_path)
    secret = box.keys.create("app", ["infer"])
    client = client_of(box, peer=LAN)
    for wrong in (secret.replace("s", "ѕ", 1), secret + "\u200b", "\uff53" + secret[1:], "ключ"):
        value = f"Bearer {wrong}" if place == "Authorization" else wrong
        answer = await client.get("/v1/models", headers=[(place.encode(), value.encode())])
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert "looks the same" in answer.json()["error"]["message"]


async def test_loopback_closes_when_the_first_inference_key_exists(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    client = client_of(box)
    sdk = {"Authorization": "Bearer no-key-needed"}
    assert (await client.get("/v1/models", headers=sdk)).status_code == 200
    box.keys.create("admin", ["admin"])
    assert (await client.get("/v1/models", headers=sdk)).status_code == 200
    secret = box.keys.create("app", ["infer"])
    assert (await client.get("/v1/models")).status_code == 401
    assert (await client.get("/v1/models", headers={"X-Api-Key": secret})).status_code == 200
    assert (await client.get("/docs")).status_code == 200
    box.keys.revoke("app")
    assert (await client.get("/v1/models", headers={"X-Api-Key": secret})).status_code == 200


async def test_the_key_scopes_the_prefix_cache(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    secret = box.keys.create("app", ["infer"])
    headers = {"X-Api-Key": secret}
    await client_of(box).post("/v1/chat/completions", json=chat(), headers=headers)
    supervisor: Any = box.supervisor
    assert supervisor.last.request.scope == box.keys.list()[0].id


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8421", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:8421", 200),
        ("[::1]:8421", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("192.168.1.5", 421),
        ("", 421),
    ],
)
async def test_only_known_host_names_are_served(tmp_path: Path, host: str, status: int) -> None:
    answer = await client_of(make_box(tmp_path)).get("/v1/models", headers={"Host": host})
    assert answer.status_code == status


async def test_a_lan_box_is_known_by_its_addresses_and_listed_names(tmp_path: Path) -> None:
    box = make_box(tmp_path, server={"host": "0.0.0.0"})
    client = client_of(box)
    assert (await client.get("/health", headers={"Host": "10.0.0.7:8421"})).status_code == 200
    assert (await client.get("/health", headers={"Host": "evil.example"})).status_code == 421
    named = make_box(tmp_path, server={"host": "0.0.0.0", "allowed_hosts": ("llm.lan",)})
    client = client_of(named)
    assert (await client.get("/health", headers={"Host": "llm.lan"})).status_code == 200
    assert (await client.get("/health", headers={"Host": "10.0.0.7"})).status_code == 421


async def test_a_crafted_host_does_not_open_a_route(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path), peer=LAN)
    for host in ("localhost/health?", "localhost/health", "localhost#", "localhost/../health"):
        answer = await client.get("/admin/status", headers={"Host": host})
        assert answer.status_code in (401, 421)


@pytest.mark.parametrize(
    ("header", "name"),
    [("a.b:80", "a.b"), ("[::1]:80", "::1"), ("A.", "a"), (" x ", "x"), ("::1", "")],
)
def test_host_names_lose_port_brackets_and_case(header: str, name: str) -> None:
    assert host_name(header) == name


async def test_foreign_web_pages_cannot_make_the_box_work(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path))
    for origin in ("https://evil.example", "null", "http://localhost:3000"):
        headers = {"Origin": origin}
        answer = await client.post("/v1/chat/completions", json=chat(), headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    same = {"Origin": "http://localhost:8421"}
    answer = await client.post("/v1/chat/completions", json=chat(), headers=same)
    assert answer.status_code == 200


async def test_listed_web_pages_get_cors_headers_and_preflights(tmp_path: Path) -> None:
    box = make_box(tmp_path, api={"cors_origins": ("https://apps.example",)})
    client = client_of(box, peer=LAN)
    origin = {"Origin": "https://apps.example"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    answer = await client.options("/v1/chat/completions", headers={**origin, **asked})
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "https://apps.example"
    assert answer.headers["access-control-allow-headers"] == "x-api-key"
    answer = await client.get("/v1/models", headers=origin)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "https://apps.example"
    assert answer.headers["vary"] == "Origin"
    foreign = {"Origin": "https://evil.example", **asked}
    answer = await client.options("/v1/chat/completions", headers=foreign)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


async def test_too_many_header_bytes_are_431(tmp_path: Path) -> None:
    box = make_box(tmp_path, limits={"header_bytes": 1024})
    answer = await client_of(box).get("/health", headers={"X-Long": "x" * 2000})
    assert answer.status_code == 431
