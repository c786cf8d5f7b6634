"""However and whenever a request is cancelled, its place is free within one engine step, and those
that ran beside it are answered in full.

Time is counted in engine steps, read from the engine's own counters, not in seconds.
"""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from appliance.daemon import SAME_SIGNAL_S
from tests.box.asking import Asked, ask, check_complete
from tests.box.conftest import Start
from tests.box.running import RunningBox

ENGINE = {"draft_tokens": 0, "prefill_tokens": 8, "context": 8192}
"""One token a step and neighbour, and a prompt takes many steps."""
PROMPT = [1000 + number for number in range(4000)]
"""500 steps beside neighbours: longer than any deadline here."""
VICTIM = 801
"""Tokens that a victim asks for, and nobody else: it is known by that."""
STEPS = 2
"""The step that runs when the cancellation arrives, and the one in which this test notices."""
ATTEMPTS = 10
"""The machine is shared, and asking takes time in which steps go by: the best attempt counts. A
place that were held for longer would be so in every attempt."""
TOO_MANY = 3000
"""Tokens of neighbours: no machine is that fast."""


@dataclass(slots=True)
class Pace:
    """What suits this machine, found out by trying."""

    neighbours: int = 200
    """Tokens of those who run beside a victim: they must outlast it."""
    deadline_s: float = 0.7
    """Long enough for a victim to get into its state."""


STATES = ("queued", "prefill", "decode")
WAYS = ("disconnect", "deadline", "operator")


@pytest.fixture(scope="module")
def pace() -> Pace:
    return Pace()


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
        self._spelling = ask(box, grammar=grammar, ignore_eos=False, max_tokens=2 * tokens)
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


def start_victim(box: RunningBox, state: str, company: int = 0, **fields: Any) -> Asked:
    """A request that is in that state when this returns, as `company` others like it are, or over
    already: because of its deadline."""
    if state == "queued":
        box.admin("POST", "/admin/hold")
    prompt = PROMPT if state == "prefill" else "Once upon a time"
    victim = ask(box, prompt, max_tokens=VICTIM, cache_prompt=False, **fields)
    wanted = "waiting" if state == "queued" else "running"

    def reached() -> bool:
        found = [row for row in victims(box) if row["state"] == wanted]
        told = victim.status == 200 or not victim.body["stream"]
        return victim.over or (len(found) == company + 1 and told)

    box.wait_until(reached, what=f"the victim is {state}")
    if state == "decode":
        goal = stats(box)["steps"] + 2
        box.wait_until(lambda: stats(box)["steps"] >= goal, what="the victim decodes")
    return victim


def victims(box: RunningBox) -> list[dict[str, Any]]:
    return [row for row in box.requests() if row["max_tokens"] == VICTIM]


def cancel(box: RunningBox, victim: Asked, way: str, deadline: float) -> int | None:
    """Cancels it in that way; returns after which step, None if it had ended before."""
    if way == "deadline":
        steps = None
        while time.monotonic() < victim.sent_at + deadline:
            steps = int(stats(box)["steps"])
        return steps
    (row,) = victims(box)
    steps = int(stats(box)["steps"])
    if way == "disconnect":
        victim.hang_up()
    else:
        answer = box.admin("DELETE", f"/admin/requests/{row['id']}")
        assert answer.json()["status"] == "cancelled"
    return steps


def steps_held(
    box: RunningBox, neighbours: Neighbours, stream: bool, state: str, way: str, pace: Pace
) -> tuple[int, int] | None:
    """Runs one victim to its end; returns for how many steps it kept its place, at least and at
    most: steps go by between two looks. None where the machine was too fast or too slow to tell:
    `pace` is a better one then."""
    limit = {"deadline_s": pace.deadline_s} if way == "deadline" else {}
    try:
        victim = start_victim(box, state, stream=stream, **limit)
        before = None if victim.over else cancel(box, victim, way, pace.deadline_s)
        if before is None:
            pace.deadline_s *= 2
            return None
        seen = before
        while (now := stats(box))["running"] + now["waiting"] > len(neighbours):
            seen = int(now["steps"])
            assert seen - before < 1000, "its place is never free"
        if not neighbours.running:
            pace.neighbours *= 2
            return None
        check_outcome(victim.wait(), state, way)
        return seen - before, int(now["steps"]) - before
    finally:
        victim.hang_up()
        victim.wait()
        box.admin("POST", "/admin/release")
        box.wait_until(lambda: not victims(box), what="nothing of it is left")


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
    crowded: RunningBox, pace: Pace, stream: bool, state: str
) -> None:
    neighbours = Neighbours(crowded, pace.neighbours)
    for way in WAYS:
        held: list[tuple[int, int]] = []
        while len(held) < ATTEMPTS and (not held or held[-1][1] > STEPS):
            assert pace.neighbours < TOO_MANY, f"{way}: it cannot be told, {pace}"
            steps = steps_held(crowded, neighbours, stream, state, way, pace)
            if steps is None:
                neighbours.check_complete()
                neighbours = Neighbours(crowded, pace.neighbours)
            else:
                held.append(steps)
        assert min(held)[0] <= STEPS, f"{way}: held its place for {held} steps"
    neighbours.check_complete()


def test_client_that_hangs_up_is_counted_as_such(crowded: RunningBox) -> None:
    def count() -> float:
        wanted = 'steelyard:requests_total{outcome="disconnected",route="/v1/completions"}'
        lines = crowded.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(wanted))

    before = count()
    asked = ask(crowded, max_tokens=VICTIM).wait_for_tokens()
    asked.hang_up()
    crowded.wait_until(lambda: count() == before + 1, what="the disconnection is counted")


def test_nothing_is_left_behind_by_cancelled_requests(crowded: RunningBox) -> None:
    crowded.wait_idle()
    assert crowded.requests() == []
    now = stats(crowded)
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
    neighbours = Neighbours(box, tokens=200)
    asked = [start_victim(box, state, count, stream=one) for count, one in enumerate(streams)]
    box.process.send_signal(signal.SIGTERM)
    box.wait_until(lambda: box.http.get("/readyz").status_code == 503, what="it stops")
    told_at = time.monotonic()
    neighbours.check_complete()
    assert not any(victim.over for victim in asked)
    box.wait_until(lambda: time.monotonic() > told_at + SAME_SIGNAL_S, what="it counts as second")
    box.process.send_signal(signal.SIGTERM)
    for victim in asked:
        victim.wait()
        assert [error["code"] for error in victim.errors] == ["shutting_down"]
        assert not victim.finished_properly
        assert victim.status == (200 if victim.body["stream"] else 503)
    assert box.process.wait(60) == 0
    assert not psutil.pid_exists(engine.pid)
