"""Quotas as clients of the generating routes meet them."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.accounts.keys import By
from appliance.accounts.limits import Limits
from appliance.accounts.quotas import Quotas
from appliance.accounts.tally import Holder
from appliance.api.box import Box
from appliance.api.passes import Pass
from appliance.engine.commands import Submit
from appliance.engine.reports import Started
from appliance.errors import Overloaded
from tests.unit.api_box import Step, chat, client_of, ledger_of, make_box
from tests.unit.ledger_parts import request

CHAT = "/v1/chat/completions"
BY = By()
PROMPT, ANSWER = 2, 3
"""Tokens of `chat()`, one per byte of "hi", and of the scripted answer: Hel, lo, EOS."""


class Caller:
    """A key of one box."""

    def __init__(self, box: Box, limits: Limits, name: str = "app", tenant: str = "sales") -> None:
        self.box = box
        secret = box.keys.create(name, ["infer"], limits=limits, tenant=tenant)
        self.client = client_of(box, peer="192.168.1.20")
        self.client.headers["X-Api-Key"] = secret

    async def ask(self, path: str = CHAT, **more: Any) -> httpx.Response:
        return await self.client.post(path, json=chat(**more))

    async def own(self) -> Any:
        return (await self.client.get("/v1/usage")).json()


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


async def test_every_answer_of_a_generating_route_tells_what_is_left(tmp_path: Path) -> None:
    caller = Caller(make_box(tmp_path), Limits(requests_per_min=3, tokens_per_min=100))
    first = await caller.ask()
    assert first.headers["x-ratelimit-limit-requests"] == "3"
    assert first.headers["x-ratelimit-remaining-requests"] == "2"
    assert first.headers["x-ratelimit-limit-tokens"] == "100"
    assert first.headers["x-ratelimit-remaining-tokens"] == str(100 - PROMPT - ANSWER)
    assert first.headers["x-ratelimit-reset-tokens"].endswith("s")
    wrong = await caller.ask(temprature=1)
    assert (wrong.status_code, wrong.headers["x-ratelimit-remaining-requests"]) == (400, "1")
    stream = await caller.ask(stream=True)
    assert (stream.status_code, stream.headers["x-ratelimit-remaining-requests"]) == (200, "0")
    refused = await caller.ask()
    assert (refused.status_code, refused.headers["x-ratelimit-remaining-requests"]) == (429, "0")
    assert error_of(refused)["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert "x-should-retry" not in refused.headers
    other = await caller.client.get("/v1/models")
    assert not any(name.startswith("x-ratelimit") for name in other.headers)


async def test_without_limits_nothing_is_said_of_them(tmp_path: Path) -> None:
    for client in (client_of(make_box(tmp_path)), Caller(make_box(tmp_path), Limits()).client):
        answer = await client.post(CHAT, json=chat())
        assert not any(name.startswith("x-ratelimit") for name in answer.headers)


@pytest.mark.parametrize("stream", [False, True])
async def test_prompt_and_every_sampled_token_count_once(tmp_path: Path, stream: bool) -> None:
    caller = Caller(make_box(tmp_path), Limits(tokens_per_min=1000, tokens_per_day=1000))
    for _ in range(3):
        await caller.ask(stream=stream)
    left = (await caller.own())["remaining"]["key"]
    assert left["tokens_per_min"] == left["tokens_per_day"] == 1000 - 3 * (PROMPT + ANSWER)


async def test_choices_share_a_prompt_and_prompts_of_one_call_add_up(tmp_path: Path) -> None:
    caller = Caller(make_box(tmp_path), Limits(tokens_per_min=1000, requests_per_min=9))
    await caller.ask(n=2)
    await caller.client.post("/v1/completions", json={"prompt": ["abcd", "efg"]})
    left = (await caller.own())["remaining"]["key"]
    assert left["tokens_per_min"] == 1000 - (PROMPT + 2 * ANSWER) - (4 + 3 + 2 * ANSWER)
    assert left["requests_per_min"] == 7


async def test_day_that_is_used_up_is_told_as_openai_tells_it(tmp_path: Path) -> None:
    caller = Caller(make_box(tmp_path), Limits(tokens_per_day=6))
    assert (await caller.ask()).status_code == 200
    refused = await caller.ask()
    assert refused.status_code == 429
    assert error_of(refused)["type"] == error_of(refused)["code"] == "insufficient_quota"
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
    assert "the day ends at" in error_of(refused)["message"]
    row = ledger_of(caller.box).requests[-1]
    assert (row.outcome, row.code, row.tenant) == ("refused", "insufficient_quota", "sales")


async def test_keys_of_a_tenant_share_its_limits(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    box.keys.tenants.set("sales", Limits(requests_per_min=2), BY)
    callers = [Caller(box, Limits(), name) for name in ("a", "b", "c")]
    other = Caller(box, Limits(), "d", tenant="ops")
    codes = [(await caller.ask()).status_code for caller in (*callers, other)]
    assert codes == [200, 200, 429, 200]


async def test_open_loopback_is_held_to_the_default_tenant(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    box.keys.tenants.set("default", Limits(requests_per_min=1), BY)
    client = client_of(box)
    codes = [(await client.post(CHAT, json=chat())).status_code for _ in range(2)]
    assert codes == [200, 429]


def silent(submit: Submit) -> list[Step]:
    """Starts and says nothing until it is cancelled."""
    return [Started(submit.id, 0.0, 0), 60.0]


async def test_limit_changed_while_a_request_runs_holds_for_the_next_one(tmp_path: Path) -> None:
    box = make_box(tmp_path, silent)
    caller = Caller(box, Limits(concurrent=1))
    supervisor: Any = box.supervisor
    running = asyncio.create_task(caller.ask())
    while not supervisor.tickets:
        await asyncio.sleep(0)
    refused = await caller.ask()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert (await caller.own())["remaining"]["key"]["concurrent"] == 0
    box.keys.set_limits("app", Limits(concurrent=2))
    more = asyncio.create_task(caller.ask())
    while len(supervisor.tickets) < 2:
        await asyncio.sleep(0)
    box.keys.set_limits("app", Limits(tokens_per_day=1))
    assert error_of(await caller.ask())["code"] == "insufficient_quota"
    assert not running.done()
    assert not more.done()
    for ticket in supervisor.tickets.values():
        ticket.cancel()
    assert [(await task).status_code for task in (running, more)] == [499, 499]
    assert box.quotas.tenant_used("sales", 0.0, 0.0).concurrent == 0


async def test_request_that_the_queue_refuses_uses_no_tokens_and_no_place(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    caller = Caller(box, Limits(tokens_per_min=10, requests_per_min=9, concurrent=1))
    admission: Any = box.admission
    admission.fault = Overloaded("the queue is full", retry_after=1)
    assert error_of(await caller.ask())["code"] == "queue_full"
    left = (await caller.own())["remaining"]["key"]
    assert (left["tokens_per_min"], left["requests_per_min"], left["concurrent"]) == (10, 8, 1)


@pytest.mark.parametrize(
    ("asked", "status", "priority"),
    [(None, 200, 1), ("auto", 200, 1), ("flex", 200, 1), ("default", 403, 0), ("priority", 403, 0)],
)
async def test_key_that_may_have_flex_alone_gets_it_unasked(
    tmp_path: Path, asked: str | None, status: int, priority: int
) -> None:
    box = make_box(tmp_path)
    answer = await Caller(box, Limits(priority="flex")).ask(service_tier=asked)
    assert answer.status_code == status
    if status == 200:
        supervisor: Any = box.supervisor
        assert supervisor.last.request.priority == priority
        assert ledger_of(box).requests[-1].tier == "flex"
    else:
        assert error_of(answer)["code"] == "tier_not_allowed"
        assert error_of(answer)["param"] == "service_tier"


async def test_embeddings_count_too(tmp_path: Path) -> None:
    caller = Caller(make_box(tmp_path), Limits(tokens_per_min=4, requests_per_min=5))
    answer = await caller.client.post("/v1/embeddings", json={"input": "one two three four five"})
    assert answer.status_code == 200
    assert answer.json()["usage"]["total_tokens"] >= 5
    assert answer.headers["x-ratelimit-remaining-tokens"] == "0"
    again = await caller.client.post("/v1/embeddings", json={"input": "x"})
    assert error_of(again)["code"] == "rate_limit_exceeded"


def open_pass(prompts: list[int]) -> tuple[Quotas, Pass]:
    quotas = Quotas()
    entered = Pass(quotas, Holder("k_1", "app", "sales"))
    entered.knock()
    entered.enter(prompts, None)
    return quotas, entered


def used(quotas: Quotas) -> tuple[int, int]:
    found = quotas.key_used("k_1", time.monotonic(), time.time())
    return found.tokens_per_day, found.concurrent


def test_call_is_out_when_the_last_of_its_prompts_is() -> None:
    quotas, entered = open_pass([10, 20])
    entered.closed(request(1, part=1, completion_tokens=5))
    assert used(quotas) == (35, 1)
    entered.closed(request(2, part=0, completion_tokens=1))
    assert used(quotas) == (36, 0)


def test_prompts_that_were_never_submitted_are_not_used() -> None:
    quotas, entered = open_pass([10, 20, 30])
    entered.cut(1)
    assert used(quotas) == (10, 1)
    entered.closed(request(1, part=0, completion_tokens=0))
    assert used(quotas) == (10, 0)
    quotas, entered = open_pass([10, 20])
    entered.cut(0)
    assert used(quotas) == (0, 0)


def test_final_row_has_the_last_word_on_tokens_that_arrived() -> None:
    quotas, entered = open_pass([10])
    entered.arrived(7, 0)
    assert used(quotas) == (17, 1)
    entered.closed(request(1, part=0, completion_tokens=9))
    assert used(quotas) == (19, 0)
