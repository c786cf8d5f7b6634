"""The board's clock, told by its ticks."""

import random

import pytest

from firmware_bridge.clock import Clock


@pytest.mark.parametrize("ppm", [-80, 0, 35])
def test_clock_is_found_through_jitter(ppm: float) -> None:
    dice = random.Random(4)
    clock = Clock()
    rate = 1 + ppm * 1e-6
    for second in range(120):
        sent = 1000.0 + second * 0.983
        there = 0.0002 + dice.expovariate(1 / 0.0002)
        back = 0.0002 + dice.expovariate(1 / 0.004)  # the host reads late
        ticks = int((sent + there - 990.0) * rate * 1e6)
        clock.add(sent, sent + there + back, ticks)
    assert clock.fit is not None
    at = 1000.0 + 118
    error = clock.fit.host_time(int((at - 990.0) * rate * 1e6)) - at
    assert abs(error) < 0.0008
    assert abs(error) <= clock.fit.uncertainty


def test_ticks_are_extended_past_their_32_bits() -> None:
    clock = Clock()
    clock.add(1.0, 1.001, (1 << 32) + 5)
    assert clock.extend(10) == (1 << 32) + 10
    assert clock.extend(0xFFFFFFFF) == (1 << 32) - 1
