"""Screens 2, 4 and 5 against the box's own routes: what is answered is what they read."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs

from tests.unit.api_box import chat
from tests.unit.audit_parts import Desk
from tests.unit.console_views import LIVE
from tests.unit.console_views import view as seen
from tests.unit.screen_checks import exact, printed
from tui.screen import Ask, Call, Effect, Query, Screen, Show, Tell
from tui.screens.accounts import Accounts
from tui.screens.audit import Audit
from tui.screens.requests import Requests
from tui.view import View

CHAT = "/v1/chat/completions"
WRONG = "ab" * 32


def view(**given: Any) -> View:
    """A wide one, for the queries of wide screens; no key of it has a rate."""
    live = structs.replace(LIVE, at_ms=time.time_ns() // 1_000_000)
    return replace(seen("empty", width=140, height=45, **given), live=live)


def words(screen: Screen) -> str:
    """What is printed, as one line."""
    return " ".join(printed(screen, view()).split())


class Console:
    """Asks what screens want and carries out what they ask for, as tui/errands.py does."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.headers = {"X-Api-Key": desk.box.keys.create("alice", ["admin"]), "X-Operator": "bob"}

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self.desk.client.request(method, path, json=body, headers=self.headers)

    async def poll(self, screen: Screen, rounds: int = 2) -> None:
        """What was read may raise further questions."""
        for _ in range(rounds):
            exact(screen, view())
            for query in screen.wants(view()):
                await self.read(screen, query)
        exact(screen, view())

    async def read(self, screen: Screen, query: Query) -> None:
        answer = await self.ask("GET", query.path)
        assert answer.status_code == 200, (query.path, answer.text)
        screen.receive(query, answer.json(), None)

    async def perform(self, screen: Screen, effect: Effect | None) -> Effect | None:
        """`y`, where a dialog asks."""
        call = effect.effect if isinstance(effect, Ask) else effect
        assert isinstance(call, Call)
        answer = await self.ask(call.method, call.path, call.body)
        assert answer.status_code in (200, 202), answer.text
        return screen.answered(call, answer.json())

    def press(self, screen: Screen, *keys: str) -> Effect | None:
        effect = None
        for key in keys:
            screen.body(view())
            effect = screen.press(key, view())
        return effect


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[Console]:
    """On a box with a real ledger, in which one request has ended."""
    desk = Desk(tmp_path)
    assert (await desk.client.post(CHAT, json=chat())).status_code == 200
    assert desk.ledger.flush(20)
    yield Console(desk)
    await desk.app.state.feed.close()
    desk.ledger.close()


async def test_ended_requests_are_read_and_opened_with_their_tokens(console: Console) -> None:
    screen = Requests()
    console.press(screen, "tab")
    await console.poll(screen)
    assert len(screen.ended.rows) == 1
    console.press(screen, "enter")
    await console.poll(screen)
    assert "not read" not in words(screen)
    assert "a replay (N) finds them" in words(screen)
    shown = await console.perform(screen, console.press(screen, "N"))
    assert isinstance(shown, Show)
    assert "surprise in bits" in words(screen)
    again = Requests()
    console.press(again, "tab")
    await console.poll(again)
    console.press(again, "enter")
    await console.poll(again)
    assert "no tokens are kept of it" in words(again)
    assert isinstance(console.press(again, "N"), Tell)
    console.press(again, "escape", "down", "enter")
    await console.poll(again)
    assert "surprise in bits" in words(again)


async def test_a_request_is_found_by_its_name(console: Console) -> None:
    name = (await console.ask("GET", "/admin/history")).json()["requests"][0]["request_id"]
    screen = Requests()
    screen.find(name)
    console.press(screen, "enter")
    screen.find("")
    await console.poll(screen)
    assert len(screen.ended.rows) == 1


async def test_keys_are_read_made_limited_rotated_and_revoked(console: Console) -> None:
    screen = Accounts()
    await console.poll(screen)
    text = printed(screen, view())
    assert "1 key, 1 tenant, month" in text
    assert "?" not in text
    console.press(screen, "N", *"wiki")
    shown = await console.perform(screen, console.press(screen, "enter"))
    assert isinstance(shown, Show)
    assert any(line.startswith("sk-steelyard-") for line in shown.lines)
    await console.poll(screen)
    console.press(screen, "down", "E", *"60")
    await console.perform(screen, console.press(screen, "enter"))
    await console.poll(screen)
    assert "60 req/min" in printed(screen, view())
    assert isinstance(await console.perform(screen, console.press(screen, "O")), Show)
    await console.perform(screen, console.press(screen, "X"))
    await console.poll(screen)
    assert "REVOKED" in printed(screen, view())


async def test_tenants_are_made_and_limited(console: Console) -> None:
    screen = Accounts()
    await console.poll(screen)
    console.press(screen, "tab", "N", *"lab", "tab", *"7")
    await console.perform(screen, console.press(screen, "enter"))
    await console.poll(screen)
    console.press(screen, "end", "E")
    await console.perform(screen, console.press(screen, "enter"))
    await console.poll(screen)
    assert [row.tenant.limits.requests_per_min for row in screen.tenants.rows] == [None, 7]


async def test_the_last_admin_key_goes_only_by_its_name(console: Console) -> None:
    screen = Accounts()
    await console.poll(screen)
    ask = console.press(screen, "X")
    assert isinstance(ask, Ask)
    assert ask.typed == "alice"
    await console.perform(screen, ask)
    assert (await console.ask("GET", "/admin/keys")).status_code == 401


async def test_conflicts_actions_and_replays_are_read(console: Console) -> None:
    id = (await console.ask("GET", "/admin/history")).json()["requests"][0]["id"]
    told = await console.ask("POST", f"/v1/audit/{id}/verify", {"digest": WRONG})
    assert told.status_code == 409
    screen = Audit()
    await console.poll(screen)
    text = printed(screen, view())
    assert "replay: the very tokens of the ledger" in text
    assert "key.create alice" in text
    shown = await console.perform(screen, console.press(screen, "N"))
    assert isinstance(shown, Show)
    assert any("very tokens" in line for line in shown.lines)


async def test_the_ledger_is_verified(console: Console) -> None:
    screen = Audit()
    await console.poll(screen)
    await console.perform(screen, console.press(screen, "v"))
    async with asyncio.timeout(60):
        while screen.verification is None or screen.verification.verdict is None:
            await console.poll(screen, 1)
            await asyncio.sleep(0)
    assert screen.verification.state == "intact"
    assert "verify   ok" in printed(screen, view())
