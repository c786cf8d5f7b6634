"""The price model: what a request costs when it ends, and who bears what a period really cost.

Pure, and integers from here on: money in 1e-9 of the currency ("nano"), rates in 1e-18 ("atto").
docs/cost.md tells the model in words, with an example.

    fixed      = device_price / device_life + overhead_per_month / month     atto per second
    power(W)   = W x electricity_per_kwh / 3.6e6 J                           atto per second
    busy       = fixed + power(watts_busy);   idle = fixed + power(watts_idle)

A request, by its share of device time (ns) and by its energy where that was measured (uJ):

    prefill    = prefill_ns x busy,  or with energy:  prefill_ns x fixed + its share of the energy
    decode     = decode_ns x busy,   likewise; the energy is shared by device time
    cached     = cached_tokens x cached_weight x mean prefill time of a token x busy
    idle       = (prefill_ns + decode_ns) x (1 - utilisation) / utilisation x idle

This is standard costing: with the rates known, the price is known when the request ends, and it
never changes. What a period really cost is another sum, and its split and its variance to the
standard are in `allocate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from appliance.config import CostConfig
from appliance.ledger.rows import Costs, RequestRow

NANO = 10**9
"""Nano in a unit of the currency; also nanoseconds in a second."""
MICRO = 10**6
ATTO = 10**18
YEAR_S = 31_557_600
"""365.25 days."""
MONTH_S = YEAR_S // 12
KWH_J = 3_600_000
DAY_NS = 86_400 * NANO
NOTHING_SET = (
    "No prices are configured, so every cost is 0: set cost.device_price, cost.overhead_per_month, "
    "or cost.electricity_per_kwh with cost.watts_busy and cost.watts_idle."
)


def rounded(numerator: int, denominator: int) -> int:
    """The quotient to the nearest integer, halves up. `denominator` > 0."""
    return (2 * numerator + denominator) // (2 * denominator)


@dataclass(frozen=True, slots=True)
class Rates:
    """What time and energy cost here."""

    currency: str
    device: int
    """Atto per second, like the next four."""
    overhead: int
    busy_power: int
    idle_power: int
    joule: int
    """Atto per joule."""
    utilisation: int
    """Millionths, like the next one."""
    cached_weight: int

    @classmethod
    def of(cls, config: CostConfig) -> Self:
        """The rates of these settings."""
        joule = _exact(config.electricity_per_kwh) / KWH_J
        life_s = _exact(config.device_life_years) * YEAR_S
        return cls(
            currency=config.currency,
            device=_atto(_exact(config.device_price) / life_s),
            overhead=_atto(_exact(config.overhead_per_month) / MONTH_S),
            busy_power=_atto(joule * _exact(config.watts_busy)),
            idle_power=_atto(joule * _exact(config.watts_idle)),
            joule=_atto(joule),
            utilisation=round(config.utilisation * MICRO),
            cached_weight=round(config.cached_weight * MICRO),
        )

    @property
    def fixed(self) -> int:
        """Cost of a second, whether the device computes or not."""
        return self.device + self.overhead

    @property
    def busy(self) -> int:
        """Cost of a second in which it computes."""
        return self.fixed + self.busy_power

    @property
    def idle(self) -> int:
        """Cost of a second in which it does not."""
        return self.fixed + self.idle_power

    @property
    def configured(self) -> bool:
        """Whether anything costs anything."""
        return bool(self.fixed or self.busy_power or self.idle_power or self.joule)


def _exact(number: float) -> Decimal:
    """The number as it was written: 0.1 is a tenth."""
    return Decimal(repr(number))


def _atto(amount: Decimal) -> int:
    return int((amount * ATTO).to_integral_value())


def time_cost(ns: int, rate: int) -> int:
    """Nano for `ns` nanoseconds at `rate` atto per second."""
    return rounded(ns * rate, ATTO)


def energy_cost(uj: int, joule: int) -> int:
    """Nano for `uj` microjoules at `joule` atto per joule."""
    return rounded(uj * joule, 10**15)


def cost_of(
    rates: Rates,
    *,
    prefill_ns: int,
    decode_ns: int,
    cached_tokens: int,
    prefill_tokens: int = 0,
    energy_uj: int | None = None,
    mean_prefill_ns_per_token: int = 0,
) -> Costs:
    """What a request costs. Where the mean prefill time is not known yet (0), its own counts."""
    per_token = mean_prefill_ns_per_token or prefill_ns // max(1, prefill_tokens)
    prefill, decode = _stages(rates, prefill_ns, decode_ns, energy_uj)
    spread = MICRO - rates.utilisation
    return Costs(
        currency=rates.currency,
        prefill=prefill,
        decode=decode,
        cached=rounded(cached_tokens * per_token * rates.cached_weight * rates.busy, ATTO * MICRO),
        idle=rounded((prefill_ns + decode_ns) * spread * rates.idle, ATTO * rates.utilisation),
    )


def _stages(
    rates: Rates, prefill_ns: int, decode_ns: int, energy_uj: int | None
) -> tuple[int, int]:
    """Prefill and decode: at declared watts, or with the energy that was measured."""
    if energy_uj is None:
        return time_cost(prefill_ns, rates.busy), time_cost(decode_ns, rates.busy)
    prefill_j, decode_j = split(energy_cost(energy_uj, rates.joule), (prefill_ns, decode_ns))
    return (
        time_cost(prefill_ns, rates.fixed) + prefill_j,
        time_cost(decode_ns, rates.fixed) + decode_j,
    )


@dataclass(slots=True)
class PrefillPace:
    """The mean device time of a prompt token that was computed, over all requests it was told."""

    ns: int = 0
    tokens: int = 0

    def add(self, ns: int, tokens: int) -> None:
        """One more request."""
        self.ns += ns
        self.tokens += tokens

    @property
    def per_token(self) -> int:
        """Nanoseconds; 0: not known yet."""
        return self.ns // self.tokens if self.tokens else 0


@dataclass(frozen=True, slots=True)
class Costing:
    """Prices final rows. Belongs to the event loop."""

    rates: Rates
    pace: PrefillPace

    def __call__(self, row: RequestRow) -> Costs:
        """The row's costs, with the mean prefill time of the rows before it. One without device
        time (refused, or lost with the engine) costs nothing, its reused tokens included."""
        mean = self.pace.per_token
        self.pace.add(row.prefill_ns, row.prefill_tokens if row.prefill_ns else 0)
        return cost_of(
            self.rates,
            prefill_ns=row.prefill_ns,
            decode_ns=row.decode_ns,
            cached_tokens=row.cached_tokens if row.prefill_ns + row.decode_ns else 0,
            prefill_tokens=row.prefill_tokens,
            energy_uj=row.energy_uj,
            mean_prefill_ns_per_token=mean,
        )


def split(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in parts proportional to `weights` (>= 0) that sum to it exactly: largest remainder,
    the first of equals first. Weights that are all 0 count as equal. No weights, no parts: then
    `total` must be 0."""
    if not weights:
        assert total == 0, "there is nobody to bear it"
        return []
    assert min(weights) >= 0, "a weight is never negative"
    whole = sum(weights)
    if not whole:
        return split(total, [1] * len(weights))
    parts = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -(total * weights[i] % whole))
    for place in by_remainder[: total - sum(parts)]:
        parts[place] += 1
    return parts
