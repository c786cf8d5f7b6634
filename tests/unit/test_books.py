"""Admissions and refusals: what gets a row, and what is not told before it is durable."""

import asyncio
import dataclasses
import math
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from appliance.api.box import Box
from appliance.engine.commands import Sampling
from appliance.engine.reports import Stats
from appliance.errors import Overloaded
from appliance.ledger import books as module
from appliance.ledger.books import key_number, key_of_number, storable
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Admitted
from appliance.ledger.writer import LedgerSnapshot
from tests.unit.api_box import chat, client_of, ledger_of, make_box


async def ask(box: Box, **more: Any) -> httpx.Response:
    return await client_of(box).post("/v1/chat/completions", json=chat(**more))


async def test_an_answered_request_has_its_admission_and_one_final_row(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    answer = await ask(box, metadata={"scenario": "mail\n"}, seed=3, temperature=0.5)
    first, last = ledger_of(box).rows
    assert isinstance(first, Admitted)
    (row,) = ledger_of(box).requests
    assert row is last
    assert row.id == answer.json()["id"]
    assert row.request_id == answer.headers["x-request-id"]
    assert row.trace_id == answer.headers["traceparent"].split("-")[1]
    assert (row.scenario, row.route, row.model) == ("mail", "/v1/chat/completions", "tiny")
    sampling = msgspec.convert(row.sampling, Sampling)
    assert (sampling.temperature, sampling.seed) == (0.5, 3)
    usage = answer.json()["usage"]
    assert row.prompt_tokens == first.prompt_tokens == usage["prompt_tokens"]
    assert row.completion_tokens == usage["completion_tokens"]


async def test_several_prompts_are_several_rows_of_one_call(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    answer = await client_of(box).post("/v1/completions", json={"prompt": ["a", "bc"]})
    rows = sorted(ledger_of(box).requests, key=lambda row: row.part)
    assert [(row.part, row.parts, row.prompt_tokens) for row in rows] == [(0, 2, 1), (1, 2, 2)]
    assert len({row.trace_id for row in rows}) == 1
    assert len({row.number for row in rows}) == 2
    total = sum(row.prompt_tokens + row.completion_tokens for row in rows)
    assert total == answer.json()["usage"]["total_tokens"]


async def test_nothing_is_told_before_the_admission_is_on_disk(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    disk: Future[int] = Future()

    def admit(row: Admitted, prompt: bytes = b"") -> Future[int]:
        return disk

    ledger_of(box).admit = admit  # type: ignore[method-assign]
    call = asyncio.create_task(ask(box, stream=True))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not call.done()
    disk.set_result(1)
    assert (await call).status_code == 200


async def test_a_failed_admission_is_503_and_leaves_nothing_in_the_engine(tmp_path: Path) -> None:
    box = make_box(tmp_path, lambda submit: [60.0])
    ledger_of(box).fault = LedgerError("the disk is full: free some space")
    answer = await ask(box)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "ledger_unavailable")
    assert "free some space" in error["message"]
    assert answer.headers["retry-after"] == "5"
    tickets: Any = box.supervisor.tickets
    assert all(ticket.cancelled.is_set() for ticket in tickets.values())


async def test_a_broken_ledger_lets_nothing_in(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    ledger = ledger_of(box)
    ledger.snapshot = dataclasses.replace(ledger.snapshot, ok=False, problem="the disk is full")
    answer = await ask(box)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ledger_unavailable")
    assert not box.supervisor.tickets
    ready = await client_of(box).get("/readyz")
    assert ready.status_code == 503
    assert ready.json()["failing"] == ["ledger"]


async def test_a_journal_without_room_lets_nothing_in(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    supervisor: Any = box.supervisor
    low = Stats(journal_records=5, journal_room=100)
    supervisor.snapshot = msgspec.structs.replace(supervisor.snapshot, stats=low)
    answer = await ask(box)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "journal_full")
    assert (await client_of(box).get("/readyz")).json()["failing"] == ["ledger"]


async def test_a_refused_request_has_a_row_too(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    admission: Any = box.admission
    admission.fault = Overloaded("full", retry_after=1)
    await ask(box, metadata={"scenario": "mail"})
    admission.fault = None
    await ask(box, messages=[])
    first, second = ledger_of(box).requests
    assert (first.outcome, first.status, first.code) == ("refused", 429, "queue_full")
    assert (second.outcome, second.status) == ("refused", 400)
    assert (first.scenario, first.prompt_tokens, first.completion_tokens) == ("mail", 0, 0)


def delayed(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What waits for refusals to be written together: that time passes when the test says so."""
    loop, later = asyncio.get_running_loop(), list[Callable[[], None]]()
    call_later = loop.call_later

    def remember(delay: float, callback: Callable[..., None], *args: Any) -> Any:
        if delay != module.TOGETHER_S:
            return call_later(delay, callback, *args)
        later.append(lambda: callback(*args))

    monkeypatch.setattr(loop, "call_later", remember)
    return later


async def test_a_flood_of_refusals_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = delayed(monkeypatch)
    box = make_box(tmp_path)
    for _ in range(7):
        await ask(box, messages=[])
    assert [row.count for row in ledger_of(box).requests] == [1]
    later.pop()()
    assert not later
    assert [row.count for row in ledger_of(box).requests] == [1, 6]
    assert len({row.number for row in ledger_of(box).requests}) == 2
    await ask(box, messages=[])
    assert [row.count for row in ledger_of(box).requests] == [1, 6, 1]


async def test_a_ledger_that_cannot_be_written_gets_a_row_for_each_kind_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Final rows wait in memory: those of refusals must not become more and more for days."""
    later = delayed(monkeypatch)
    box = make_box(tmp_path)
    ledger = ledger_of(box)
    ledger.snapshot = LedgerSnapshot(ok=False, problem="the disk is full")
    for _ in range(5):
        await ask(box, messages=[])
        await ask(box, max_tokens=-1)
        for turn in [later.pop() for _ in range(len(later))]:
            turn()
    assert ledger.requests == []
    kinds = len(later)
    assert kinds in (1, 2), "one for each kind of error"
    ledger.snapshot = LedgerSnapshot()
    for turn in later:
        turn()
    assert sum(row.count for row in ledger.requests) == 10
    assert len(ledger.requests) == kinds


async def test_closing_the_books_writes_what_waits_for_company(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    for _ in range(3):
        await ask(box, messages=[])
    box.books.close()
    box.books.close()
    assert [row.count for row in ledger_of(box).requests] == [1, 2]


async def test_what_is_not_generating_is_not_in_the_ledger(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    await client_of(box).get("/v1/models")
    await client_of(box).post("/tokenize", json={"content": 1})
    assert ledger_of(box).rows == []


def test_sampling_is_stored_as_json_can_hold_it() -> None:
    stored = storable(Sampling(temperature=0.0, logit_bias=((5, -math.inf), (6, 1.0))))
    text = msgspec.json.encode(stored)
    again = msgspec.json.decode(text, type=Sampling)
    assert again.temperature == 0.0
    assert dict(again.logit_bias)[5] < -1e29
    assert dict(again.logit_bias)[6] == 1.0


@pytest.mark.parametrize("key", ["k_00000001", "k_ffffffff", "k_1a2b3c4d"])
def test_a_key_is_known_again_by_its_number(key: str) -> None:
    assert key_of_number(key_number(key)) == key


@pytest.mark.parametrize("key", ["", "k_", "root", "k_\u0661"])
def test_what_is_no_key_id_has_no_number(key: str) -> None:
    assert key_number(key) in (0, 1)
    assert key_number("") == 0
    assert key_of_number(0) == ""
