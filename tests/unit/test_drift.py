"""What a channel reads too much, found from samples whose truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_bridge.drift import DENSE, WINDOW, DriftWindow

SIGMA = 0.35


def noise(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, SIGMA, count)


def pushed(residuals: np.ndarray) -> DriftWindow:
    window = DriftWindow(SIGMA)
    window.push(residuals)
    return window


def test_without_a_reference_nothing_is_corrected() -> None:
    window = pushed(np.full(WINDOW, np.nan))
    drift = window.estimate()
    assert (drift.bias, drift.quality, drift.references) == (0.0, "none", 0)


def test_a_constant_offset_is_found_within_the_noise_of_its_mean() -> None:
    for seed in range(50):
        drift = pushed(2.0 + noise(seed, WINDOW)).estimate()
        assert drift.quality == "ok"
        assert abs(drift.bias - 2.0) < 4 * SIGMA / np.sqrt(WINDOW)


def test_outliers_move_nothing() -> None:
    residuals = noise(1, WINDOW)
    clean = pushed(residuals).estimate().bias
    spiked = residuals.copy()
    spiked[[5, 20, 41]] += [25.0, -40.0, 900.0]
    assert abs(pushed(spiked).estimate().bias - clean) < 0.1


def test_after_a_step_only_what_came_after_it_counts() -> None:
    residuals = noise(2, WINDOW)
    residuals[-8:] += 10 * SIGMA
    drift = pushed(residuals).estimate()
    assert drift.stepped
    assert abs(drift.bias - 10 * SIGMA) < SIGMA


def test_a_step_of_four_sigmas_is_followed_within_thirteen_samples() -> None:
    """At a look every 10 samples, 1 ms apart: the figure of docs/board.md."""
    delays = []
    for seed in range(64):
        rng = np.random.default_rng(seed)
        at = 100 + int(rng.integers(10))
        truth = np.where(np.arange(300) >= at, 4 * SIGMA, 0.0)
        residuals = truth + rng.normal(0.0, SIGMA, 300)
        window, estimates = DriftWindow(SIGMA), np.zeros(310)
        for begin in range(0, 300, 10):
            window.push(residuals[begin : begin + 10])
            estimates[begin + 10 : begin + 20] = window.estimate().bias
        good = np.abs(estimates[:300] - truth) <= max(0.8 * SIGMA, 0.5)
        delays.append(next(d for d in range(190) if good[at + d : at + d + 8].all()))
    assert np.percentile(delays, 50) <= 13
    assert np.percentile(delays, 95) <= 23


def test_a_drifting_channel_comes_near_its_noise() -> None:
    rng = np.random.default_rng(7)
    time = np.arange(20_000) / 1000
    drift = 2.0 * np.sin(time / 3.7) + np.cumsum(rng.normal(0, 0.002, len(time)))
    readings = drift + rng.normal(0.0, SIGMA, len(time))
    window, left = DriftWindow(SIGMA), []
    for begin in range(0, len(time), 10):
        bias = window.estimate().bias
        left.append(readings[begin : begin + 10] - bias)
        window.push(readings[begin : begin + 10])
    before = float(np.sqrt(np.mean(readings**2)))
    after = float(np.sqrt(np.mean(np.concatenate(left[50:]) ** 2)))
    assert before > 3 * after
    assert after < 1.15 * SIGMA


def test_few_references_are_followed_slowly_and_said_to_be_few() -> None:
    window = DriftWindow(SIGMA)
    rng = np.random.default_rng(3)
    for _ in range(40):
        batch = np.full(10, np.nan)
        batch[4] = 1.5 + rng.normal(0, SIGMA)
        window.push(batch)
    drift = window.estimate()
    assert drift.quality == "sparse"
    assert drift.references < DENSE
    assert abs(drift.bias - 1.5) < SIGMA


def test_one_far_reference_among_few_is_not_believed_and_two_are() -> None:
    window = DriftWindow(SIGMA)
    for value in [0.0] * 10 + [50.0]:
        window.push(np.array([np.nan] * 9 + [value]))
    assert abs(window.estimate().bias) < SIGMA
    window.push(np.array([np.nan] * 9 + [50.1]))
    assert window.estimate().bias > 10


def test_when_references_end_the_last_correction_holds() -> None:
    window = pushed(1.0 + noise(4, WINDOW))
    known = window.estimate().bias
    window.push(np.full(WINDOW, np.nan))
    held = window.estimate()
    assert (held.bias, held.quality, held.references) == (known, "holdover", 0)


def test_a_channel_without_noise_has_no_window() -> None:
    with pytest.raises(ValueError, match="noise"):
        DriftWindow(0.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200))
def test_whatever_comes_the_correction_lies_among_what_was_seen(values: list[float]) -> None:
    window = DriftWindow(SIGMA)
    window.push(np.array(values))
    bias = window.estimate().bias
    assert min(*values, 0.0) - 1e-6 <= bias <= max(*values, 0.0) + 1e-6


def test_samples_of_the_batch_in_which_a_step_lies_are_corrected_by_what_was_true_of_each() -> None:
    residuals = noise(3, WINDOW)
    residuals[-7:] += 8 * SIGMA
    window = pushed(residuals)
    drift = window.estimate()
    assert (drift.stepped, drift.since) == (True, 7)
    assert abs(drift.before) < SIGMA
    biases = window.biases(10)
    assert biases.tolist() == [drift.before] * 3 + [drift.bias] * 7


def test_without_a_step_all_of_a_batch_is_corrected_alike() -> None:
    window = pushed(1.0 + noise(4, WINDOW))
    drift = window.estimate()
    assert drift.before == drift.bias
    assert window.biases(100).tolist() == [drift.bias] * 100


def test_step_is_placed_right_where_references_are_missing() -> None:
    residuals = noise(5, WINDOW)
    residuals[-20:] += 10 * SIGMA
    residuals[::3] = np.nan
    window = pushed(residuals)
    assert abs(window.estimate().since - 20) <= 1


def test_retroactive_correction_follows_steps_of_four_sigmas_within_eight_samples() -> None:
    """The figure of docs/control.md, in sample time."""
    delays = []
    for seed in range(64):
        rng = np.random.default_rng(seed)
        at = 100 + int(rng.integers(10))
        truth = np.where(np.arange(300) >= at, 4 * SIGMA, 0.0)
        residuals = truth + rng.normal(0.0, SIGMA, 300)
        window, found = DriftWindow(SIGMA), np.zeros(300)
        for begin in range(0, 300, 10):
            window.push(residuals[begin : begin + 10])
            window.estimate()
            found[begin : begin + 10] = window.biases(10)
        near = np.abs(found - truth) <= 0.5
        delays.append(next(d for d in range(100) if near[at + d : at + d + 8].all()))
    assert np.percentile(delays, 95) <= 8
