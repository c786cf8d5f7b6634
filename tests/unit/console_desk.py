"""What the tests of the console's routes share: a box, and an operator who asks it."""

from typing import Any

import httpx
import msgspec
from fastapi import FastAPI

from appliance import frames
from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.ledger.rows import Action
from appliance.observe.alarms import Condition
from tests.unit.api_box import client_of, ledger_of

VERIFY = "/admin/audit/ledger/verify"


class Desk:
    """A box, an operator's key, and a client that sends it."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.app: FastAPI = create_app(box)
        self.headers = {"X-Api-Key": box.keys.create("alice", ["admin"]), "X-Operator": "bob"}
        self.client = client_of(box, self.app)

    @property
    def watch(self) -> Any:
        return self.app.state.feed.watch

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path, headers=self.headers)

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self.client.post(path, json=body, headers=self.headers)

    async def told(self, path: str, kind: type[Any]) -> Any:
        """The answer, which has exactly the members that are promised."""
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        found = msgspec.json.decode(answer.content, type=kind)
        if not kind.__struct_config__.array_like:
            assert set(answer.json()) == set(kind.__struct_fields__)
        return found

    def raise_alarm(self, id: str = "disk_low") -> None:
        found = [Condition(id, 5, 2, "DISK LOW: free some space", ("9",))]
        for second in range(4):
            self.watch.alarms.update(found, 100.0 + second, 1_000_000 + second)
        self.watch.changed()


def frames_in(answer: httpx.Response) -> list[Any]:
    lines = answer.text.split("\n")
    return [frames.decode.decode(line[6:]) for line in lines if line.startswith("data: ")]


def actions(desk: Desk) -> list[Action]:
    return [row for row in ledger_of(desk.box).rows if isinstance(row, Action)]
