"""The queue: who may join it, what those in it are told, and how an operator holds or drains it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.box.asking import Asked, ask, check_complete
from tests.box.running import RunningBox

PLACES = 2
WAITING = 4
TOKENS = 120
PING_S = 0.1
LONG = 3000
"""Tokens of a request that keeps its place until its client leaves."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """A box with few places and a short queue."""
    with RunningBox.start(
        tmp_path_factory.mktemp("narrow"),
        engine={
            "max_sequences": PLACES,
            "draft_tokens": 0,
            "prefill_tokens": 8,
            "context": 8192,
        },
        limits={"queue_requests": WAITING, "queue_tokens": TOKENS},
        server={"sse_ping_s": PING_S},
    ) as running:
        yield running


@pytest.fixture
def idle(narrow: RunningBox) -> RunningBox:
    """The narrow box with nothing in it."""
    narrow.wait_until(lambda: in_all(narrow) == 0, what="nothing runs and nothing waits")
    return narrow


@pytest.fixture
def held(idle: RunningBox) -> Iterator[RunningBox]:
    """The narrow box, starting nothing until the test says so."""
    idle.admin("POST", "/admin/hold")
    yield idle
    idle.admin("POST", "/admin/release")


def queue(box: RunningBox) -> dict[str, Any]:
    found: dict[str, Any] = box.admin("GET", "/admin/status").json()["queue"]
    return found


def in_all(box: RunningBox) -> int:
    found = queue(box)
    return int(found["running"] + found["waiting"])


def waiting_in(box: RunningBox) -> int:
    return int(queue(box)["waiting"])


def ask_in_turn(box: RunningBox, count: int, **fields: Any) -> list[Asked]:
    """Requests that joined a queue that does not move, one after the other."""
    asked = []
    for _ in range(count):
        before = waiting_in(box)
        asked.append(ask(box, **{"max_tokens": 8, **fields}))
        box.wait_until(lambda n=before: waiting_in(box) == n + 1, what="the request is in")
    return asked


def fill_places(box: RunningBox) -> list[Asked]:
    """Requests that run until their clients leave."""
    return [ask(box, max_tokens=LONG).wait_for_tokens() for _ in range(PLACES)]


def id_of_first_waiting(box: RunningBox) -> str:
    rows = box.admin("GET", "/admin/requests").json()["requests"]
    return next(str(row["id"]) for row in rows if row["state"] == "waiting")


def check_refused(refused: Asked, status: int, kind: str, code: str) -> None:
    """A real status even for a stream, before any event; and a time to come back."""
    refused.wait()
    assert refused.status == status
    assert [(error["type"], error["code"]) for error in refused.errors] == [(kind, code)]
    assert set(refused.errors[0]) == {"message", "type", "param", "code"}
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_full_queue_refuses_with_429_and_a_time_to_come_back(
    idle: RunningBox, stream: bool
) -> None:
    running = fill_places(idle)
    waiting = ask_in_turn(idle, WAITING)
    refused = ask(idle, stream=stream)
    check_refused(refused, 429, "rate_limit_error", "queue_full")
    assert f"{WAITING} requests wait (limits.queue_requests" in refused.errors[0]["message"]
    for request in running:
        request.hang_up()
    for request in waiting:
        check_complete(idle, request)
    check_complete(idle, ask(idle))


def test_queue_is_full_when_its_prompts_have_too_many_tokens(held: RunningBox) -> None:
    waiting = ask_in_turn(held, PLACES, prompt=[1000] * 50)
    refused = ask(held, [1000] * 30)
    check_refused(refused, 429, "rate_limit_error", "queue_full")
    assert "100 prompt tokens wait (limits.queue_tokens = 120)" in refused.errors[0]["message"]
    waiting += ask_in_turn(held, 1, prompt=[1000] * 20)
    held.admin("POST", "/admin/release")
    for request in waiting:
        check_complete(held, request)


def test_long_prompt_is_taken_whatever_the_queue_allows_when_a_place_is_free(
    idle: RunningBox,
) -> None:
    check_complete(idle, ask(idle, [1000] * (TOKENS + 1), max_tokens=2))


def test_those_who_wait_are_told_their_place_and_that_they_move_up(held: RunningBox) -> None:
    waiting = ask_in_turn(held, WAITING)
    held.wait_until(lambda: all(request.headers for request in waiting), what="headers came")
    places = [request.headers["x-queue-position"] for request in waiting]
    assert places == [str(number) for number in range(WAITING)]
    last = waiting[-1]
    for ahead in range(WAITING - 1, 0, -1):
        said = f"queue position {ahead}"
        held.wait_until(lambda s=said: s in last.comments, what=said)
        held.admin("DELETE", f"/admin/requests/{id_of_first_waiting(held)}")
    held.wait_until(lambda: "next in the queue" in last.comments, what="it is the next")
    held.admin("POST", "/admin/release")
    check_complete(held, last)
    told = [said for said in dict.fromkeys(last.comments) if said != "working"]
    assert told == [
        "queue position 3",
        "queue position 2",
        "queue position 1",
        "next in the queue",
    ]


def test_whole_answer_tells_where_in_the_queue_it_began(held: RunningBox) -> None:
    first, second = ask_in_turn(held, 2, stream=False)
    (witness,) = ask_in_turn(held, 1)
    held.wait_until(lambda: witness.status, what="all three know their place by then")
    held.admin("POST", "/admin/release")
    for request in (first, second, witness):
        check_complete(held, request)
    places = [request.headers["x-queue-position"] for request in (first, second)]
    assert places == ["0", "1"]


def test_stream_says_that_it_works_while_a_long_prompt_is_read(idle: RunningBox) -> None:
    """It takes 200 steps, beside another's answer."""
    beside = ask(idle, max_tokens=LONG).wait_for_tokens()
    asked = ask(idle, [1000 + number for number in range(1600)], max_tokens=2)
    check_complete(idle, asked)
    assert "working" in asked.comments
    beside.hang_up()


