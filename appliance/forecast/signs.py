"""What a running answer shows, as numbers: the features of the in-flight refinement. Pure."""

import math

from appliance.forecast.dataset import Signal
from appliance.forecast.structure import Shape, Structure

NAMES = (
    "log_generated",
    "survived",
    "eos_chance",
    "eos_margin",
    "eos_margin_ewma",
    "eos_chance_highest",
    "eos_margin_highest",
    "entropy_ewma",
    "entropy_slope",
    "logprob_ewma",
    "sentence_end",
    "line_end",
    "fence_open",
    "depth",
    "items",
    "in_item",
    "paragraphs",
    "repeated",
    "repeated_long",
)
"""In order."""
VERSION = 1
"""Of the order and the meaning of NAMES: what was fitted with another is not used."""

LOWEST_MARGIN = -20.0
"""Nats: lower margins count as this."""
HIGHEST_ENTROPY = 12.0
"""Nats."""
SLOW, FAST = 0.15, 0.5
"""Weights of the newest value in the moving means."""
RECENT = 4
"""Signals within which the highest chance to end is looked for."""


class Signs:
    """Follows one answer; see `NAMES`."""

    def __init__(self) -> None:
        self._structure = Structure()
        self._margin = self._entropy = self._entropy_fast = self._logprob = 0.0
        self._repeated = self._repeated_long = 0.0
        self._chances: tuple[float, ...] = ()

    def read(self, signal: Signal, text: str, survived: float) -> list[float]:
        """The features after `signal`. `text`: what was written since the last one. `survived`:
        -log of the chance that the prior gave to getting this far. Every value is finite."""
        shape = self._structure.read(text)
        margin = _within(signal.eos_margin, LOWEST_MARGIN, 0.0)
        self._follow(
            margin,
            _within(signal.entropy, 0.0, HIGHEST_ENTROPY),
            _within(signal.logprob, LOWEST_MARGIN, 0.0),
            shape.repeated,
        )
        return [
            math.log(max(signal.generated, 1)) - 4.0,
            _within(survived, 0.0, 6.0),
            math.exp(margin),
            margin / 5,
            self._margin / 5,
            max(self._chances),
            math.log(max(self._chances)) / 5,
            self._entropy,
            self._entropy_fast - self._entropy,
            self._logprob,
            *_shape(shape),
            self._repeated,
            self._repeated_long,
        ]

    def _follow(self, margin: float, entropy: float, logprob: float, repeated: float) -> None:
        if not self._chances:
            self._margin, self._logprob = margin, logprob
            self._entropy = self._entropy_fast = entropy
        self._margin += SLOW * (margin - self._margin)
        self._entropy += SLOW * (entropy - self._entropy)
        self._entropy_fast += FAST * (entropy - self._entropy_fast)
        self._logprob += SLOW * (logprob - self._logprob)
        self._repeated += FAST * (repeated - self._repeated)
        self._repeated_long += SLOW * (repeated - self._repeated_long)
        self._chances = (*self._chances, math.exp(margin))[-RECENT:]


def _shape(shape: Shape) -> tuple[float, ...]:
    return (
        float(shape.sentence_end),
        float(shape.line_end),
        float(shape.fence_open),
        shape.depth / 4,
        math.log1p(shape.items),
        float(shape.in_item),
        math.log1p(shape.paragraphs),
    )


def _within(value: float, low: float, high: float) -> float:
    """Not a number counts as the end that says least: `low`."""
    return min(max(value, low), high) if value == value else low
