"""An answer that somebody has, and the box that gave it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from sqlite_utils import Database

from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.api.replays import Done, Job, Replays, replay
from appliance.engine.commands import Submit
from appliance.engine.reports import Counts, Delta, Finished, Started, TokenLogprob
from appliance.ledger.books import Books, Identity, Texts
from appliance.ledger.database import connect
from appliance.ledger.verify import token_digest
from appliance.ledger.writer import Ledger
from tests.unit.api_box import chat, client_of, make_box, saying

CHAT = "/v1/chat/completions"
HI = tuple(b"hi")
SAID = (ord("H"), ord("l"), 0)
RIGHT = token_digest(HI, SAID)
WRONG = "ab" * 32
GREEDY = {"temperature": 0}


class Engine:
    """Answers as scripted; a replay picks what was forced, except where `picks` says else."""

    def __init__(self) -> None:
        self.say = saying("Hel", "lo")
        self.picks: dict[int, int] = {}
        """By place in the answer, from 0 on."""
        self.fault: Exception | None = None
        self.exclusive = True
        self.replays: list[Submit] = []

    def __call__(self, submit: Submit) -> Sequence[Any]:
        if not submit.forced:
            return self.say(submit)
        self.replays.append(submit)
        steps: list[Any] = [Started(submit.id, 1.0, 0)]
        if self.fault is not None:
            return [*steps, self.fault]
        for place, token in enumerate(submit.forced):
            picked = self.picks.get(place, token)
            top = tuple({(picked, -0.25): None, (token, -0.5 if picked != token else -0.25): None})
            entry = TokenLogprob(token, dict(top)[token], top, picked)
            steps.append(Delta(submit.id, 0, "x", (token,), (entry,)))
        n = len(submit.forced)
        cost = Counts(len(submit.prompt), 0, n, 0, 0, 0, 1.0, 1.0, 1.0, 1, 2, 0, self.exclusive)
        return [*steps, Finished(submit.id, 0, "length", "limit", "", cost)]


class Desk:
    """A box with a real ledger, and a client of it."""

    def __init__(self, tmp_path: Path, **changes: Any) -> None:
        self.engine = Engine()
        self.path = tmp_path / FILE_NAME
        self.ledger = Ledger.open(self.path)
        identity = Identity("tiny", "ab" * 32, "cd" * 32, "test", "boot")
        self.box: Box = replace(
            make_box(tmp_path, self.engine, **changes),
            ledger=self.ledger,
            books=Books(self.ledger, identity, costing=lambda row: None, texts=Texts()),
            keys=KeyStore(self.path),
        )
        self.app: FastAPI = create_app(self.box)
        self.client = client_of(self.box, self.app)
        self.running = 0

    def hold_replays(self) -> asyncio.Event:
        """From now on replays run once the event is set."""
        gate = asyncio.Event()

        async def held(job: Job) -> Done:
            self.running += 1
            await gate.wait()
            return await replay(self.box, job)

        self.app.state.replays = Replays(held)
        return gate

    def key(self, name: str, *scopes: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.box.keys.create(name, scopes)}"}

    async def ask(self, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        answer = await self.client.post(CHAT, json=chat(**{**GREEDY, **more}), headers=headers)
        assert answer.status_code == 200, answer.text
        return answer

    async def verify(
        self, name: str, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        return await self.client.post(f"/v1/audit/{name}/verify", json=body, headers=headers)

    async def show(self, name: str, headers: dict[str, str] | None = None) -> Any:
        answer = await self.client.get(f"/v1/audit/{name}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def rows(self, kind: str) -> int:
        self.ledger.flush(5)
        db = connect(self.path, read_only=True)
        count = db.execute("SELECT count(*) FROM entries WHERE kind = ?", (kind,)).fetchone()[0]
        db.close()
        return int(count)

    def change(self, sql: str) -> None:
        def run(db: Database) -> None:
            db.conn.execute(sql)

        self.ledger.run(run).result(5)


def conflict_of(answer: httpx.Response) -> Any:
    assert answer.status_code == 409, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("conflict_error", "token_digest_conflict")
    assert answer.headers["x-should-retry"] == "false"
    return error
