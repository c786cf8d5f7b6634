"""Query parameters of the box's own routes: what a route takes is listed, and nothing else is
ignored in silence. (Routes that others invented take what their clients add.)
"""

from pathlib import Path

from appliance.api.parameters import parameters_of
from appliance.api.routes import ROUTES, Route
from tests.unit.api_box import make_box
from tests.unit.console_desk import Desk

OURS = [route for route in ROUTES if route.path.startswith(("/admin", "/events", "/v1/usage"))]


def named(route: Route) -> list[str]:
    return [one["name"] for one in parameters_of(route) if one["in"] == "query"]


def path_of(route: Route) -> str:
    return route.path.replace("{", "").replace("}", "").replace(":path", "")


async def test_a_parameter_that_a_route_does_not_take_is_refused_by_name(tmp_path: Path) -> None:
    desk = Desk(make_box(tmp_path))
    headers = desk.headers | {"X-Api-Key": desk.box.keys.create("all", ["admin", "infer"])}
    assert len(OURS) > 40
    for route in OURS:
        query = "once=1&levl=error" if route.path == "/events" else "levl=error"
        path = f"{path_of(route)}?{query}"
        answer = await desk.client.request(route.method, path, headers=headers)
        assert answer.status_code == 400, f"{route.method} {path}"
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("unknown_field", "levl")
        for name in named(route) or ["none"]:
            assert name in error["message"]


async def test_a_route_of_others_takes_what_their_clients_add(tmp_path: Path) -> None:
    desk = Desk(make_box(tmp_path))
    answer = await desk.client.get("/v1/models?api-version=2024-10-21", headers=desk.headers)
    assert answer.status_code in (200, 403)
    assert (await desk.client.get("/health?probe=1")).status_code == 200
