"""When a child is given up: it hangs, it was stopped, or it grows without end."""

import pytest

from appliance.vitals import Vitals
from appliance.watchdog import AWAY_S, STOPPED_S, Cause, Tolerance, Watchdog

MB = 1 << 20
HEALTHY = Vitals(stopped=False, rss_bytes=200 * MB, anonymous_bytes=100 * MB)
STOPPED = Vitals(stopped=True, rss_bytes=200 * MB, anonymous_bytes=100 * MB)
START = 1000.0
TICK = 0.25


def make_watchdog(timeout: float = 10.0, growth: int = 50 * MB) -> Watchdog:
    return Watchdog(Tolerance(timeout, growth), START, 100 * MB)


def watch(
    dog: Watchdog, seconds: float, vitals: Vitals | None = HEALTHY, *, heard: bool = False
) -> tuple[Cause | None, float]:
    """Looks every `TICK`; the first thing that is wrong, and when."""
    for tick in range(1, int(seconds / TICK) + 1):
        now = START + tick * TICK
        if heard:
            dog.heard(now)
        cause = dog.examine(now, vitals)
        if cause is not None:
            return cause, now - START
    return None, seconds


def test_child_that_answers_may_go_on() -> None:
    assert watch(make_watchdog(), 60.0, heard=True)[0] is None


@pytest.mark.parametrize("vitals", [HEALTHY, None])
def test_silence_longer_than_a_step_may_take_is_a_hang(vitals: Vitals | None) -> None:
    cause, after = watch(make_watchdog(timeout=10.0), 60.0, vitals)
    assert cause is not None
    assert cause.code == "engine_hung"
    assert after == 10.0 + TICK


def test_silence_counts_only_while_somebody_listened() -> None:
    dog = make_watchdog(timeout=10.0)
    assert dog.examine(START + 100.0, HEALTHY) is None
    assert dog.examine(START + 100.0 + TICK, HEALTHY) is None
    assert AWAY_S < 10.0


def test_child_stopped_by_a_signal_is_given_up_soon() -> None:
    cause, after = watch(make_watchdog(), 60.0, STOPPED)
    assert cause is not None
    assert "SIGSTOP" in cause.message
    assert after == STOPPED_S + TICK


def test_child_stopped_for_a_moment_may_go_on() -> None:
    dog = make_watchdog()
    now = START
    for vitals in [STOPPED, STOPPED, HEALTHY] * 4:
        now += TICK
        assert dog.examine(now, vitals) is None


def test_growth_beyond_the_limit_is_given_up() -> None:
    grown = Vitals(stopped=False, rss_bytes=400 * MB, anonymous_bytes=151 * MB)
    cause, _ = watch(make_watchdog(growth=50 * MB), 1.0, grown)
    assert cause is not None
    assert cause.code == "engine_memory"
    assert "51 MiB" in cause.message
    assert "engine.memory_growth_mb = 50" in cause.message


def test_growth_within_the_limit_and_of_shared_pages_is_fine() -> None:
    grown = Vitals(stopped=False, rss_bytes=900 * MB, anonymous_bytes=150 * MB)
    assert watch(make_watchdog(growth=50 * MB), 1.0, grown)[0] is None


def test_limit_of_zero_allows_any_growth() -> None:
    grown = Vitals(stopped=False, rss_bytes=900 * MB, anonymous_bytes=900 * MB)
    assert watch(make_watchdog(growth=0), 1.0, grown)[0] is None
