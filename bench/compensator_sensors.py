"""A sensor whose error drifts and steps, and what is left of that after correction.

A channel at 1 kHz follows a truth of about 1 V. It is off by a gain that goes with temperature, an
offset that wanders, and steps every three seconds; 0.5 % of its samples are outliers. The truth is
told with noise of its own, 0.2 % of it wrong, and every 7 s not at all for 0.2 s. All that the
sensor is off by is scaled so that the offset of the first two seconds, kept, leaves 2.17 mV RMS.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firmware_bridge.drift import DriftWindow

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

RATE = 1000
"""Samples a second; times below are in samples."""
STATIC_MV = 2.17
SIGMA_MV = 0.35
WARM_UP = 2500
DROPOUT, DROPOUT_EVERY, FIRST_DROPOUT = 200, 7000, 5000
LOOK = 10
HELD = 8
"""For so long the error must stay small before a step counts as found."""
NEVER = 300


@dataclass(frozen=True, slots=True)
class Scene:
    """One channel, in mV."""

    truth: Floats
    error: Floats
    """What it is off by, without noise."""
    reading: Floats
    told: Floats
    """The truth as the board tells it; NaN where it does not."""
    outlier: Flags
    dark: Flags
    """While no truth is told at all."""
    steps: tuple[tuple[int, float], ...]
    """When the error jumps, and by how much."""

    @property
    def residuals(self) -> Floats:
        return self.reading - self.told


def scene(
    seed: int,
    seconds: float,
    *,
    sigma: float = SIGMA_MV,
    told: float = 1.0,
    outliers: float = 0.005,
) -> Scene:
    """`told`: the share of samples whose truth is told."""
    plain = _scene(seed, seconds, sigma, told, outliers, 1.0)
    off = _rms(plain.error - _static(plain), plain)
    wanted = np.sqrt(STATIC_MV**2 - SIGMA_MV**2)
    return _scene(seed, seconds, sigma, told, outliers, wanted / off)


def _scene(
    seed: int, seconds: float, sigma: float, told: float, outliers: float, scale: float
) -> Scene:
    rng = np.random.default_rng(seed)
    count = round(seconds * RATE)
    t = np.arange(count) / RATE
    turn = rng.uniform(0, 2 * np.pi, 5)
    truth = 1000 + 300 * np.sin(2 * np.pi * t / 3.7 + turn[0])
    truth += 100 * np.sin(2 * np.pi * t / 0.41 + turn[1])
    warm = 12 * np.sin(2 * np.pi * t / 25 + turn[2]) + 3 * np.sin(2 * np.pi * t / 4 + turn[3])
    wander = 0.8 * np.sin(2 * np.pi * t / 11 + turn[4]) + np.cumsum(rng.normal(0, 0.02, count))
    steps = tuple(_steps(rng, count))
    jumps = np.zeros(count)
    for at, size in steps:
        jumps[at:] += size
    error = scale * (80e-6 * (warm - warm[0]) * truth + wander - wander[:2000].mean() + jumps)
    outlier = rng.random(count) < outliers
    reading = truth + error + rng.normal(0, sigma, count) + outlier * rng.normal(0, 20, count)
    known = truth + rng.normal(0, 0.05, count)
    known += (rng.random(count) < 0.002) * rng.normal(0, 20, count)
    known[rng.random(count) >= told] = np.nan
    dark = np.zeros(count, dtype=bool)
    for at in range(FIRST_DROPOUT, count, DROPOUT_EVERY):
        dark[at : at + DROPOUT] = True
    known[dark] = np.nan
    sized = tuple((at, scale * size) for at, size in steps)
    return Scene(truth, error, reading, known, outlier, dark, sized)


def _steps(rng: np.random.Generator, count: int) -> Iterator[tuple[int, float]]:
    """Every 2.9 s on average, up or down, within 6 mV before all is scaled."""
    at, level = 2500, 0.0
    while True:
        at += round((rng.exponential(2.5) + 0.4) * RATE)
        if at > count - 400:
            return
        size = rng.uniform(1.5, 4.0) * rng.choice([-1, 1])
        size = -size if abs(level + size) > 6 else size
        level += size
        yield at, float(size)


# -- corrections ---------------------------------------------------------------------------------

Method = Callable[[Scene], Floats]
"""What is taken off each sample."""


def static(of: Scene) -> Floats:
    return np.full(len(of.truth), _static(of))


def _static(of: Scene) -> float:
    return float(np.nanmedian(of.residuals[:2000]))


def causal(of: Scene, look: int = LOOK) -> Floats:
    """As a look found it, for the samples that come after it."""
    window, found = DriftWindow(SIGMA_MV), np.zeros(len(of.truth))
    for start in range(0, len(found) - look + 1, look):
        window.push(of.residuals[start : start + look])
        found[start + look : start + 2 * look] = window.estimate().bias
    return found


def retroactive(of: Scene, look: int = LOOK) -> Floats:
    """As a look found it, for the samples that came in since the look before: they are told 10 ms
    later at most."""
    window, found = DriftWindow(SIGMA_MV), np.zeros(len(of.truth))
    for start in range(0, len(found) - look + 1, look):
        window.push(of.residuals[start : start + look])
        window.estimate()
        found[start : start + look] = window.biases(look)
    return found


METHODS: dict[str, Method] = {
    "static": static,
    "causal": causal,
    "causal, 5 ms": lambda of: causal(of, 5),
    "retroactive": retroactive,
}


# -- what is measured ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Left:
    """After correction, of several channels."""

    rms_mv: float
    """Of single readings that are no outliers: the noise of 0.35 mV is in it."""
    error_mv: float
    """RMS of correction less error: without the noise."""
    delay_p50: float
    delay_p95: float
    delay_max: float
    """Samples (ms) from a step until the error stays within a fifth of it, or 0.5 mV."""
    steps: int


def left(scenes: Sequence[Scene], method: Method) -> Left:
    off: list[Floats] = []
    wrong: list[Floats] = []
    delays: list[float] = []
    for one in scenes:
        taken = method(one)
        sound = ~one.outlier[WARM_UP:]
        off.append((one.reading - taken - one.truth)[WARM_UP:][sound])
        wrong.append((taken - one.error)[WARM_UP:][sound])
        delays += list(_delays(one, taken - one.error))
    late = np.array(delays or [np.nan])
    return Left(
        rms_mv=_root(np.concatenate(off)),
        error_mv=_root(np.concatenate(wrong)),
        delay_p50=float(np.percentile(late, 50)),
        delay_p95=float(np.percentile(late, 95)),
        delay_max=float(late.max()),
        steps=len(delays),
    )


def _delays(of: Scene, wrong: Floats) -> Iterator[int]:
    """Steps while no truth is told are left out: nobody can see those."""
    for at, size in of.steps:
        if of.dark[at - 1 : at + 2].any():
            continue
        small = np.abs(wrong[at : at + NEVER]) <= max(0.5, 0.2 * abs(size))
        held = np.convolve(small, np.ones(HELD), "valid") == HELD
        yield int(held.argmax()) if held.any() else NEVER


def _rms(values: Floats, of: Scene) -> float:
    return _root(values[WARM_UP:][~of.outlier[WARM_UP:]])


def _root(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def measured(channels: int, seconds: float, seed: int, **changed: float) -> dict[str, Left]:
    scenes = [scene(1000 * seed + at, seconds, **changed) for at in range(channels)]
    return {name: left(scenes, method) for name, method in METHODS.items()}


def as_steps(of: Scene, step_mv: float) -> Scene:
    """In whole steps of a converter, as a board tells them."""
    return replace(
        of,
        reading=np.rint(of.reading / step_mv) * step_mv,
        told=np.rint(of.told / step_mv) * step_mv,
    )
