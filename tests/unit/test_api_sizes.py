"""Bodies that are large: what cannot fit is refused before it is gone through, and what takes long
is not done on the event loop, where everybody's answers are."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.api import bodies, tokens
from appliance.api import forecasting as forecast_route
from tests.unit.api_box import READY, BytePreparer, client_of, make_box
from tests.unit.forecast_parts import forecasting

pytestmark = pytest.mark.asyncio

HELLO = {"role": "user", "content": "x"}
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ROUTES = ("/v1/chat/completions", "/v1/forecast", "/apply-template")


def error_of(answer: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    return found


def tools(count: int) -> list[dict[str, Any]]:
    return [{**TOOL, "function": {**TOOL["function"], "name": f"f{i}"}} for i in range(count)]


async def test_more_messages_than_the_context_has_tokens_are_refused_unread(
    tmp_path: Path,
) -> None:
    box = make_box(tmp_path)
    client = client_of(box)
    assert isinstance(box.preparer, BytePreparer)
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL] * READY.n_ctx}
    for route in ROUTES[::2]:
        for messages in ([HELLO] * (READY.n_ctx + 1), [HELLO, calls]):
            refused = await client.post(route, json={"messages": messages})
            error = error_of(refused)
            assert (refused.status_code, error["code"]) == (400, "context_length_exceeded")
            assert "has at least " in error["message"]
            assert error["n_prompt_tokens"] > error["n_ctx"] == READY.n_ctx
    assert not box.preparer.jobs
    counted = await client.post(ROUTES[0], json={"messages": [HELLO] * READY.n_ctx})
    assert "has at least " not in error_of(counted)["message"]
    assert box.preparer.jobs


async def test_more_tools_than_are_allowed_are_refused_unread(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path, limits={"tools": 3}))
    for route in ROUTES[::2]:
        refused = await client.post(route, json={"messages": [HELLO], "tools": tools(4)})
        assert (refused.status_code, error_of(refused)["param"]) == (400, "tools")
        taken = await client.post(route, json={"messages": [HELLO], "tools": tools(3)})
        assert taken.status_code == 200


async def test_a_large_body_is_read_beside_the_event_loop_on_every_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forecast's too, which may be of a chat or of a text."""
    where: list[bool] = []
    decode = bodies.decode

    def noted(*given: Any, **named: Any) -> dict[str, Any]:
        where.append(threading.current_thread() is threading.main_thread())
        return decode(*given, **named)

    monkeypatch.setattr(forecast_route, "decode", noted)
    monkeypatch.setattr(bodies, "decode", noted)
    monkeypatch.setattr(bodies, "OFF_LOOP_BYTES", 150)
    small, large = ({"messages": [{**HELLO, "content": "x" * size}]} for size in (1, 110))
    async with forecasting(tmp_path) as box:
        client = client_of(box)
        for asked in (small, large):
            for route in ROUTES:
                assert (await client.post(route, json=asked)).status_code == 200
    assert where == [True] * 3 + [False] * 3


async def test_what_a_long_text_was_cut_into_is_told_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[bool] = []
    whole = tokens._with_pieces

    def noted(pieces: Any) -> Any:
        where.append(threading.current_thread() is threading.main_thread())
        return whole(pieces)

    monkeypatch.setattr(tokens, "_with_pieces", noted)
    monkeypatch.setattr(tokens, "MANY", 3)
    client = client_of(make_box(tmp_path))
    for text in ("abc", "abcd"):
        asked = {"content": text, "with_pieces": True}
        told = (await client.post("/tokenize", json=asked)).json()["tokens"]
        assert [token["piece"] for token in told] == list(text)
    assert where == [True, False]
