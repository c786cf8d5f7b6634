"""What a step of the real engine costs.

A step's time is the sum of three parts: what its decoding sequences cost, what its prompt tokens
cost beyond an empty step, and what attention costs for every cell that a token looks at. The curve
in data/ is the packaged model's (control_measure.py). Nothing here says how fast a box is; the
simulation needs the proportions.
"""

from pathlib import Path

import msgspec

from appliance.engine.plan import Plan
from appliance.engine.sequence import State

FILE = Path(__file__).with_name("data") / "control_curve.json"
SHALLOW = 32
"""Cells before a decoded token, where the decode table was measured."""

Points = tuple[tuple[int, float], ...]


class Curve(msgspec.Struct, frozen=True):
    """Milliseconds."""

    decode: Points
    """(decoding sequences, ms of a step with SHALLOW cells each)."""
    prompt: Points
    """(prompt tokens from position 0, ms of a step of nothing else)."""
    decode_cell: float
    """For each cell that a decoded token looks at."""
    prompt_cell: float
    """For each cell before its own chunk that a prompt token looks at."""
    state_cell: float
    """For each cell whose state is copied out of the cache, or back."""
    about: dict[str, object] = {}


class StepCost:
    """Seconds that a planned step takes. The tables are linear between the measured points."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self._decode = _table(curve.decode)
        self._prompt = _table(curve.prompt)

    def seconds(self, plan: Plan) -> float:
        decoding = cells = tokens = seen = 0
        for chunk in plan.chunks:
            if chunk.sequence.state is State.DECODE:
                decoding += 1
                cells += chunk.start
            else:
                count = len(chunk.tokens)
                tokens += count
                seen += count * chunk.start
        return self.of(decoding, cells, tokens, seen)

    def of(self, decoding: int, cells: int, tokens: int, seen: int) -> float:
        """`cells`: before the decoded tokens, in all; `seen`: before the prompt tokens' chunks,
        summed over these tokens."""
        ms = self.curve.prompt_cell * seen
        if decoding:
            ms += _at(self._decode, decoding)
            ms += self.curve.decode_cell * max(0, cells - SHALLOW * decoding)
        if tokens:
            ms += _at(self._prompt, tokens) - (self._prompt[0] if decoding else 0.0)
        return ms / 1e3

    @property
    def kept_ms(self) -> tuple[float, float]:
        """Of a cell: to copy its state out and back, and to compute it again."""
        prompt = self._prompt[-1] / (len(self._prompt) - 1)
        return 2 * self.curve.state_cell, prompt

    def state_seconds(self, cells: int) -> float:
        return self.curve.state_cell * cells / 1e3


def stored(path: Path = FILE) -> Curve:
    return msgspec.json.decode(path.read_bytes(), type=Curve)


def _table(points: Points) -> list[float]:
    """Ms at 0, 1, 2, ... up to the last point; below the first as the first two go on."""
    found, (left, right) = [], (points[0], points[1])
    rest = iter(points[2:])
    for count in range(points[-1][0] + 1):
        while count > right[0]:
            left, right = right, next(rest)
        slope = (right[1] - left[1]) / (right[0] - left[0])
        found.append(max(0.0, left[1] + slope * (count - left[0])))
    return found


def _at(table: list[float], count: int) -> float:
    if count < len(table):
        return table[count]
    return table[-1] + (table[-1] - table[-2]) * (count - len(table) + 1)
