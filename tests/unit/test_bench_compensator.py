"""The compensator's benchmark: its scenes, and what it measures of them."""

import math

import numpy as np
import pytest

from bench.compensator_sensors import (
    NEVER,
    SIGMA_MV,
    STATIC_MV,
    Scene,
    as_steps,
    left,
    scene,
    static,
)
from bench.compensator_sensors import causal as causally
from bench.compensator_sensors import retroactive as retroactively
from bench.compensator_tokens import followed, simulated, tried


def test_scene_that_is_not_corrected_is_off_by_what_it_is_scaled_to() -> None:
    scenes = [scene(seed, 12.0) for seed in range(2)]
    assert left(scenes, static).rms_mv == pytest.approx(STATIC_MV, abs=0.02)
    assert any(one.steps for one in scenes)


def test_corrections_are_six_times_nearer_and_retroactive_ones_nearer_still() -> None:
    scenes = [scene(seed, 12.0) for seed in range(2)]
    causal, late = left(scenes, causally), left(scenes, retroactively)
    assert causal.rms_mv <= STATIC_MV / 5.6
    assert late.rms_mv < causal.rms_mv
    assert late.delay_p95 <= 8


def test_correction_that_knows_the_error_leaves_the_noise_and_no_delay() -> None:
    found = left([scene(3, 12.0)], lambda of: of.error)
    assert found.rms_mv == pytest.approx(SIGMA_MV, rel=0.02)
    assert (found.error_mv, found.delay_max) == (0.0, 0.0)


def test_step_that_is_never_followed_counts_as_the_longest_delay() -> None:
    zeros, steps = np.zeros(6000), ((3000, 5.0),)
    off = np.where(np.arange(6000) >= 3000, 5.0, 0.0)
    flat = Scene(zeros, off, off, zeros, zeros > 0, zeros > 0, steps)
    assert left([flat], lambda of: np.zeros(6000)).delay_max == NEVER


def test_scene_in_a_converter_s_steps_differs_by_half_a_step_at_most() -> None:
    plain = scene(4, 3.0)
    coarse = as_steps(plain, 0.1)
    assert np.abs(coarse.reading - plain.reading).max() <= 0.05 + 1e-9
    assert np.isnan(coarse.told).sum() == np.isnan(plain.told).sum()


def test_drift_of_thirty_percent_is_corrected_within_64_answers() -> None:
    found = tried(simulated(0.3), orders=4)
    assert max(found.calm) <= 1.02
    for plain, corrected in zip(found.plain, found.corrected, strict=True):
        assert abs(plain) > found.dead_band
        assert abs(corrected) <= found.dead_band


def test_correction_is_told_before_the_answer_that_it_is_for() -> None:
    told, last = followed(simulated(0.3), 1.0)
    assert told[:8].tolist() == [0.0] * 8
    assert last.n == 64
    assert math.isfinite(last.filtered)
