"""However and whenever a request is cancelled, its place is free within one engine step, and those
that ran beside it are answered in full.

Time is counted in engine steps, read from the engine's own counters, not in seconds.
"""

import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from appliance.daemon import SAME_SIGNAL_S
from tests.box.asking import Asked, ask, check_complete
from tests.box.conftest import Start
from tests.box.running import RunningBox

ENGINE = {"draft_tokens": 0, "prefill_tokens": 8}
"""One token a step and neighbour, and a prompt takes many steps."""
STEPS = 2
"""The step that runs when the cancellation arrives, and the one in which this test notices."""
ATTEMPTS = 3
"""The machine is shared, and asking takes time in which steps go by: the best attempt counts. A
place that were held for longer would be so in every attempt."""
DEADLINE_S = 0.7

STATES = ("queued", "prefill", "decode")
WAYS = ("disconnect", "deadline", "operator")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    with RunningBox.start(tmp_path_factory.mktemp("crowded"), engine=ENGINE) as running:
        yield running


class Neighbours:
    """Streams that must not notice anything: one follows the model alone; the other can only say
    one text, so that any token lost, doubled or taken from another request shows."""

    def __init__(self, box: RunningBox, tokens: int) -> None:
        self._box = box
        self._plain = ask(box, max_tokens=tokens)
        self._text = " ".join(str(number) for number in range(100, 100 + tokens // 4))
        grammar = f'root ::= "{self._text}"'
        self._spelling = ask(box, grammar=grammar, ignore_eos=False, max_tokens=400)
        for neighbour in self:
            neighbour.wait_for_tokens()

    def __iter__(self) -> Iterator[Asked]:
        return iter((self._plain, self._spelling))

    def __len__(self) -> int:
        return 2

    @property
    def running(self) -> bool:
        return not any(neighbour.over for neighbour in self)

    def check_complete(self) -> None:
        check_complete(self._box, self._plain)
        spelling = self._spelling.wait()
        assert (spelling.problem, spelling.errors) == ("", [])
        assert spelling.text == self._text
        assert spelling.finished_properly
        assert spelling.usage["completion_tokens"] == len(spelling.token_ids)


def stats(box: RunningBox) -> dict[str, Any]:
    found: dict[str, Any] = box.admin("GET", "/admin/status").json()["stats"]
    return found


def start_victim(box: RunningBox, state: str, company: int, **fields: Any) -> Asked:
    """A request that is in that state when this returns, where `company` others are already."""
    prompt: Any = "Once upon a time"
    if state == "queued":
        box.admin("POST", "/admin/hold")
    if state == "prefill":
        prompt = random.choices(range(1000, 40000), k=1200)
    victim = ask(box, prompt, max_tokens=800, cache_prompt=False, **fields)
    where = "waiting" if state == "queued" else "running"
    box.wait_until(lambda: stats(box)[where] == company + 1, what=f"the victim is {state}")
    if state == "decode":
        reached = stats(box)["steps"] + 2
        box.wait_until(lambda: stats(box)["steps"] >= reached, what="the victim decodes")
    return victim


def cancel(box: RunningBox, victim: Asked, way: str) -> int:
    """Cancels it in that way; returns after which step."""
    if way == "deadline":
        assert time.monotonic() < victim.sent_at + DEADLINE_S, "the machine is too slow for this"
        while time.monotonic() < victim.sent_at + DEADLINE_S:
            steps = stats(box)["steps"]
        return int(steps)
    rows = box.admin("GET", "/admin/requests").json()["requests"]
    (name,) = (row["id"] for row in rows if row["max_tokens"] == 800)
    steps = stats(box)["steps"]
    if way == "disconnect":
        victim.hang_up()
    else:
        assert box.admin("DELETE", f"/admin/requests/{name}").json()["status"] == "cancelled"
    return int(steps)


def steps_held(box: RunningBox, neighbours: Neighbours, stream: bool, state: str, way: str) -> int:
    """Runs one victim to its end; returns for how many steps it kept its place."""
    limit = {"deadline_s": DEADLINE_S} if way == "deadline" else {}
    try:
        company = 0 if state == "queued" else len(neighbours)
        victim = start_victim(box, state, company, stream=stream, **limit)
        before = cancel(box, victim, way)
        while (now := stats(box))["running"] + now["waiting"] > len(neighbours):
            assert now["steps"] - before < 100, "its place is never free"
        assert neighbours.running, "the neighbours ended too early to tell"
        check_outcome(victim.wait(), state, way)
        return int(now["steps"]) - before
    finally:
        box.admin("POST", "/admin/release")


def check_outcome(victim: Asked, state: str, way: str) -> None:
    assert not victim.finished_properly
    assert state == "decode" or victim.token_ids == []
    if way == "disconnect":
        assert victim.errors == []
        return
    code, status = {"deadline": ("deadline_exceeded", 408), "operator": ("cancelled", 499)}[way]
    assert [error["code"] for error in victim.errors] == [code]
    assert "error" in victim.events[-1]
    assert victim.status == (200 if victim.body["stream"] else status)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_cancelled_request_leaves_within_one_step_and_harms_no_neighbour(
    crowded: RunningBox, stream: bool, state: str
) -> None:
    neighbours = Neighbours(crowded, tokens=200)
    for way in WAYS:
        held: list[int] = []
        while not held or (min(held) > STEPS and len(held) < ATTEMPTS):
            held.append(steps_held(crowded, neighbours, stream, state, way))
        assert min(held) <= STEPS, f"{way}: held its place for {held} steps"
    neighbours.check_complete()


def test_client_that_hangs_up_is_counted_as_such(crowded: RunningBox) -> None:
    def count() -> float:
        wanted = 'steelyard:requests_total{outcome="disconnected",route="/v1/completions"}'
        lines = crowded.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(wanted))

    before = count()
    asked = ask(crowded, max_tokens=800).wait_for_tokens()
    asked.hang_up()
    crowded.wait_until(lambda: count() == before + 1, what="the disconnection is counted")


def test_nothing_is_left_behind_by_cancelled_requests(crowded: RunningBox) -> None:
    crowded.wait_until(lambda: crowded.busy_slots() == 0, what="all slots idle")
    assert crowded.admin("GET", "/admin/requests").json()["requests"] == []
    now = stats(crowded)
    assert (now["running"], now["waiting"]) == (0, 0)
    assert now["kv_used"] == now["kv_cached"], "cells of ended requests are only kept for reuse"


@pytest.mark.parametrize(
    ("state", "streams"),
    [
        ("queued", [True, False]),
        ("prefill", [True]),
        ("prefill", [False]),
        ("decode", [True, False]),
    ],
    ids=["queued", "prefill-stream", "prefill-whole", "decode"],
)
def test_shutdown_ends_what_does_not_end_itself_and_harms_no_neighbour(
    start_box: Start, state: str, streams: list[bool]
) -> None:
    box = start_box(engine=ENGINE, server={"drain_s": 600})
    engine = box.engine()
    neighbours = Neighbours(box, tokens=32)
    victims = []
    for count, stream in enumerate(streams):
        ahead = count if state == "queued" else count + len(neighbours)
        victims.append(start_victim(box, state, ahead, stream=stream))
    box.process.send_signal(signal.SIGTERM)
    box.wait_until(lambda: box.http.get("/readyz").status_code == 503, what="it stops")
    told_at = time.monotonic()
    neighbours.check_complete()
    assert not any(victim.over for victim in victims)
    box.wait_until(lambda: time.monotonic() > told_at + SAME_SIGNAL_S, what="it counts as second")
    box.process.send_signal(signal.SIGTERM)
    for victim in victims:
        victim.wait()
        assert [error["code"] for error in victim.errors] == ["shutting_down"]
        assert not victim.finished_properly
        assert victim.status == (200 if victim.body["stream"] else 503)
    assert box.process.wait(30) == 0
    assert not psutil.pid_exists(engine.pid)
