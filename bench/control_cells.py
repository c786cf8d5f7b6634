"""What was measured under one setting, by policy and seed; ratios and verdicts. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.control_figures import EDGE
from bench.stats import Figures, Ratio, ratio

BLOCK = 25
"""Neighbouring requests that are drawn together: they share a queue."""
DRAWS = 500
LATENCY_GOALS = {"e2e_mean": 0.85, "e2e_p99": 1.3}
MOST_EVICTIONS = 1.0
"""Per 100 requests, where cells are compared."""
CELL_GOAL = 2.0
"""Tokens per step over those of reserving max_tokens."""
A_GOAL = 1.2
"""P99 of A's time to first token beside a full pool B, over A's alone."""


@dataclass(frozen=True, slots=True)
class Setting:
    """`part`: order, odd, admission, pools."""

    part: str
    box: str
    mix: str
    arrivals: str
    rho: float = 0.0
    """Load over what the fcfs box can serve; 0: everything waits from the start."""

    def __str__(self) -> str:
        load = f" {self.rho:g}" if self.rho else ""
        return f"{self.part}: {self.box} box, {self.mix} answers, {self.arrivals}{load}"


@dataclass(frozen=True, slots=True)
class Cell:
    """`found`: figures of each seed, by policy; the first policy is the base of the ratios."""

    setting: Setting
    found: Mapping[str, tuple[Figures, ...]]
    gain: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """95 % interval of mean end-to-end over the base's, by policy."""

    @property
    def base(self) -> str:
        return next(iter(self.found))

    def ratios(self, policy: str) -> dict[str, Ratio]:
        """To the base, seed by seed: both had the same requests."""
        pairs = list(zip(self.found[policy], self.found[self.base], strict=True))
        names = [name for name in pairs[0][0] if all(base.get(name) for _, base in pairs)]
        return {name: ratio([one[name] / base[name] for one, base in pairs]) for name in names}

    def median(self, policy: str, name: str) -> float:
        return ratio([one[name] for one in self.found[policy]]).median

    def goals(self) -> dict[str, bool]:
        """What is to be reached here, and whether it was."""
        if self.setting.part == "admission":
            return self._cells()
        if self.setting.part == "pools":
            return {"A's TTFT p99": self.ratios("beside B")["ttft_p99"].median <= A_GOAL}
        if self.setting.part != "order" or self.setting.rho != 0.9:
            return {}
        ours = self.ratios("ours")
        reached = {name: ours[name].median <= goal for name, goal in LATENCY_GOALS.items()}
        if "placebo" in self.gain:
            reached["placebo gains nothing"] = self.gain["placebo"][1] >= 1.0
        return reached

    def _cells(self) -> dict[str, bool]:
        """`arrival` and `fill` are compared where neither evicts too much."""
        per_step = {name: self.median(name, "tokens_per_step") for name in self.found}
        evicted = {name: self.median(name, "evictions_per_100") for name in self.found}
        return {
            "evictions": evicted["peak"] <= MOST_EVICTIONS,
            "2 x reserve": per_step["peak"] >= CELL_GOAL * per_step["reserve"],
            "fill": evicted["fill"] > MOST_EVICTIONS or per_step["peak"] >= per_step["fill"],
        }

    def document(self) -> dict[str, Any]:
        return {
            "setting": {name: getattr(self.setting, name) for name in Setting.__slots__},
            "figures": {name: list(each) for name, each in self.found.items()},
            "over": self.base,
            "ratios": {
                name: {k: [r.median, r.low, r.high] for k, r in self.ratios(name).items()}
                for name in self.found
            },
            "interval": dict(self.gain),
            "reached": self.goals(),
        }


def interval(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[float, float]:
    """95 % of the ratio of means, from what happened to the same requests under two policies
    (one pair for each seed): blocks of neighbours are drawn again and again."""
    blocks = [block for one, base in pairs for block in _blocks(one, base)]
    pick = random.Random("interval")
    found = []
    for _ in range(DRAWS):
        drawn = pick.choices(blocks, k=len(blocks))
        found.append(sum(one for one, _ in drawn) / sum(base for _, base in drawn))
    found.sort()
    return found[int(0.025 * DRAWS)], found[int(0.975 * DRAWS)]


def _blocks(one: Sequence[float], base: Sequence[float]) -> list[tuple[float, float]]:
    cut = int(len(one) * EDGE)
    starts = range(cut, len(one) - cut - BLOCK + 1, BLOCK)
    return [(sum(one[at : at + BLOCK]), sum(base[at : at + BLOCK])) for at in starts]
