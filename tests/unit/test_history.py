"""Requests and actions of the past, over HTTP and on the command line, from a real ledger."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from appliance import cli
from appliance.accounts.keys import FILE_NAME
from appliance.api.box import Box
from appliance.ledger.writer import Ledger
from tests.unit.api_box import chat, client_of, make_box
from tests.unit.ledger_parts import SECOND, WALL, action, request


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """Ten requests, of two tenants, and an operator's action."""
    ledger = Ledger.open(tmp_path / FILE_NAME)
    for number in range(1, 11):
        tenant = "acme" if number % 2 else "ops"
        outcome = "refused" if number == 4 else "stop"
        ledger.record(request(number, tenant=tenant, outcome=outcome), None)
    ledger.act(action("box.drain", key_name="root"))
    ledger.close()
    return make_box(tmp_path)


async def get(box: Box, path: str) -> Any:
    headers = {"X-Api-Key": box.keys.create("root", ["admin"])}
    return await client_of(box).get(path, headers=headers)


def steelyard(monkeypatch: pytest.MonkeyPatch, box: Box, *words: str) -> int:
    monkeypatch.setenv("STEELYARD_STATE", str(box.config.server.state_dir))
    return cli.run(["requests", *words])


async def test_ended_requests_are_listed_page_by_page_newest_first(box: Box) -> None:
    headers = {"X-Api-Key": box.keys.create("root", ["admin"])}
    client = client_of(box)
    numbers: list[int] = []
    path = "/admin/history?limit=4"
    while path:
        page = (await client.get(path, headers=headers)).json()
        numbers += [row["number"] for row in page["requests"]]
        path = f"/admin/history?limit=4&cursor={page['next']}" if page["next"] else ""
    assert numbers == list(range(10, 0, -1))


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("tenant=ops", [10, 8, 6, 4, 2]),
        ("tenant=ops&outcome=stop", [10, 8, 6, 2]),
        ("outcome=refused", [4]),
        ("tenant=nobody", []),
        ("key=k1&limit=2", [10, 9]),
        ("since=2024-10-04T00:00:08&until=2024-10-04T00:00:10", [9, 8]),
    ],
)
async def test_the_list_can_be_narrowed(box: Box, query: str, numbers: list[int]) -> None:
    assert WALL == 1_728_000_000 * SECOND, "2024-10-04, the first moment"
    page = (await get(box, f"/admin/history?{query}")).json()
    assert [row["number"] for row in page["requests"]] == numbers


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("colour=red", "colour"),
        ("limit=0", "limit"),
        ("cursor=x", "cursor"),
        ("since=soon", "since"),
    ],
)
async def test_what_the_list_cannot_be_asked_is_refused(box: Box, query: str, param: str) -> None:
    answer = await get(box, f"/admin/history?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("name", ["chatcmpl-00000003", f"{3:032x}", "req-3"])
async def test_one_request_is_found_by_each_of_its_names(box: Box, name: str) -> None:
    found = (await get(box, f"/admin/requests/{name}")).json()
    assert found["live"] is None
    (entry,) = found["entries"]
    assert (entry["number"], entry["seq"], len(entry["hash"])) == (3, 3, 64)


async def test_a_request_that_nobody_knows_is_not_found(box: Box) -> None:
    answer = await get(box, "/admin/requests/nope")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "request_not_found")


async def test_a_live_request_is_shown_as_it_stands(tmp_path: Path) -> None:
    box = make_box(tmp_path, lambda submit: [60.0])
    Ledger.open(tmp_path / FILE_NAME).close()
    call = asyncio.create_task(client_of(box).post("/v1/chat/completions", json=chat()))
    while not box.supervisor.tickets:
        await asyncio.sleep(0)
    (name,) = box.supervisor.tickets
    headers = {"X-Api-Key": box.keys.create("root", ["admin"])}
    client = client_of(box)
    found = (await client.get(f"/admin/requests/{name}", headers=headers)).json()
    assert (found["live"]["id"], found["live"]["state"]) == (name, "waiting")
    await client.delete(f"/admin/requests/{name}", headers=headers)
    await call


async def test_actions_are_listed_and_can_be_narrowed(box: Box) -> None:
    found = (await get(box, "/admin/actions?action=box.drain")).json()["actions"]
    assert [row["key_name"] for row in found] == ["root"]
    every = (await client_of(box).get("/admin/actions", headers={"X-Api-Key": "no"})).status_code
    assert every == 401


async def test_the_ledgers_state_is_told(box: Box) -> None:
    found = (await get(box, "/admin/ledger")).json()
    assert (found["ok"], found["problem"], found["recording"]) == (True, "", True)


def test_the_command_lists_within_80_columns(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steelyard(monkeypatch, box, "list", "--tenant", "ops", "--limit", "3") == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["ROW", "10", "8", "6"]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "--before 6" in err
    assert steelyard(monkeypatch, box, "list", "--tenant", "ops", "--before", "6", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["number"] for row in rows] == [4, 2]


@pytest.mark.parametrize("name", ["3", "chatcmpl-00000003"])
def test_the_command_shows_a_request_by_row_or_id(
    box: Box, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steelyard(monkeypatch, box, "show", name) == 0
    assert json.loads(capsys.readouterr().out)["number"] == 3


def test_the_command_says_what_is_missing(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steelyard(monkeypatch, box, "show", "nope") == 1
    assert "steelyard requests list" in capsys.readouterr().err
    monkeypatch.delenv("STEELYARD_ADMIN_KEY", raising=False)
    assert steelyard(monkeypatch, box, "cancel", "x") == 1
    assert "export STEELYARD_ADMIN_KEY" in capsys.readouterr().err
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", "sk")
    assert steelyard(monkeypatch, box, "cancel", "x", "--url", "http://127.0.0.1:9") == 1
    assert "Nothing listens at" in capsys.readouterr().err
