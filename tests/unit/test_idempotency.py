"""Asking again under the same Idempotency-Key."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.faults import Conflict
from appliance.api.idempotency import KEPT_S, MOST, Answers
from appliance.api.replies import json_response
from appliance.api.trace import Trace
from appliance.errors import BadRequest, Unavailable


def asked(key: str) -> Request:
    trace = Trace("req", "0" * 31 + "1", "1" * 16, "00", 0.0)
    headers = [(b"idempotency-key", key.encode())]
    return Request(
        {"type": "http", "path": "/admin/x", "headers": headers, "steelyard.trace": trace}
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [200, 202])
async def test_who_asks_again_gets_the_first_answer_whole(status: int) -> None:
    answers, made = Answers(clock=lambda: 0.0), []

    async def make() -> Response:
        made.append(status)
        return json_response({"status": "updating"}, status=status)

    first, again = [await answers.once(asked("one"), b"{}", make) for _ in range(2)]
    assert made == [status]
    assert (again.status_code, again.body) == (first.status_code, first.body)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotent-replayed"] == "true"


class Task:
    """Something to be done once that takes as long as the test wants."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def do(self) -> Response:
        self.runs += 1
        self.begun.set()
        await self.go_on.wait()
        return json_response({"run": self.runs})


async def done() -> Response:
    return json_response({})


async def fails() -> Response:
    raise BadRequest("not like this")


async def hangs() -> Response:
    return await asyncio.Event().wait()  # type: ignore[return-value]


@pytest.mark.asyncio
async def test_corrected_body_goes_through_under_the_key_of_an_attempt_that_failed() -> None:
    answers = Answers(clock=lambda: 0.0)
    with pytest.raises(BadRequest):
        await answers.once(asked("one"), b"wrong", fails)
    assert (await answers.once(asked("one"), b"right", done)).status_code == 200
    with pytest.raises(Conflict):
        await answers.once(asked("one"), b"wrong", done)


@pytest.mark.asyncio
async def test_attempt_that_was_cancelled_does_not_hold_its_body() -> None:
    answers = Answers(clock=lambda: 0.0)
    attempt = asyncio.create_task(answers.once(asked("one"), b"wrong", hangs))
    await asyncio.sleep(0)
    attempt.cancel()
    await asyncio.wait([attempt])
    assert (await answers.once(asked("one"), b"right", done)).status_code == 200


@pytest.mark.asyncio
async def test_body_is_held_while_who_asked_again_tries_it_after_the_first_one_failed() -> None:
    answers, task, failing = Answers(clock=lambda: 0.0), Task(), Task()

    async def fail() -> Response:
        await failing.do()
        return await fails()

    first = asyncio.create_task(answers.once(asked("one"), b"{}", fail))
    await failing.begun.wait()
    second = asyncio.create_task(answers.once(asked("one"), b"{}", task.do))
    await asyncio.sleep(0)
    assert task.runs == 0, "it waits for the first"
    failing.go_on.set()
    with pytest.raises(BadRequest):
        await first
    await task.begun.wait()
    with pytest.raises(Conflict):
        await answers.once(asked("one"), b"another", done)
    task.go_on.set()
    assert (await second).status_code == 200
    assert (await answers.once(asked("one"), b"{}", fails)).headers["idempotent-replayed"] == "true"


@pytest.mark.asyncio
@pytest.mark.parametrize("crowd", [0, MOST + 5], ids=["in time", "in number"])
async def test_what_still_runs_is_never_done_twice(crowd: int) -> None:
    now, task = [0.0], Task()
    answers = Answers(clock=lambda: now[0])
    first = asyncio.create_task(answers.once(asked("one"), b"{}", task.do))
    await task.begun.wait()
    for number in range(crowd):
        await answers.once(asked(f"n{number}"), b"{}", done)
    now[0] = KEPT_S + 1
    again = asyncio.create_task(answers.once(asked("one"), b"{}", task.do))
    await asyncio.sleep(0)
    task.go_on.set()
    assert (await first).body == (await again).body
    assert task.runs == 1


@pytest.mark.asyncio
async def test_ten_minutes_begin_with_the_answer() -> None:
    now, task = [0.0], Task()
    answers = Answers(clock=lambda: now[0])
    first = asyncio.create_task(answers.once(asked("one"), b"{}", task.do))
    await task.begun.wait()
    now[0] = KEPT_S + 1
    task.go_on.set()
    await first
    now[0] = 2 * KEPT_S
    assert (await answers.once(asked("one"), b"{}", fails)).body == (await first).body


@pytest.mark.asyncio
async def test_answers_are_bounded_and_the_oldest_goes() -> None:
    answers = Answers(clock=lambda: 0.0)
    for number in range(MOST + 1):
        await answers.once(asked(f"n{number}"), b"{}", done)
    assert (await answers.once(asked("n1"), b"{}", fails)).status_code == 200
    with pytest.raises(BadRequest):
        await answers.once(asked("n0"), b"{}", fails)


@pytest.mark.asyncio
async def test_who_comes_while_too_many_run_is_turned_away_and_none_of_those_is_dropped() -> None:
    answers, task = Answers(clock=lambda: 0.0), Task()

    async def ask(key: str, make: Callable[[], Awaitable[Response]]) -> Response:
        return await answers.once(asked(key), b"{}", make)

    running = [asyncio.create_task(ask(f"n{number}", task.do)) for number in range(MOST)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable) as refused:
        await ask("late", done)
    assert refused.value.headers["Retry-After"]
    task.go_on.set()
    await asyncio.gather(*running)
    assert task.runs == MOST
    assert (await ask("late", done)).status_code == 200
