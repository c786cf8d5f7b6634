"""What the engine is told of budgets and order: only what is new, and never a stale one."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from appliance.config import ControlConfig
from appliance.control.budgets import Forecasting
from appliance.control.correction import ChannelState, ControlSnapshot, Correction
from appliance.engine.commands import Expect, Steer
from appliance.engine.expectation import read
from appliance.engine.reports import Stats
from appliance.expected import KNOTS, Table, moved, table_of
from appliance.forecast.hazard import EDGES, Lengths
from appliance.snapshot import EngineSnapshot
from appliance.steering import Steering, forecast_error
from tests.unit.forecast_parts import EVEN

STATS = Stats(kv_total=8192, a_used=1000, a_peak=1500, b_used=500, b_peak=800)
USUAL = Table((8, 64), (0.9, 0.4))


class Loop:
    """Does at once what is handed over."""

    closed = False

    def call_soon_threadsafe(self, call: Any, *args: Any) -> None:
        if self.closed:
            raise RuntimeError("closed")
        call(*args)


class Bench:
    """A steering whose surroundings the test turns."""

    def __init__(self, **config: Any) -> None:
        self.engine = EngineSnapshot(state="ready", pid=7, stats=STATS)
        self.batch, self.starts = 1, 0
        self.forecasting = Forecasting("ok")
        self.usual = USUAL
        self.told: list[Steer] = []
        self.loop = Loop()
        self.steering = Steering(
            ControlConfig(**config),
            engine=lambda: self.engine,
            batch=lambda: self.batch,
            starts=lambda: self.starts,
            forecaster=lambda: self.forecasting,
            usual=lambda: self.usual,
            tell=self.told.append,
        )
        loop: Any = self.loop
        self.steering.start(loop)

    def tick(self, times: int = 1, now: float = 100.0) -> Steer:
        for _ in range(times):
            self.steering.tick(now)
        return self.told[-1]

    def stats(self, **changes: Any) -> None:
        self.engine = changed(self.engine, stats=changed(self.engine.stats, **changes))


def test_engine_is_told_at_the_start_and_then_only_what_is_new() -> None:
    bench = Bench()
    assert len(bench.told) == 1, "before the first engine"
    steer = bench.tick(50)
    assert len(bench.told) == 2
    assert (steer.b_cells, steer.forecast, steer.policy) == (2048, True, "expected-cost")
    assert steer.expected.tokens == USUAL.tokens


def test_pool_b_gives_back_while_no_batch_request_is_there() -> None:
    bench = Bench()
    bench.tick()
    bench.batch = 0
    bench.stats(b_used=0, b_peak=0)
    assert bench.tick(200).b_cells == 0
    assert len(bench.told) < 40, "a message for each step of it, none in between"
    bench.batch = 1
    assert bench.tick().b_cells == 2048


def test_another_engine_is_parted_as_at_the_start() -> None:
    bench = Bench()
    bench.stats(a_used=5800, a_peak=7000)
    assert bench.tick().b_cells == 8192 - 7000
    bench.engine = EngineSnapshot(state="ready", pid=8, stats=changed(STATS, a_used=0, a_peak=0))
    assert bench.tick().b_cells == 2048


def test_queue_goes_by_arrival_while_there_is_a_reason_and_returns_by_itself() -> None:
    bench = Bench()
    bench.tick()
    bench.forecasting = Forecasting("uncalibrated")
    assert not bench.tick().forecast
    now = bench.steering.snapshot
    assert (now.order, now.policy, now.fallback) == ("fcfs", "expected-cost", "uncalibrated")
    bench.forecasting = Forecasting("ok")
    assert bench.tick().forecast
    assert bench.steering.snapshot.fallback == ""


def test_order_of_arrival_has_nothing_to_fall_back_from() -> None:
    bench = Bench(policy="fcfs")
    assert bench.tick().forecast, "predicted peaks are made of forecasts whatever the order is"
    bench.forecasting = Forecasting("uncalibrated")
    assert not bench.tick().forecast
    assert (bench.steering.snapshot.order, bench.steering.snapshot.fallback) == ("fcfs", "")


def test_shuffled_order_is_by_forecasts_too() -> None:
    bench = Bench(policy="shuffled")
    assert bench.tick().forecast
    assert bench.steering.snapshot.order == "shuffled"


def test_worse_forecasts_are_heeded_within_a_second() -> None:
    bench = Bench()
    errors = [1.0]
    bench.steering._error = lambda: errors[-1]
    assert bench.tick().b_cells == 2048
    errors.append(2.0)
    assert bench.tick(now=100.5).b_cells == 2048
    assert bench.tick(now=101.0).b_cells == 1024


def test_small_changes_of_tau_are_not_told() -> None:
    bench = Bench()
    bench.stats(a_peak=6000)
    bench.tick()
    told = len(bench.told)
    bench.starts = 5
    bench.tick()
    assert len(bench.told) == told
    bench.stats(overflows=1)
    assert bench.tick().tau > 0.64


def test_new_lengths_of_all_requests_are_told() -> None:
    bench = Bench()
    bench.tick()
    bench.usual = Table((8, 64), (0.9, 0.5))
    assert bench.tick().expected.survival == (0.9, 0.5)


def test_loop_that_has_closed_ends_no_tick() -> None:
    bench = Bench()
    bench.loop.closed = True
    bench.steering.tick(100.0)


async def test_ticks_of_a_thread_reach_the_event_loop() -> None:
    told: list[Steer] = []
    steering = Steering(
        ControlConfig(),
        engine=lambda: EngineSnapshot(pid=1, stats=STATS),
        batch=lambda: 1,
        starts=lambda: 0,
        forecaster=lambda: Forecasting("ok"),
        usual=lambda: USUAL,
        tell=told.append,
    )
    steering.tick(1.0)
    assert told == [], "nobody is told anything before the start"
    steering.start(asyncio.get_running_loop())
    await asyncio.to_thread(steering.tick, 1.0)
    await asyncio.sleep(0)
    assert [steer.b_cells for steer in told] == [0, 2048]


# -- how far forecasts are off ---------------------------------------------------------------------


def channel(n: int, std: float | None, *, kind: Any = "tokens", valid: bool = True) -> ChannelState:
    correction = Correction("m/chat", valid=valid, n=n, std=std, sigma=0.5)
    return ChannelState(kind, "m/chat", "log", correction, ())


def test_forecast_error_is_that_of_all_valid_token_channels_by_their_samples() -> None:
    channels = (
        channel(30, 0.5), channel(10, 1.0), channel(64, 9.0, kind="sensor"),
        channel(5, 9.0, valid=False), channel(9, None),
    )  # fmt: skip
    assert forecast_error(ControlSnapshot(channels=channels)) == pytest.approx(1.25)
    assert forecast_error(ControlSnapshot()) is None
    assert forecast_error(ControlSnapshot(channels=(channel(31, 1.0),))) is None, "too few"
    unknown = replace(channel(64, 1.0), correction=Correction("m/chat", valid=True, n=64, std=1.0))
    assert forecast_error(ControlSnapshot(channels=(unknown,))) is None


# -- tables ----------------------------------------------------------------------------------------


def test_table_is_the_distribution_at_its_knots() -> None:
    table = table_of(EVEN)
    assert table is not None
    assert list(table.tokens) == sorted(set(table.tokens))
    assert set(table.tokens) <= {0, *KNOTS}
    assert table.survival == pytest.approx(EVEN.survival(np.array(table.tokens)), abs=1e-4)


def test_table_of_a_running_answer_begins_where_it_is() -> None:
    table = table_of(EVEN.residual(300.0))
    assert table is not None
    assert (table.tokens[0], table.survival[0]) == (300, 1.0)
    assert all(a >= b for a, b in zip(table.survival, table.survival[1:], strict=False))


@pytest.mark.parametrize("given", [0.0, 50.0])
def test_table_of_an_answer_that_surely_ends_says_so(given: float) -> None:
    lengths = Lengths(np.where(EDGES[1:] >= 100, 1 - 1e-6, 1e-6), given=given)
    table = table_of(lengths)
    assert table is not None
    assert table.survival[-1] == 0.0
    found = read(Expect("", table.tokens, table.survival))
    assert found is not None
    assert found.remaining_quantile(int(given), 0.9, 4000) < 150


@pytest.mark.parametrize(
    "broken",
    [
        Lengths(np.full(24, math.nan)),
        Lengths(np.full(24, 0.1), log_factor=math.nan),
        Lengths(np.full(24, 0.1), given=math.nan),
    ],
)
def test_distribution_that_is_none_has_no_table(broken: Lengths) -> None:
    assert table_of(broken) is None


def test_a_median_has_moved_from_a_quarter_on_and_never_by_a_few_tokens() -> None:
    assert moved(400, 300)
    assert not moved(400, 310)
    assert not moved(20, 35)
