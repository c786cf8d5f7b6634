"""The settings of what decides who runs when, on which cells (docs/budgets.md)."""

from dataclasses import dataclass
from typing import Literal

from appliance.config.setting import setting

A_LEAST = 128
"""KV cells that pool A always has; half of a cache that is smaller than twice that."""


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """Who runs when, and on which part of the KV cache (docs/budgets.md)."""

    policy: Literal["expected-cost", "fcfs", "shuffled"] = setting(
        "expected-cost",
        "Order of the waiting requests of a pool: the least expected cost first, whoever came "
        "first, or by chance (only good to compare with).",
    )
    admission: Literal["peak", "reserve", "fill"] = setting(
        "peak",
        "When a waiting request starts: once the predicted peak fits into its pool; once the sum "
        "of all `max_tokens` does; while the pool is less than 80 % full. The last two are there "
        "to compare with.",
    )
    batch_share: float = setting(
        0.25,
        "Share of the KV cache that requests of service tier `flex` (pool B) can count on while "
        "there are any. Without them all others (pool A) have the whole cache.",
        low=0,
        high=1,
    )
    overflow_target: float = setting(
        0.005,
        "Share of starts, while the cells are scarce, after which cells may run out although the "
        "predicted peak fitted. How cautiously peaks are predicted follows from it.",
        low=0.0001,
        high=0.5,
    )
    ageing: float = setting(
        0.3,
        "Tokens of expected cost that are forgiven for each token-time waited, at most: all that "
        "wait are together forgiven no more than all that run generate. 0: a long request waits "
        "until `max_wait_s` while shorter ones keep coming.",
        low=0,
        high=100,
    )
    max_wait_s: float = setting(
        120.0, "Whoever has waited longer goes first, whatever it costs.", low=0.1, high=86400
    )
    fairness: bool = setting(
        True, "A key that has had more than others lately waits for them: a flood starves nobody."
    )


def a_least(cells: int) -> int:
    """Of a KV cache of so many cells, those that pool A always has."""
    return min(A_LEAST, cells // 2)


def faults(share: float, cells: int) -> str:
    """What is wrong with that share of so many cells; empty where nothing is."""
    batch = int(share * cells)
    if cells - batch < a_least(cells):
        return (
            f"{share:g} of the KV cache leaves pool A {cells - batch} of {cells} cells "
            f"(engine.context), and it needs {a_least(cells)}: "
            f"{1 - a_least(cells) / cells:.2f} is the most"
        )
    if batch < 1:
        return (
            f"{share:g} of {cells} cells (engine.context) is a pool B without cells: give it some; "
            "while no flex request is there, pool A has them all anyway"
        )
    return ""
