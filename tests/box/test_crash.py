"""The engine dies, hangs, is stopped or grows, and the daemon goes on: it answers all the while,
each victim learns of it once, and what waited is answered by the next engine.
"""

import re
import signal
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import psutil
import pytest

from tests.box.asking import Asked, ask, check_complete
from tests.box.conftest import Start
from tests.box.probing import Prober, check_never_back
from tests.box.running import RunningBox, title_of

ENGINE = {"max_sequences": 10, "restart_window_s": 1, "context": 8192}
"""Deaths are forgotten fast, so that each test finds the shortest back-off."""
SHARE = 780
"""Tokens for which ten have room at a time."""
LONG = 7000
"""Tokens that no victim reaches."""
HEALTHY_S = 0.1
HEALTHY_AT_WORST_S = 1.0
"""Beyond what the machine is late itself: those that run tests are shared."""


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """One daemon whose engines die often. It lets in what could not all go on to its limit: ten
    answers that no victim comes to the end of."""
    home, control = tmp_path_factory.mktemp("frail"), {"admission": "fill"}
    with RunningBox.start(home, engine=ENGINE, control=control) as running:
        yield running


def engine_facts(box: RunningBox) -> dict[str, Any]:
    found: dict[str, Any] = box.admin("GET", "/admin/status").json()
    return found


def restarts(box: RunningBox) -> int:
    return int(engine_facts(box)["engine"]["restarts"])


def wait_for_restart(box: RunningBox, before: int) -> None:
    box.wait_until(lambda: restarts(box) > before, what="the death is noticed")
    box.wait_ready()


def check_victim(victim: Asked, code: str) -> None:
    """One typed error, and nothing after it."""
    victim.wait()
    assert victim.problem == ""
    assert [(error["type"], error["code"]) for error in victim.errors] == [("engine_error", code)]
    assert "error" in victim.events[-1]
    assert not victim.finished_properly
    assert victim.status == (200 if victim.body["stream"] else 500)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (signal.SIGSEGV, "engine_crashed"),
        (signal.SIGABRT, "engine_crashed"),
        (signal.SIGKILL, "engine_crashed"),
        (signal.SIGSTOP, "engine_hung"),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else None,
)
def test_engine_killed_under_eight_streams_is_replaced_while_the_daemon_answers(
    frail: RunningBox, how: signal.Signals, code: str
) -> None:
    frail.wait_ready()
    before = restarts(frail)
    with (
        Prober(frail, "/health") as health,
        Prober(frail, "/readyz") as ready,
        Prober(frail, "/metrics") as metrics,
    ):
        streams = [ask(frail, f"Story {number}:", max_tokens=SHARE) for number in range(8)]
        whole = [ask(frail, f"Poem {number}:", max_tokens=SHARE, stream=False) for number in (1, 2)]
        for stream in streams:
            stream.wait_for_tokens(2)
        frail.wait_for_running(10)
        waiting = [ask(frail, "Wait", max_tokens=8, stream=stream) for stream in (True, False)]
        frail.wait_for_waiting(2)
        frail.engine().send_signal(how)
        for victim in (*streams, *whole):
            check_victim(victim, code)
        for request in waiting:
            check_complete(frail, request)
        wait_for_restart(frail, before)
        check_complete(frail, ask(frail))
        frail.wait_until(lambda: ready.answers[-1][0] == 200, what="ready again")
    assert (health.problem, ready.problem, metrics.problem) == ("", "", "")
    assert health.statuses == [200]
    assert ready.statuses == [200, 503, 200]
    took = [seconds for _, seconds, _ in health.answers]
    assert statistics.median(took) < HEALTHY_S + statistics.median(health.late)
    assert max(took) < HEALTHY_AT_WORST_S + 10 * max(health.late)
    check_never_back([body for _, _, body in metrics.answers])
    assert restarts(frail) == before + 1


