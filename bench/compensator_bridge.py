"""The same channel through the whole line: firmware under MicroPython on a pseudo-terminal, link,
corrections. Delays are in the board's samples, which are numbered, so a busy host cannot blur them.
"""

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.compensator_sensors import METHODS, Floats, Scene, as_steps, left, scene
from firmware_bridge.commands import Stream
from firmware_bridge.events import Samples
from firmware_bridge.link import Link
from firmware_bridge.messages import UNREAD
from firmware_bridge.simulation import Simulation

CHANNEL = "reference"
STEP_MV = 0.1
"""Of the simulated board's reference channel."""
PATIENCE_S = 20.0


class NotCarried(Exception):
    """The line did not carry what the board sampled."""


def through_the_bridge(seconds: float, seed: int) -> dict[str, Any]:
    """What is left of the channel's error, and that nothing was lost on the way."""
    sent = as_steps(scene(seed, seconds), STEP_MV)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reference"
        file.write_bytes(_pairs(sent))
        with Simulation({"STEELYARD_SIMULATED_REFERENCE": str(file)}) as board:
            link = Link(board.path)
            link.start()
            try:
                carried, lost = _carried(link, sent)
            finally:
                link.stop()
    found = {name: dataclasses.asdict(left([carried], METHODS[name])) for name in METHODS}
    return {"samples": len(carried.truth), "lost": lost, **found}


def _pairs(of: Scene) -> bytes:
    truth = np.where(np.isnan(of.told), UNREAD * STEP_MV, of.told)
    both = np.rint(np.column_stack([of.reading, truth]) / STEP_MV)
    return both.astype("<i2").tobytes()


def _carried(link: Link, sent: Scene) -> tuple[Scene, int]:
    """The scene as the host has it: readings and truths as they came over the line. A board on a
    machine that is busy skips samples, which are numbered all the same, and goes on in the scene
    where it was."""
    _until(link, "ready")
    board = link.telemetry.board
    assert board is not None
    channel = [one.name for one in board.channels].index(CHANNEL)
    link.send(Stream(True))
    told = np.full(len(sent.truth), np.nan)
    first, place, expected = -1, 0, -1
    for event in _samples(link, PATIENCE_S + len(sent.truth) / 1000):
        read = [row[channel] * STEP_MV for row in event.rows]
        if event.first != expected:
            place = _found(read, sent, place)
            first = place if first < 0 else first
        if place + len(read) > len(told):
            break
        if np.abs(sent.reading[place : place + len(read)] - read).max() > STEP_MV / 10:
            raise NotCarried("samples came over the line that were not sampled then")
        for one in event.references:
            if one.channel == channel:
                told[place + one.index - event.first] = one.value * STEP_MV
        place, expected = place + len(read), event.first + len(read)
    return _cut(sent, told, slice(first, place)), link.telemetry.counters.lost


def _found(read: list[float], sent: Scene, after: int) -> int:
    """Where in the scene these samples are."""
    windows = np.lib.stride_tricks.sliding_window_view(sent.reading[after:], len(read))
    places = np.flatnonzero(np.all(np.abs(windows - read) < STEP_MV / 10, axis=1))
    if not len(places):
        raise NotCarried("what came over the line was never sampled")
    return after + int(places[0])


def _cut(sent: Scene, told: Floats, part: slice) -> Scene:
    """What came."""
    return Scene(
        sent.truth[part],
        sent.error[part],
        sent.reading[part],
        told[part],
        sent.outlier[part],
        sent.dark[part],
        tuple((at - part.start, size) for at, size in sent.steps if part.start <= at < part.stop),
    )


def _samples(link: Link, patience_s: float) -> Iterator[Samples]:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        for event in link.take_events():
            if isinstance(event, Samples):
                yield event
        time.sleep(0.005)
    raise NotCarried("the board stopped telling samples")


def _until(link: Link, state: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while link.telemetry.state != state:
        if time.monotonic() > end:
            raise NotCarried("the simulated board did not answer: is micropython installed?")
        time.sleep(0.02)
