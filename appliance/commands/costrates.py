"""`steelyard cost rates`: what an hour costs here, and how each rate came about."""

from collections.abc import Iterator
from decimal import Decimal

from appliance.accounts.cost import ATTO, MICRO, NOTHING_SET, Rates, rounded
from appliance.accounts.costreport import Line
from appliance.commands.costtable import fixed_point
from appliance.config import CostConfig

HOUR_S = 3600
PLACES = 6


def rates_text(config: CostConfig, used: Line | None) -> str:
    """The rates of `config`; with the paces of what was `used`, the price of a token."""
    rates = Rates.of(config)
    rows = [*_rows(config, rates), *_tokens(config, rates, used)]
    left = max(len(name) for name, _, _ in rows)
    middle = max(len(amount) for _, amount, _ in rows)
    lines = [f"{name:{left}}  {amount:>{middle}}  {how}".rstrip() for name, amount, how in rows]
    title = f"Rates in {config.currency}; docs/cost.md tells how they are used"
    return "\n".join([title, "", *lines, *([] if rates.configured else ["", NOTHING_SET])]) + "\n"


_Row = tuple[str, str, str]


def _rows(config: CostConfig, rates: Rates) -> Iterator[_Row]:
    share = rates.idle * (MICRO - rates.utilisation)
    idle_share = rounded(share, rates.utilisation)
    price, kwh = _plain(config.device_price), _plain(config.electricity_per_kwh)
    usual = _plain(config.utilisation)
    yield "", "per hour", ""
    yield "device", hour(rates.device), f"{price} over {_plain(config.device_life_years)} years"
    yield "overhead", hour(rates.overhead), f"{_plain(config.overhead_per_month)} per month"
    yield "fixed", hour(rates.fixed), "device + overhead, computing or not"
    yield "power, busy", hour(rates.busy_power), f"{_plain(config.watts_busy)} W at {kwh} per kWh"
    yield "power, idle", hour(rates.idle_power), f"{_plain(config.watts_idle)} W at {kwh} per kWh"
    yield "busy", hour(rates.busy), "fixed + power, busy (measured energy goes before it)"
    yield "idle", hour(rates.idle), "fixed + power, idle"
    yield "idle share", hour(idle_share), f"idle x (1 - {usual}) / {usual}, per busy hour"
    yield "busy, in all", hour(rates.busy + idle_share), "busy + idle share"
    yield "", "", ""
    yield "reused token", _plain(config.cached_weight), "of a computed prompt token's prefill"


def _tokens(config: CostConfig, rates: Rates, used: Line | None) -> Iterator[_Row]:
    """What a million tokens cost at the pace of this month's requests."""
    if used is None:
        return
    full = rates.busy + rounded(rates.idle * (MICRO - rates.utilisation), rates.utilisation)
    for name, ns, tokens in (
        ("Mtok prompt", used.prefill_ns, used.prefill_tokens),
        ("Mtok answer", used.decode_ns, used.completion_tokens),
    ):
        if tokens:
            pace = fixed_point(rounded(ns, tokens), 6)
            cost = rounded(ns * full * MICRO, ATTO * tokens)
            amount = fixed_point(rounded(cost, 1000), PLACES)
            yield name, amount, f"at {pace} ms of device time a token, this month's mean"


def hour(atto: int) -> str:
    """A rate per second as one per hour."""
    return fixed_point(rounded(atto * HOUR_S, ATTO // 10**PLACES), PLACES)


def _plain(number: float) -> str:
    """As people write it: no exponent, no `.0`."""
    text = f"{Decimal(repr(number)):f}"
    return text.removesuffix(".0")