def test_request_that_had_started_is_never_run_again(frail: RunningBox) -> None:
    """It may be the very thing that kills the engine."""
    frail.wait_ready()
    before = restarts(frail)
    poison = ask(frail, max_tokens=LONG, return_progress=True)
    frail.wait_until(lambda: poison.events, what="it has started")
    frail.engine().kill()
    check_victim(poison, "engine_crashed")
    steps = engine_facts(frail)["stats"]["steps"]
    wait_for_restart(frail, before)
    assert frail.admin("GET", "/admin/requests").json()["requests"] == []
    assert engine_facts(frail)["stats"]["steps"] == steps, "nothing was computed since"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_official_client_raises_the_typed_error(frail: RunningBox, stream: bool) -> None:
    frail.wait_ready()
    before = restarts(frail)
    client = frail.client()

    def read() -> Any:
        answer = client.completions.create(
            model="default",
            prompt="Once",
            max_tokens=LONG,
            stream=stream,
            extra_body={"ignore_eos": True},
        )
        return list(answer) if stream else answer

    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read)
        frail.wait_for_running(1)
        frail.engine().kill()
        error = reading.exception(60)
    assert isinstance(error, openai.APIError)
    assert (error.type, error.code) == ("engine_error", "engine_crashed")
    wait_for_restart(frail, before)


def test_client_that_left_the_queue_while_the_engine_hung_is_not_served(frail: RunningBox) -> None:
    frail.wait_ready()
    before = restarts(frail)
    frail.admin("POST", "/admin/hold")
    gone, stays = ask(frail, max_tokens=LONG), ask(frail, max_tokens=8)
    frail.wait_for_waiting(2)
    frail.engine().suspend()
    gone.hang_up()
    gone.wait()
    wait_for_restart(frail, before)
    frail.wait_until(
        lambda: [row["max_tokens"] for row in frail.requests()] == [8], what="one is left"
    )
    frail.admin("POST", "/admin/release")
    check_complete(frail, stays)


def test_deadline_holds_while_there_is_no_engine(frail: RunningBox) -> None:
    frail.wait_ready()
    before = restarts(frail)
    frail.admin("POST", "/admin/hold")  # should it come too late for this engine, no other takes it
    frail.engine().suspend()  # nothing notices for a second, and starting takes another
    late = ask(frail, stream=False, deadline_s=0.3).wait()
    assert [error["code"] for error in late.errors] == ["deadline_exceeded"]
    wait_for_restart(frail, before)
    frail.admin("POST", "/admin/release")


def test_restart_by_an_operator_ends_what_runs_and_keeps_what_waits(frail: RunningBox) -> None:
    frail.wait_ready()
    before = restarts(frail)
    running = ask(frail, max_tokens=LONG).wait_for_tokens()
    frail.admin("POST", "/admin/hold")
    waiting = ask(frail, max_tokens=8)
    frail.wait_for_waiting(1)
    assert frail.admin("POST", "/admin/engine/restart", json={"reason": "test"}).status_code == 200
    check_victim(running, "engine_restarted")
    wait_for_restart(frail, before)
    assert engine_facts(frail)["engine"]["paused"], "still held, as before the restart"
    frail.admin("POST", "/admin/release")
    check_complete(frail, waiting)


def test_log_that_consoles_read_has_the_engines_own_lines(frail: RunningBox) -> None:
    def lines() -> list[dict[str, Any]]:
        found = frail.admin("GET", "/admin/log?filter=appliance.engine").json()["lines"]
        return [line for line in found if line["text"].startswith("the model is open")]

    frail.wait_ready()
    frail.wait_until(lines, what="the line of an engine")
    before, last = restarts(frail), lines()[-1]["seq"]  # the one that runs may have one to come
    frail.engine().kill()
    wait_for_restart(frail, before)
    # Not counted: old lines fall out as new ones come.
    frail.wait_until(lambda: lines()[-1]["seq"] > last, what="the line of the next one")
    assert lines()[-1]["text"] in frail.log, "and on standard error"


def test_engine_is_kept_when_it_was_the_daemon_that_stood_still(start_box: Start) -> None:
    """As in a frozen container: silence is nobody's fault when nobody listened."""
    box = start_box(engine={"step_timeout_s": 3})
    engine = box.engine()
    daemon = psutil.Process(box.process.pid)
    daemon.suspend()
    stopped_at = time.monotonic()
    box.wait_until(lambda: time.monotonic() > stopped_at + 5, what="five seconds pass")
    daemon.resume()
    check_complete(box, ask(box, max_tokens=60))
    assert box.engine().pid == engine.pid
    assert restarts(box) == 0


