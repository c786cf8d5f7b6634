"""Who gets in: keys and scopes, while the box runs; host names, web pages, and the LAN."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from tests.box.commanded import steelyard
from tests.box.conftest import Start
from tests.box.running import RunningBox
from tests.box.wire import HELLO, chat, connected, error_of, refused

CHAT = "/v1/chat/completions"
INTRANET = "https://intranet.example"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
YESTERDAY = LONG_AGO.date()
SCOPES = {"app": ["infer"], "meter": ["metrics"], "boss": ["admin"]}
SMALL_BODIES: dict[str, dict[str, Any]] = {
    CHAT: chat(max_tokens=1),
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/embeddings": {"input": "x"},
    "/v1/rerank": {"query": "x", "documents": ["y"]},
    "/v1/responses": {"input": "x", "max_output_tokens": 1},
    "/completion": {"prompt": "x", "n_predict": 1},
    "/tokenize": {"content": "x"},
    "/detokenize": {"tokens": [5]},
    "/apply-template": {"messages": HELLO},
}
INFER = [("POST", path) for path in SMALL_BODIES]
READ = [("GET", path) for path in ("/v1/models", "/v1/models/default", "/props", "/readyz")]
METRICS = [("GET", "/metrics"), ("GET", "/slots")]
ADMIN = [("GET", "/admin/status"), ("GET", "/admin/requests")]
ALLOWED = {
    "app": [*INFER, *READ],
    "meter": [*METRICS, *READ],
    "boss": [*ADMIN, *METRICS, *READ],
}
ROUTES = [*INFER, *READ, *METRICS, *ADMIN]


def store_of(home: Path, **options: Any) -> KeyStore:
    return KeyStore(home / "state" / FILE_NAME, **options)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("closed")


@pytest.fixture(scope="module")
def keys(home: Path) -> dict[str, str]:
    """A key for each scope, and one that has expired."""
    made = {name: store_of(home).create(name, scopes) for name, scopes in SCOPES.items()}
    early = store_of(home, clock=lambda: LONG_AGO)
    return made | {"old": early.create("old", ["infer", "admin"], expires=YESTERDAY)}


@pytest.fixture(scope="module")
def closed(home: Path, keys: dict[str, str]) -> Iterator[RunningBox]:
    """A box on which keys exist, so that nobody gets in without one."""
    with RunningBox.start(
        home, model={"aliases": {"gpt-4o": "default"}}, api={"cors_origins": [INTRANET]}
    ) as running:
        yield running


def ask(
    box: RunningBox, method: str, path: str, secret: str = "", **headers: str
) -> httpx.Response:
    if secret:
        headers = {"Authorization": f"Bearer {secret}", **headers}
    return box.http.request(method, path, json=SMALL_BODIES.get(path), headers=headers)


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALLOWED)
def test_a_key_opens_what_its_scope_is_for_and_nothing_else(
    closed: RunningBox, keys: dict[str, str], name: str
) -> None:
    for method, path in ROUTES:
        answer = ask(closed, method, path, keys[name])
        if (method, path) in ALLOWED[name]:
            assert answer.status_code == 200, path
        else:
            assert answer.status_code == 403, path
            assert error_of(answer)["type"] == "permission_error"
            assert error_of(answer)["code"] == "insufficient_scope"


@pytest.mark.parametrize("secret", ["", "sk-steelyard-wrong", "old", "x" * 10_000])
def test_without_a_good_key_only_health_is_open(
    closed: RunningBox, keys: dict[str, str], secret: str
) -> None:
    for method, path in ROUTES:
        answer = ask(closed, method, path, keys.get(secret, secret))
        assert answer.status_code == 401, path
        assert error_of(answer)["type"] == "authentication_error"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert ask(closed, "GET", "/health", secret).status_code == 200
    assert ask(closed, "GET", "/no/such/route", secret).status_code == 401


def test_a_key_is_found_in_either_header_and_nowhere_else(
    closed: RunningBox, keys: dict[str, str]
) -> None:
    app = keys["app"]
    for headers in (
        {"Authorization": f"Bearer {app}"}, {"authorization": f"bearer {app}"},
        {"X-Api-Key": app}, {"x-api-key": app},
    ):  # fmt: skip
        assert ask(closed, "GET", "/props", **headers).status_code == 200
    for headers in ({"Authorization": app}, {"Authorization": f"Basic {app}"}, {"Cookie": app}):
        assert ask(closed, "GET", "/props", **headers).status_code == 401
    assert closed.http.get("/props", params={"api_key": app}).status_code == 401


def test_an_app_written_for_a_cloud_model_needs_an_address_and_a_key_alone(
    closed: RunningBox, keys: dict[str, str]
) -> None:
    answer = closed.client(api_key=keys["app"]).chat.completions.create(
        model="gpt-4o", messages=HELLO, max_tokens=1
    )
    assert answer.choices[0].message.role == "assistant"
    with pytest.raises(openai.AuthenticationError):
        closed.client(api_key="sk-wrong").models.list()
    with pytest.raises(openai.PermissionDeniedError):
        closed.client(api_key=keys["meter"]).completions.create(model="default", prompt="x")


def test_a_key_works_as_soon_as_it_is_made_and_no_longer_once_it_is_revoked(
    closed: RunningBox, home: Path
) -> None:
    secret = steelyard(home, "keys", "create", "guest").stdout.strip()
    assert ask(closed, "POST", CHAT, secret).status_code == 200
    assert steelyard(home, "keys", "revoke", "guest").returncode == 0
    answer = ask(closed, "POST", CHAT, secret)
    assert answer.status_code == 401
    assert error_of(answer)["code"] == "invalid_api_key"


def test_no_secret_is_written_to_the_log(closed: RunningBox, keys: dict[str, str]) -> None:
    ask(closed, "GET", "/props", keys["app"])
    closed.wait_until(lambda: "key=app" in closed.log, what="the request is logged by name")
    assert not any(secret in closed.log for secret in keys.values())


def test_an_open_box_closes_with_its_first_key_and_a_damaged_ledger_opens_it_to_nobody(
    start_box: Start, tmp_path: Path
) -> None:
    box, home = start_box(), tmp_path / "1"
    assert ask(box, "POST", CHAT).status_code == 200
    assert ask(box, "GET", "/admin/status").status_code == 401
    assert ask(box, "GET", "/admin/status", box.admin_key).status_code == 200
    secret = store_of(home).create("first", ["infer"])
    assert ask(box, "POST", CHAT).status_code == 401
    assert ask(box, "POST", CHAT, secret).status_code == 200
    store_of(home).revoke("first")
    assert ask(box, "POST", CHAT).status_code == 200
    overwrite(store_of(home).path)
    for given in ("", secret, box.admin_key):
        assert ask(box, "POST", CHAT, given).status_code == 401
    assert ask(box, "GET", "/health").status_code == 200


def overwrite(ledger: Path) -> None:
    """Puts something else in its place, as a broken copy does."""
    for file in ledger.parent.glob(f"{ledger.name}-*"):
        file.unlink()
    new = ledger.with_name("new")
    new.write_text("{")
    new.chmod(0o600)
    new.replace(ledger)


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:8421"])
def test_the_box_answers_to_its_local_names(box: RunningBox, host: str) -> None:
    assert ask(box, "GET", "/props", Host=host).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "8.8.8.8", "x@y"]
)
def test_the_box_answers_to_no_other_name(box: RunningBox, host: str) -> None:
    """A web page whose name was rebound to 127.0.0.1 still says its own name."""
    for method, path in (*INFER, *READ, *ADMIN, ("GET", "/health"), ("GET", "/docs")):
        answer = ask(box, method, path, Host=host)
        assert answer.status_code == 421, path
        assert error_of(answer)["code"] == "host_not_allowed"


def test_two_host_headers_are_refused(box: RunningBox) -> None:
    with connected(box) as connection:
        connection.sendall(b"GET /props HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


def test_who_comes_through_a_proxy_is_not_local(box: RunningBox) -> None:
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-Ip"):
        assert ask(box, "POST", CHAT, **{header: "192.0.2.7"}).status_code == 401


@pytest.mark.parametrize("kinds", [[], ["boss"], ["old"]])
def test_the_box_does_not_open_to_the_lan_without_a_good_key(
    tmp_path: Path, kinds: list[str]
) -> None:
    for kind in kinds:
        if kind == "old":
            early = store_of(tmp_path, clock=lambda: LONG_AGO)
            early.create("old", ["infer"], expires=YESTERDAY)
        else:
            store_of(tmp_path).create(kind, SCOPES[kind])
    done = steelyard(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 1
    assert "steelyard keys create" in done.stderr
    assert "Traceback" not in done.stderr


def test_on_the_lan_everybody_needs_a_key_also_from_the_box_itself(
    start_box: Start, tmp_path: Path
) -> None:
    secret = store_of(tmp_path / "1").create("app", ["infer"])
    box = start_box(server={"host": "0.0.0.0"})
    port = httpx.URL(box.url).port
    for host in ("127.0.0.1", "10.1.2.3", "localhost"):
        assert ask(box, "POST", CHAT, Host=f"{host}:{port}").status_code == 401
        assert ask(box, "POST", CHAT, secret, Host=f"{host}:{port}").status_code == 200
    assert ask(box, "GET", "/health").status_code == 200
    assert ask(box, "POST", CHAT, secret, Host="evil.example").status_code == 421


# -- web pages -------------------------------------------------------------------------------------

PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
}


def test_a_listed_page_may_call_and_read(closed: RunningBox, keys: dict[str, str]) -> None:
    asked = ask(closed, "OPTIONS", CHAT, Origin=INTRANET, **PREFLIGHT)
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == INTRANET
    assert "POST" in asked.headers["access-control-allow-methods"]
    for name in ("authorization", "content-type", "x-stainless-lang"):
        assert name in asked.headers["access-control-allow-headers"].lower()
    answer = ask(closed, "POST", CHAT, keys["app"], Origin=INTRANET)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == INTRANET
    assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()
    assert "origin" in answer.headers["vary"].lower()
    unknown = ask(closed, "POST", CHAT, Origin=INTRANET)
    assert unknown.status_code == 401
    assert unknown.headers["access-control-allow-origin"] == INTRANET


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"{INTRANET}.evil.example", "http://localhost:9999"]
)
def test_a_page_that_is_not_listed_may_not_even_ask(
    box: RunningBox, closed: RunningBox, keys: dict[str, str], origin: str
) -> None:
    for at, secret in ((box, ""), (closed, keys["app"])):
        answer = ask(at, "POST", CHAT, secret, Origin=origin)
        assert answer.status_code == 403
        assert refused(answer)["code"] == "origin_not_allowed"
        asked = ask(at, "OPTIONS", CHAT, Origin=origin, **PREFLIGHT)
        assert asked.status_code >= 400
        for told in (answer, asked, ask(at, "GET", "/health", Origin=origin)):
            assert "access-control-allow-origin" not in told.headers


def test_the_boxs_own_page_may_call_it(box: RunningBox) -> None:
    assert ask(box, "POST", CHAT, Origin=box.url).status_code == 200
