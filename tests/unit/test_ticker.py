"""The control loop's beat: deadlines that do not drift, and work that may fail."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.ticker import FAILURES, PERIOD_S, Beat, Ticker, ahead_of_all

PATIENCE_S = 20.0


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def beaten(delays: list[tuple[float, float]]) -> Beat:
    """`delays`: of each tick, how late it wakes and how long it works, seconds."""
    beat, now = Beat(0.0), 0.0
    for late, cost in delays:
        now = max(now, beat.due) + late
        beat.begins(now)
        beat.ends(now, now + cost)
        now += cost
    return beat


def test_deadlines_are_multiples_of_the_period_from_the_start() -> None:
    beat = beaten([(0.003, 0.001)] * 1000)
    assert beat.due == pytest.approx(1001 * PERIOD_S)
    assert (beat.ticks, beat.overruns, beat.skipped) == (1000, 0, 0)


def test_tick_that_is_a_little_late_is_made_up_for() -> None:
    beat = beaten([(0.0, 0.0), (0.0, 0.013), (0.0, 0.0)])
    assert (beat.ticks, beat.overruns, beat.skipped) == (3, 1, 0)
    assert max(beat.late) == pytest.approx(0.003)


def test_ticks_that_were_missed_are_skipped_and_counted() -> None:
    beat = beaten([(0.0, 0.0), (3.004, 0.0), (0.0, 0.0)])
    assert (beat.ticks, beat.skipped) == (3, 300)
    assert beat.due == pytest.approx(304 * PERIOD_S)
    assert max(beat.late) == pytest.approx(3.004)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 0.2)), min_size=1, max_size=100))
def test_every_deadline_is_kept_or_counted(delays: list[tuple[float, float]]) -> None:
    beat = beaten(delays)
    assert round(beat.due / PERIOD_S) == 1 + beat.ticks + beat.skipped
    assert beat.ticks == len(delays)


def test_quantiles_are_of_the_newest_ticks() -> None:
    beat = beaten([(0.008, 0.0)] * 2048 + [(0.001, 0.0005)] * 2048)
    told = beat.snapshot(9.0, "rr", "")
    assert told.late_p50_s == pytest.approx(0.001)
    assert told.late_p99_s == pytest.approx(0.001)
    assert told.cost_p50_s == pytest.approx(0.0005)
    assert (told.mode, told.at) == ("rr", 9.0)


def test_work_is_done_on_a_thread_of_its_own_in_order() -> None:
    seen: list[tuple[str, str]] = []
    ticker = Ticker(
        0.001,
        [(name, lambda now, n=name: seen.append((n, threading.current_thread().name)))
         for name in ("a", "b")],
    )  # fmt: skip
    ticker.start()
    until(lambda: len(seen) >= 6)
    ticker.stop()
    assert seen[:4] == [("a", "ticker"), ("b", "ticker")] * 2


def test_setting_the_time_of_day_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    # Back by a day at each look (log lines look, too).
    monkeypatch.setattr(time, "time", lambda: -86_400.0 * len(seen))
    ticker = Ticker(0.001, [("one", seen.append)], first=lambda: False)
    ticker.start()
    until(lambda: len(seen) >= 20)
    ticker.stop()
    assert seen == sorted(seen)


def test_work_that_keeps_failing_is_shut_off_and_the_other_goes_on() -> None:
    calls: list[float] = []
    broken: list[float] = []

    def fail(now: float) -> None:
        broken.append(now)
        raise ValueError("no")

    ticker = Ticker(0.001, [("steering", fail), ("corrections", calls.append)])
    ticker.start()
    until(lambda: "steering" in ticker.snapshot.degraded)
    ticker.stop()
    assert len(broken) == FAILURES
    assert len(calls) > FAILURES
    assert "restart the box" in ticker.snapshot.degraded.lower()


def test_work_that_fails_now_and_then_stays_on() -> None:
    calls: list[float] = []

    def sometimes(now: float) -> None:
        calls.append(now)
        if len(calls) % 3:
            raise ValueError("no")

    ticker = Ticker(0.001, [("steering", sometimes)])
    ticker.start()
    until(lambda: len(calls) > 5 * FAILURES)
    ticker.stop()
    assert ticker.snapshot.degraded == ""


def test_how_it_is_scheduled_is_told() -> None:
    ahead, behind = Ticker(first=lambda: True), Ticker(first=lambda: False)
    assert ahead.start() == "rr"
    assert behind.start() == "plain"
    behind.niced()
    until(lambda: behind.snapshot.ticks > 0)
    for ticker in (ahead, behind):
        ticker.stop()
    assert (ahead.snapshot.mode, behind.snapshot.mode) == ("rr", "nice")


def test_refused_priority_leaves_the_thread_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    assert ahead_of_all() is False


def test_ticker_that_no_longer_ticks_is_told_by_whoever_reads_it() -> None:
    held = threading.Event()
    ticker = Ticker(0.001, [("slow", lambda now: held.wait(PATIENCE_S) and None)], still_s=0.05)
    ticker.start()
    until(lambda: "has not ticked" in ticker.snapshot.degraded)
    held.set()
    ticker.stop()


_STOPPED = """
import sys, time
from appliance.ticker import Ticker
ticker = Ticker(0.01, [("one", lambda now: None)], first=lambda: False)
ticker.start()
print("on", flush=True)
sys.stdin.readline()
begun = ticker.beat.ticks
while ticker.beat.ticks < begun + 3:
    time.sleep(0.005)
print(ticker.beat.skipped, flush=True)
"""


def test_process_that_was_stopped_skips_what_it_missed_and_goes_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _STOPPED],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 0.3)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        skipped = int(process.stdout.readline())
    assert skipped >= 20