def test_step_that_takes_longer_than_allowed_is_a_hang(start_box: Start) -> None:
    size = {"context": 8192, "batch": 8192, "ubatch": 8192, "prefill_tokens": 8192}
    box = start_box(engine={"step_timeout_s": 1, **size})
    neighbour = ask(box, max_tokens=LONG).wait_for_tokens(2)
    long_step = ask(box, [1000 + number for number in range(6000)], stream=False)
    check_victim(long_step, "engine_hung")
    check_victim(neighbour, "engine_hung")
    assert "made no progress" in long_step.errors[0]["message"]
    box.wait_ready()
    check_complete(box, ask(box))


def test_engine_that_grows_beyond_its_allowance_is_restarted(start_box: Start) -> None:
    """The first long prompt makes the engine use buffers that it only reserved: some MiB."""
    box = start_box(engine={"memory_growth_mb": 3})
    with Prober(box, "/metrics") as metrics:
        growing = ask(box, "one two three " * 450, max_tokens=LONG)
        check_victim(growing, "engine_memory")
        assert "engine.memory_growth_mb = 3" in growing.errors[0]["message"]
        wait_for_restart(box, 0)
        check_complete(box, ask(box, max_tokens=2))
    assert metrics.problem == ""
    check_never_back([body for _, _, body in metrics.answers])


def test_any_growth_is_allowed_where_the_limit_is_zero(start_box: Start) -> None:
    box = start_box(engine={"memory_growth_mb": 0})
    check_complete(box, ask(box, grammar="root ::= [a-z ]{500}", max_tokens=60))
    assert restarts(box) == 0


def test_box_whose_engine_dies_too_often_gives_up_and_says_why(start_box: Start) -> None:
    box = start_box(engine={"restarts": 2, "restart_window_s": 60})
    box.engine().kill()
    wait_for_restart(box, 0)
    victim = ask(box, max_tokens=LONG).wait_for_tokens()
    box.engine().kill()
    victim.wait()
    assert [error["code"] for error in victim.errors] == ["engine_crashed"]
    assert box.process.wait(60) == 70
    assert re.search(r"giving up: the engine died 2 times within 60 s.*SIGKILL", box.log)


def children(box: RunningBox) -> dict[str, psutil.Process]:
    """The daemon's children by their titles."""
    found = psutil.Process(box.process.pid).children(recursive=True)
    return {title_of(child): child for child in found}


def test_children_die_with_a_daemon_that_is_killed_and_the_next_one_starts(tmp_path: Path) -> None:
    with RunningBox.start(tmp_path) as box:
        victims = children(box)
        assert set(victims) == {"steelyard: engine", "steelyard: prepare"}
        port = urlsplit(box.url).port
        running = ask(box, max_tokens=LONG).wait_for_tokens()
        box.process.kill()
        box.process.wait()
        _, alive = psutil.wait_procs(list(victims.values()), timeout=60)
        assert alive == []
        running.wait()
        assert not running.finished_properly
    with RunningBox.start(tmp_path, server={"port": port}) as box:
        assert urlsplit(box.url).port == port
        check_complete(box, ask(box))


def test_prepare_process_that_dies_is_replaced_and_its_job_is_done(box: RunningBox) -> None:
    prepare = children(box)["steelyard: prepare"]
    prepare.suspend()
    in_flight = [ask(box, f"Number {number}", max_tokens=4) for number in range(3)]
    box.wait_until(lambda: all(request.sent_at for request in in_flight), what="all are sent")
    before = box.http.get("/readyz").json()["prepare"]["restarts"]
    prepare.kill()
    for request in in_flight:
        check_complete(box, request)
    check_complete(box, ask(box))
    now = box.http.get("/readyz").json()
    assert now["prepare"] == {"alive": True, "restarts": before + 1}
    assert restarts(box) == now["engine"]["restarts"], "the engine had no part in it"


def test_idle_prepare_process_that_dies_is_missed_before_the_next_request(box: RunningBox) -> None:
    before = children(box)["steelyard: prepare"]
    before.kill()
    box.wait_until(
        lambda: children(box).get("steelyard: prepare", before).pid != before.pid,
        what="a new prepare process",
    )
    box.wait_ready()
    check_complete(box, ask(box))


def test_steps_smaller_than_the_number_of_sequences_serve_them_all(start_box: Start) -> None:
    """llama.cpp aborts when its batch has no room for one token of each sequence."""
    box = start_box(engine={"batch": 4, "ubatch": 4, "max_sequences": 8})
    requests = [ask(box, f"Number {number}", max_tokens=30) for number in range(8)]
    for request in requests:
        check_complete(box, request)
    assert restarts(box) == 0
