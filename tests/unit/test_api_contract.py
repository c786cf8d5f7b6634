"""A request's budget at the HTTP interface: what is refused, what the engine gets, what is told."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.api.box import Box
from appliance.engine.commands import Budget, Submit
from appliance.engine.reports import Delta, Finished, Started
from appliance.ledger.rows import RequestRow
from appliance.prepare.messages import NO_CLOSING, Prepared
from tests.unit.api_box import Step, chat, client_of, counts, events_of, make_box

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ROUTES = {CHAT: chat(), TEXT: {"prompt": "Hello"}}


def landing(tokens: int, how: Any, reason: Any = "stop", tried: int = 0) -> Any:
    """An engine that answers with so many tokens and ends like that."""

    def script(submit: Submit) -> list[Step]:
        cost = replace(counts(len(submit.prompt), tokens), computed_tokens=tokens + tried)
        return [
            Started(submit.id, 1.0, 0),
            Delta(submit.id, 0, "Hello.", tuple(range(tokens))),
            Finished(submit.id, 0, reason, "eos", "", cost, landing=how),
        ]

    return script


async def ask(box: Box, route: str, **fields: Any) -> Any:
    return await client_of(box).post(route, json={**ROUTES[route], **fields})


def submitted(box: Box) -> Submit:
    supervisor: Any = box.supervisor
    request = supervisor.last.request
    assert isinstance(request, Submit)
    return request


def row(box: Box) -> RequestRow:
    ledger: Any = box.ledger
    (found,) = ledger.requests
    assert isinstance(found, RequestRow)
    return found


@pytest.mark.parametrize("route", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("used", "how", "reason", "within"),
    [
        (41, "natural", "stop", True),
        (38, "steered", "stop", True),
        (43, "closed", "stop", True),
        (43, "forced", "length", True),
        (20, "gave_way", "stop", False),
    ],
)
async def test_an_answer_tells_what_became_of_its_budget(
    tmp_path: Path, route: str, used: int, how: str, reason: str, within: bool
) -> None:
    box = make_box(tmp_path, landing(used, how, reason))
    answer = await ask(box, route, budget={"tokens": 40, "mode": "strict"})
    (choice,) = answer.json()["choices"]
    assert choice["budget"] == {"tokens": 40, "used": used, "within": within, "ended": how}
    assert choice["finish_reason"] == reason
    assert submitted(box).budget == Budget(40, "strict")


@pytest.mark.parametrize("route", [CHAT, TEXT])
async def test_a_stream_tells_it_in_the_choices_last_chunk(tmp_path: Path, route: str) -> None:
    box = make_box(tmp_path, landing(38, "steered"))
    answer = await ask(box, route, budget={"tokens": 40}, stream=True)
    *chunks, done = events_of(answer.text)
    assert done == "[DONE]"
    choices = [choice for chunk in chunks for choice in json.loads(chunk)["choices"]]
    told = [choice for choice in choices if "budget" in choice]
    assert told == choices[-1:]
    assert told[0]["budget"] == {"tokens": 40, "used": 38, "within": True, "ended": "steered"}
    assert submitted(box).budget == Budget(40, "soft")


@pytest.mark.parametrize("route", [CHAT, TEXT])
async def test_without_a_budget_nothing_is_said_of_one(tmp_path: Path, route: str) -> None:
    box = make_box(tmp_path)
    (choice,) = (await ask(box, route)).json()["choices"]
    assert "budget" not in choice
    assert submitted(box).budget is None


@pytest.mark.parametrize("route", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"budget": {"tokens": 0}}, "budget.tokens", "greater than or equal to 1"),
        ({"budget": {"tokens": -5}}, "budget.tokens", "greater than or equal to 1"),
        ({"budget": {"tokens": "40"}}, "budget.tokens", "integer"),
        ({"budget": {"tokens": 4.5}}, "budget.tokens", "integer"),
        ({"budget": {}}, "budget.tokens", "required"),
        ({"budget": 40}, "budget", ""),
        ({"budget": {"tokens": 40, "mode": "hard"}}, "budget.mode", "strict"),
        ({"budget": {"tokens": 40, "slack": 5}}, "budget.slack", ""),
        ({"budget": {"tokens": 40}, "n": 2}, "budget", "leave n out"),
        ({"budget": {"tokens": 40}, "ignore_eos": True}, "budget", "ignore_eos"),
        ({"budget": {"tokens": 40}, "max_tokens": 39}, "budget.tokens", "max_tokens, which is 39"),
        ({"budget": {"tokens": 40}, "max_tokens": 0}, "budget.tokens", "max_tokens, which is 0"),
        ({"budget": {"tokens": 9000}}, "budget.tokens", "context"),
    ],
)
async def test_a_budget_that_cannot_be_kept_is_refused(
    tmp_path: Path, route: str, fields: dict[str, Any], param: str, said: str
) -> None:
    answer = await ask(make_box(tmp_path), route, **fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert said in error["message"]


@pytest.mark.parametrize(
    ("closing", "said"), [(44, "takes about 44 tokens, and 40"), (NO_CLOSING, "no way was found")]
)
async def test_a_structure_that_cannot_be_closed_in_time_is_refused(
    tmp_path: Path, closing: int, said: str
) -> None:
    box = make_box(tmp_path)
    preparer: Any = box.preparer
    preparer.prepared = Prepared(prompt=(), text="", grammar="g", closing=closing)
    answer = await ask(box, CHAT, budget={"tokens": 40})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "budget.tokens"
    assert said in answer.json()["error"]["message"]
    assert preparer.jobs[-1].closing


async def test_one_that_just_fits_is_taken(tmp_path: Path) -> None:
    box = make_box(tmp_path, landing(43, "closed"))
    preparer: Any = box.preparer
    preparer.prepared = Prepared(prompt=(), text="", grammar="g", closing=43)
    assert (await ask(box, CHAT, budget={"tokens": 40})).status_code == 200


async def test_the_ledger_keeps_what_was_agreed_and_counts_tries_apart(tmp_path: Path) -> None:
    box = make_box(tmp_path, landing(38, "steered", tried=50))
    answer = await ask(box, CHAT, budget={"tokens": 40})
    found = row(box)
    assert answer.json()["usage"]["completion_tokens"] == found.completion_tokens == 38
    assert found.computed_tokens == 88
    assert found.choices[0].landing == "steered"
    assert found.sampling["budget"] == {"tokens": 40, "mode": "soft"}


async def test_the_engine_expects_the_length_that_was_agreed_on(tmp_path: Path) -> None:
    box = make_box(tmp_path, landing(38, "steered"))
    await ask(box, CHAT, budget={"tokens": 40})
    supervisor: Any = box.supervisor
    (told,) = supervisor.orders.expected
    assert (told.tokens, told.survival) == ((36, 43), (1.0, 0.0))


async def test_llama_servers_own_route_knows_no_budget(tmp_path: Path) -> None:
    body = {"prompt": "Hello", "budget": {"tokens": 40}}
    answer = await client_of(make_box(tmp_path)).post("/completion", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unknown_field"
