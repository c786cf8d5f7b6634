"""Measures what a step costs: the real Runner, made-up tokens. Other work on the machine spoils it.

All points are measured in turns, and of each the fastest turn counts.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from appliance.assembly import load_of
from appliance.config import Config
from appliance.engine.commands import Submit
from appliance.engine.plan import Chunk, Remove, Restore, Save
from appliance.engine.runner import Runner
from appliance.engine.sequence import SavedState
from appliance.engine.sequence import Sequence as Choice
from bench import machine
from bench.control_curve import SHALLOW, Curve

DECODING = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
PROMPT = (16, 32, 64, 128, 256, 512)
DEEP = 1024
TURNS = 4
REPEATS = 5
"""In each turn."""


def measure(model: Path, tell: Callable[[str], None]) -> Curve:
    """About a minute on a quiet machine."""
    load = msgspec.structs.replace(
        load_of(Config(), model), n_ctx=DECODING[-1] * 512, max_sequences=DECODING[-1]
    )
    runner = Runner(load)
    try:
        return _curve(_Measuring(runner), model, tell)
    finally:
        runner.close()


def _curve(found: "_Measuring", model: Path, tell: Callable[[str], None]) -> Curve:
    points: dict[tuple[str, int, int], float] = {}
    wanted = [("decode", count, SHALLOW) for count in DECODING]
    wanted += [("prompt", count, 0) for count in PROMPT]
    wanted += [("decode", 8, DEEP), ("prompt", 64, DEEP), ("state", DEEP, 0)]
    for turn in range(TURNS):
        for kind, count, depth in wanted:
            ms = getattr(found, kind)(count, depth)
            points[kind, count, depth] = min(ms, points.get((kind, count, depth), ms))
        tell(f"turn {turn + 1} of {TURNS}: {points['decode', 8, SHALLOW]:.2f} ms for 8 sequences")
    deeper = points["decode", 8, DEEP] - points["decode", 8, SHALLOW]
    behind = points["prompt", 64, DEEP] - points["prompt", 64, 0]
    return Curve(
        decode=tuple((count, points["decode", count, SHALLOW]) for count in DECODING),
        prompt=tuple((count, points["prompt", count, 0]) for count in PROMPT),
        decode_cell=max(0.0, deeper) / (8 * (DEEP - SHALLOW)),
        prompt_cell=max(0.0, behind) / (64 * DEEP),
        state_cell=points["state", DEEP, 0] / DEEP,
        about={"model": model.name, "machine": machine.facts()},
    )


class _Measuring:
    """Milliseconds of one step, the fastest of a few at the same place in the cache."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def decode(self, count: int, depth: int) -> float:
        """`count` sequences of `depth` cells get a token each."""
        self._fill(count, depth)
        return self._fastest([_chunk(place, depth, 1, 1) for place in range(count)])

    def prompt(self, count: int, depth: int) -> float:
        """`count` prompt tokens after `depth` others."""
        self._fill(1, depth)
        return self._fastest([_chunk(0, depth, count, 1)])

    def state(self, count: int, depth: int) -> float:
        """The state of `count` cells is copied out and back, half of that."""
        self._fill(1, depth + count)
        state = SavedState(count, 0)
        began = time.perf_counter()
        self._runner.move([Save(0, state), Remove(0, 0), Restore(0, state)])
        return (time.perf_counter() - began) * 1e3 / 2

    def _fill(self, count: int, depth: int) -> None:
        self._runner.move([Remove(place, 0) for place in range(DECODING[-1])])
        for place in range(count):
            for start in range(0, depth, 512):
                self._runner.run([_chunk(place, start, min(512, depth - start), 0)])

    def _fastest(self, chunks: Sequence[Chunk]) -> float:
        best = float("inf")
        for _ in range(REPEATS):
            began = time.perf_counter()
            self._runner.run(chunks)
            best = min(best, time.perf_counter() - began)
            self._runner.move([Remove(one.sequence.seq_id, one.start) for one in chunks])
        return round(best * 1e3, 4)


def _chunk(place: int, start: int, count: int, outputs: int) -> Chunk:
    choice = Choice(Submit("measured", (1,), 1), 0, 0, [1], seq_id=place)
    tokens = tuple(100 + (start + i) % 20_000 for i in range(count))
    return Chunk(choice, start, tokens, outputs)
