"""Counts, rates and percentiles of the last minute: right to the bucket, and bounded in memory."""

import random

import pytest

from appliance.observe.pulse import Pulse
from appliance.observe.window import Meter, Recent, Spread

SHARES = (0.5, 0.99)


def spread_of(values: list[float], at: float = 1000.0) -> Spread:
    spread = Spread()
    for value in values:
        spread.add(value, at)
    return spread


def test_percentiles_are_exact_to_their_bucket() -> None:
    draw = random.Random(7)
    values = [draw.lognormvariate(4, 1.5) for _ in range(5000)]
    p50, p99 = spread_of(values).quantiles(SHARES, 1000.0)
    ordered = sorted(values)
    assert p50 == pytest.approx(ordered[2499], rel=0.026)
    assert p99 == pytest.approx(ordered[4949], rel=0.026)


def test_one_value_is_every_percentile() -> None:
    low, high = spread_of([42.0]).quantiles(SHARES, 1000.0)
    assert low == high == pytest.approx(42.0, rel=0.026)


def test_without_values_percentiles_are_unknown() -> None:
    assert Spread().quantiles(SHARES, 1000.0) == [None, None]


def test_values_leave_the_window_after_a_minute() -> None:
    spread = spread_of([10.0], at=1000.0)
    spread.add(500.0, 1050.0)
    assert spread.quantiles((0.0,), 1059.0)[0] == pytest.approx(10.0, rel=0.026)
    assert spread.quantiles((0.0,), 1063.0)[0] == pytest.approx(500.0, rel=0.026)
    assert spread.quantiles(SHARES, 1200.0) == [None, None]


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 1e12])
def test_values_out_of_range_count_as_the_nearest(value: float) -> None:
    (found,) = spread_of([value]).quantiles((0.5,), 1000.0)
    assert found is not None
    assert 0.01 <= found < 1e7


def test_memory_does_not_grow_with_what_happens() -> None:
    spread, recent = Spread(), Recent()
    for number in range(20_000):
        spread.add(number % 900 + 1.0, number * 0.01)
        recent.add(number * 0.01)
    assert len(spread._slices) <= 31
    assert len(recent._slices) <= 61


def test_events_of_the_last_minute_are_counted() -> None:
    recent = Recent()
    recent.add(100.0)
    recent.add(130.5, 2)
    assert recent.count(131.0) == 3
    assert recent.count(161.0) == 2
    assert recent.count(200.0) == 0


def test_a_meter_tells_how_fast_a_counter_grows_now() -> None:
    meter = Meter(5.0)
    assert meter.per_s() is None
    for tenth in range(101):
        meter.see(20.0 * tenth if tenth <= 50 else 1000.0, tenth / 10)
        if tenth == 50:
            assert meter.per_s() == pytest.approx(200.0)
    assert meter.per_s() == 0.0


def test_a_meter_looked_at_seldom_spans_its_last_two_looks() -> None:
    meter = Meter(5.0)
    meter.see(0.0, 0.0)
    meter.see(100.0, 20.0)
    meter.see(300.0, 40.0)
    assert meter.per_s() == pytest.approx(10.0)


def test_a_counter_that_starts_again_is_another_one() -> None:
    meter = Meter(5.0)
    meter.see(500.0, 0.0)
    meter.see(3.0, 1.0)
    assert (meter.per_s(), meter.gain()) == (None, 0.0)


def test_refusals_and_failures_are_told_apart() -> None:
    pulse = Pulse()
    pulse.refuse("queue_full", 10.0)
    pulse.refuse("rate_limit_exceeded", 10.0)
    pulse.close("stop", 12, 11.0)
    pulse.close("failed", 3, 11.0)
    counts = [w.count(12.0) for w in (pulse.refused, pulse.queue_full, pulse.failed, pulse.ended)]
    assert counts == [2, 1, 1, 2]
    assert pulse.tokens_ledger == 15
