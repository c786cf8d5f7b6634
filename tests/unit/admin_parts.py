"""An operator at the admin routes."""

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from typing import Any

import httpx

from appliance.accounts.keys import BOX
from appliance.api.box import Box
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.rows import Costs, RequestRow
from tests.unit.api_box import client_of
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


def used(number: int, when: datetime, **fields: Any) -> RequestRow:
    """A request that ended then, and cost 10 nano."""
    costs = Costs(currency="USD", prefill=1, decode=2, cached=3, idle=4)
    wall_ns = int(when.timestamp() * 1e9)
    return request(number, **{"wall_ns": wall_ns, "costs": costs, **fields})
