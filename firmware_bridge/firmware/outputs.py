"""What the host drives, each with a dead-man time; and the fans, which have a curve of their own.

A fan turns at least as the curve says, whatever the host asked for. When the host's word has run
out, the output goes back to its safe value; until a host gives one, the curve alone rules.
"""

from firmware_bridge import messages as m
from firmware_bridge.firmware.schema import FAN0, FAN1, OUTPUTS

CURVE = ((4000, 250), (5500, 400), (7000, 700), (8000, 1000))
"""Hundredths of °C, thousandths of full duty; straight between, level outside."""
FULL = 1000
SAFE = tuple([int(row[3]) for row in OUTPUTS])
HIGHEST = tuple([int(row[4]) for row in OUTPUTS])


def curve(temperature: int | None) -> int:
    """Duty for a temperature; full when it is not known."""
    if temperature is None:
        return FULL
    low = CURVE[0]
    for high in CURVE:
        if temperature <= high[0]:
            span = high[0] - low[0]
            return (
                high[1] - (high[1] - low[1]) * (high[0] - temperature) // span if span else low[1]
            )
        low = high
    return low[1]


class Outputs:
    def __init__(self) -> None:
        self._asked: list[int | None] = [None] * len(OUTPUTS)
        self._until = [0] * len(OUTPUTS)
        self._held = [False] * len(OUTPUTS)
        """Whether the host's word still holds."""

    def ask(self, output: int, value: int, max_ms: int, now: int) -> int:
        """The host's wish. An error code, 0 if it was taken."""
        if output >= len(OUTPUTS) or value > HIGHEST[output] or not max_ms:
            return m.BAD_ARGUMENT
        self._asked[output] = value
        self._until[output] = now + max_ms
        self._held[output] = True
        return 0

    def expire(self, now: int) -> list[int]:
        """The outputs whose dead-man time ran out just now."""
        gone = [i for i, held in enumerate(self._held) if held and now >= self._until[i]]
        for output in gone:
            self._held[output] = False
            self._asked[output] = SAFE[output]
        return gone

    def value(self, output: int, temperature: int | None, full: bool) -> int:
        """What the output is to be now. `full`: the box is too hot, or latched."""
        asked = self._asked[output]
        if output not in (FAN0, FAN1):
            return SAFE[output] if asked is None else asked
        if full:
            return FULL
        return max(curve(temperature), asked or 0)