def test_official_client_reads_past_the_comments(held: RunningBox) -> None:
    client = held.client()

    def answer() -> str:
        chunks = client.completions.create(
            model="default", prompt="Once", max_tokens=5, temperature=0, stream=True,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        return "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)

    with ThreadPoolExecutor(1) as threads:
        ask_in_turn(held, 1)
        answered = threads.submit(answer)
        held.wait_until(lambda: in_all(held) == 2, what="the client waits")
        (witness,) = ask_in_turn(held, 1)
        held.wait_until(lambda: len(witness.comments) >= 3, what="comments are sent")
        held.admin("POST", "/admin/release")
        assert answered.result(60)


def test_official_client_comes_back_by_itself_after_a_refusal(held: RunningBox) -> None:
    waiting = ask_in_turn(held, WAITING)
    refusals = held.log.count("status=429")
    client = held.client(max_retries=8)

    def answer() -> Any:
        return client.completions.with_raw_response.create(
            model="default", prompt="Once", max_tokens=5, temperature=0,
            extra_body={"ignore_eos": True},
        )  # fmt: skip

    with ThreadPoolExecutor(1) as threads:
        answered = threads.submit(answer)
        held.wait_until(
            lambda: held.log.count("status=429") > refusals, what="the client was refused"
        )
        held.admin("POST", "/admin/release")
        raw = answered.result(60)
    assert raw.retries_taken >= 1
    assert raw.parse().choices[0].text
    for request in waiting:
        check_complete(held, request)


def test_draining_box_refuses_with_503_and_finishes_what_it_has(held: RunningBox) -> None:
    (waiting,) = ask_in_turn(held, 1)
    held.admin("POST", "/admin/drain")
    try:
        check_refused(ask(held), 503, "unavailable_error", "draining")
        check_refused(ask(held, stream=False), 503, "unavailable_error", "draining")
        ready = held.http.get("/readyz")
        assert (ready.status_code, ready.json()["failing"]) == (503, ["admitting"])
        assert held.http.get("/health").status_code == 200
        held.admin("POST", "/admin/release")
        check_complete(held, waiting)
    finally:
        held.admin("POST", "/admin/resume")
    assert held.http.get("/readyz").status_code == 200
    check_complete(held, ask(held))


def test_held_box_goes_on_with_what_runs_and_starts_nothing(idle: RunningBox) -> None:
    running = ask(idle, max_tokens=100).wait_for_tokens()
    idle.admin("POST", "/admin/hold")
    try:
        (waiting,) = ask_in_turn(idle, 1)
        assert waiting_in(idle) == 1
        check_complete(idle, running)
        assert queue(idle)["waiting"] == 1
        assert waiting.token_ids == []
        assert idle.admin("GET", "/admin/status").json()["engine"]["paused"]
    finally:
        idle.admin("POST", "/admin/release")
    check_complete(idle, waiting)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_deadline_that_passes_in_the_queue_is_said_so(held: RunningBox, stream: bool) -> None:
    late = ask(held, stream=stream, deadline_s=1).wait()
    assert late.status == (200 if stream else 408)
    assert [(e["type"], e["code"]) for e in late.errors] == [("timeout_error", "deadline_exceeded")]
    assert not late.finished_properly
    held.wait_idle()


@pytest.mark.parametrize("by", ["field", "header"])
def test_deadline_that_the_queue_cannot_meet_is_refused_at_once(held: RunningBox, by: str) -> None:
    waiting = ask_in_turn(held, PLACES, prompt=[1000] * 40)
    if by == "field":
        refused = ask(held, deadline_s=0.001)
    else:
        refused = ask(held, headers={"X-Request-Timeout-Ms": "1"})
    check_refused(refused, 429, "rate_limit_error", "deadline_unreachable")
    held.admin("POST", "/admin/release")
    for request in waiting:
        check_complete(held, request)


def test_request_of_higher_tier_goes_first(held: RunningBox) -> None:
    usual = ask_in_turn(held, 2)
    (urgent,) = ask_in_turn(held, 1, service_tier="priority", stream=False)
    held.admin("POST", "/admin/release")
    check_complete(held, urgent)
    assert urgent.headers["x-queue-position"] == "0"
    for request in usual:
        check_complete(held, request)
