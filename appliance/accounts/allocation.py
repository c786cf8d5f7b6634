"""What a period really cost, and who bears it. Pure; money in nano, as in cost.py.

    actual     = wall time x fixed + energy
    energy     = measured where it was, else busy time x power(watts_busy);
                 plus idle time x power(watts_idle),  idle time = wall time - device time

It is split by weight. A group's weight is the sum, over the dimensions, of `weight_d` times its
share of d: device time, requests that were not refused, context tokens (prompt and completion).
Shares make the dimensions comparable. There is no factor for the model: device time already has
it. Since a group's weight is the sum of the weights of what is in it, the split by tenant and the
split by tenant and day agree (to 1 nano, which rounding decides).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from appliance.accounts.cost import MICRO, Rates, energy_cost, split, time_cost
from appliance.config import CostConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a group of requests used, and what it cost at the standard rates of its time."""

    group: tuple[str, ...] = ()
    requests: int = 0
    """All that ended, refused ones too."""
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    completion_tokens: int = 0
    prefill_ns: int = 0
    decode_ns: int = 0
    energy_uj: int = 0
    measured_ns: int = 0
    """Device time whose energy was measured."""
    measured_tokens: int = 0
    """Context tokens of the same requests."""
    cost_prefill: int = 0
    cost_decode: int = 0
    cost_cached: int = 0
    cost_idle: int = 0

    @property
    def device_ns(self) -> int:
        return self.prefill_ns + self.decode_ns

    @property
    def context_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def stages(self) -> tuple[int, int, int, int]:
        """Standard cost: prefill, decode, cached, idle."""
        return self.cost_prefill, self.cost_decode, self.cost_cached, self.cost_idle

    @property
    def standard(self) -> int:
        return sum(self.stages)


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each dimension counts, in millionths."""

    time: int
    requests: int
    context: int

    @classmethod
    def of(cls, config: CostConfig) -> Self:
        numbers = (config.weight_time, config.weight_requests, config.weight_context)
        return cls(*(round(number * MICRO) for number in numbers))


@dataclass(frozen=True, slots=True)
class Actual:
    """The real cost of a period, in nano, and the time it is made of."""

    fixed: int
    energy: int
    wall_ns: int
    device_ns: int
    measured_ns: int

    @property
    def total(self) -> int:
        return self.fixed + self.energy

    @property
    def utilisation(self) -> float:
        """Share of the time in which the device computed."""
        return self.device_ns / self.wall_ns if self.wall_ns else 0.0


def actual_cost(rates: Rates, wall_ns: int, used: Usage) -> Actual:
    """What `wall_ns` nanoseconds cost in which all of `used` was done."""
    declared_ns = used.device_ns - used.measured_ns
    idle_ns = max(0, wall_ns - used.device_ns)
    energy = (
        energy_cost(used.energy_uj, rates.joule)
        + time_cost(declared_ns, rates.busy_power)
        + time_cost(idle_ns, rates.idle_power)
    )
    fixed = time_cost(wall_ns, rates.fixed)
    return Actual(fixed, energy, wall_ns, used.device_ns, used.measured_ns)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A sum and who bears it: `sum(parts) + unallocated` is the whole, exactly."""

    parts: tuple[int, ...]
    unallocated: int
    """What nobody caused: all of it, where nothing was used."""


def allocate(total: int, rows: Sequence[Usage], weights: Weights) -> Allocation:
    """`total` split over the rows by weight."""
    shares = weigh(rows, weights)
    if not any(shares):
        return Allocation((0,) * len(rows), total)
    return Allocation(tuple(split(total, shares)), 0)


def weigh(rows: Sequence[Usage], weights: Weights) -> list[int]:
    """Each row's weight, over one common denominator. A dimension of which nothing was used does
    not count."""
    dimensions = (
        (weights.time, [row.device_ns for row in rows]),
        (weights.requests, [row.requests - row.refused for row in rows]),
        (weights.context, [row.context_tokens for row in rows]),
    )
    counting = [(weight, used, sum(used)) for weight, used in dimensions if weight and any(used)]
    found = [0] * len(rows)
    for weight, used, whole in counting:
        others = 1
        for _, _, other in counting:
            others *= other
        for place, amount in enumerate(used):
            found[place] += weight * amount * (others // whole)
    return found


def total_of(rows: Sequence[Usage]) -> Usage:
    """All rows together, without a group."""
    names = [name for name in Usage.__dataclass_fields__ if name != "group"]
    return Usage(**{name: sum(getattr(row, name) for row in rows) for name in names})
