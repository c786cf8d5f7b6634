"""The settings of the price model (docs/cost.md)."""

from dataclasses import dataclass

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class CostConfig:
    """What the box costs, and so what a request costs (docs/cost.md). Money is in `currency`."""

    currency: str = setting(
        "USD",
        "ISO 4217 code of the currency of every amount here. Change it only with the amounts: "
        "what is in the ledger stays as it is.",
        pattern=r"[A-Z]{3}",
        form="three capital letters such as `EUR`",
    )
    device_price: float = setting(
        0.0, "What the box cost. 0: not counted.", low=0, high=1_000_000_000
    )
    device_life_years: float = setting(
        5.0, "Years over which `device_price` is spread evenly.", low=0.1, high=50
    )
    electricity_per_kwh: float = setting(
        0.0, "Price of a kilowatt-hour. 0: energy is not counted.", low=0, high=100_000
    )
    watts_idle: float = setting(
        0.0, "What the box draws while it computes nothing.", low=0, high=1_000_000
    )
    watts_busy: float = setting(
        0.0,
        "What the box draws while it computes; used where energy is not measured.",
        low=0,
        high=1_000_000,
    )
    overhead_per_month: float = setting(
        0.0,
        "All other running cost in a month: room, network, service, administration.",
        low=0,
        high=1_000_000_000,
    )
    utilisation: float = setting(
        0.25,
        "Share of all time in which the box is expected to compute. The cost of the rest is "
        "spread over the requests, as their idle share.",
        low=0.0001,
        high=1,
    )
    cached_weight: float = setting(
        0.1, "What a reused prompt token costs, relative to a computed one.", low=0, high=1
    )
    weight_time: float = setting(
        1.0,
        "How much device time counts when actual cost is split over tenants. A large model takes "
        "more of it for the same tokens, so the model counts here.",
        low=0,
        high=1000,
    )
    weight_requests: float = setting(
        0.0, "How much the number of requests counts in that split.", low=0, high=1000
    )
    weight_context: float = setting(
        0.0, "How much context length (prompt and completion) counts in it.", low=0, high=1000
    )
    price_list: str = setting(
        "", "TOML file with cloud prices to compare with (docs/cost.md). Empty: none.", path=True
    )
