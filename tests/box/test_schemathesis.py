"""Whatever fits the box's own OpenAPI document, or nearly fits it, never makes the box fail."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error

from appliance.accounts.keys import FILE_NAME, SCOPES, KeyStore
from appliance.api.routes import ROUTES, Route
from tests.box.running import RunningBox

EXAMPLES = 15
MOST_TOKENS = 4
DISTURBING = ("/admin/drain", "/admin/hold", "/admin/engine/restart")
"""After these the box, rightly, answers with 503 or not at all."""
TRIED = [route for route in ROUTES if route.path not in DISTURBING]
WITH_INPUT = [route for route in TRIED if route.body is not None]

examples = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def name_of(route: Route) -> str:
    return f"{route.method} {route.path.replace(':path', '')}"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """A box on which no request can ask for much, and a key that may do everything: those that the
    tests make and limit must not lock them out."""
    home = tmp_path_factory.mktemp("small")
    keys = KeyStore(home / "state" / FILE_NAME)
    secret = keys.create("schemathesis", SCOPES, tenant="schemathesis")
    with RunningBox.start(
        home,
        engine={"context": 256},
        limits={"max_tokens_default": MOST_TOKENS, "n": 2},
    ) as running:
        running.http.headers["X-Api-Key"] = secret
        yield running


@pytest.fixture(scope="module")
def document(small: RunningBox) -> Any:
    return schemathesis.openapi.from_dict(small.http.get("/openapi.json").json())


def bounded(body: Any) -> Any:
    """The body with limits that keep the test short; what is no number stays as it is."""
    if isinstance(body, dict):
        for name in ("max_tokens", "max_completion_tokens", "n_predict"):
            if isinstance(body.get(name), int):
                body[name] = min(body[name], MOST_TOKENS)
    return body


def check(case: Case[Any], box: RunningBox) -> None:
    case.body = bounded(case.body)
    if case.operation.path == "/events":  # without it the answer never ends
        case.query = {**(case.query or {}), "once": "1"}
    answer = case.call(
        base_url=box.url, headers={"X-Api-Key": box.http.headers["X-Api-Key"]}, timeout=60
    )
    case.validate_response(answer, checks=[not_a_server_error])
    if answer.status_code >= 400:
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize("route", TRIED, ids=name_of)
def test_no_request_of_the_right_form_makes_the_box_fail(
    small: RunningBox, document: Any, route: Route
) -> None:
    operation = document.find_operation_by_label(name_of(route))

    @examples
    @given(case=operation.as_strategy())
    def try_out(case: Case[Any]) -> None:
        check(case, small)

    try_out()


@pytest.mark.parametrize("route", WITH_INPUT, ids=name_of)
def test_no_request_of_a_wrong_form_makes_the_box_fail(
    small: RunningBox, document: Any, route: Route
) -> None:
    operation = document.find_operation_by_label(name_of(route))

    @examples
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def try_out(case: Case[Any]) -> None:
        check(case, small)

    try_out()


def test_the_box_came_through_it(small: RunningBox) -> None:
    ready = small.http.get("/readyz").json()
    assert ready["status"] == "ready"
    assert ready["engine"]["restarts"] == ready["prepare"]["restarts"] == 0
    assert "Traceback" not in small.log
