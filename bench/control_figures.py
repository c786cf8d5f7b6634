"""From what became of the requests to figures, and from figures to ratios. Pure. Seconds."""

from collections.abc import Sequence
from statistics import fmean

from bench.control_box import Ran, Served
from bench.control_curve import StepCost
from bench.stats import Figures, quantile

SLO_TTFT_S = 1.0
SLO_TOKEN_S = 0.025
"""Goodput counts answers whose first token came within the one and whose others came, on average,
within the other: faster than anybody reads."""
EDGE = 0.1
"""Share of the requests at either end that is not counted: the box fills and empties there."""


def latencies(served: Sequence[Served], cost: StepCost) -> Figures:
    """Of requests that ended."""
    ended = [one for one in served if one.ended]
    ttft = [one.ttft for one in ended]
    whole = [one.e2e for one in ended]
    slow = [one.e2e / alone(one, cost) for one in ended]
    return {
        **_spread("ttft", ttft),
        **_spread("e2e", whole),
        **_spread("slowdown", slow),
        "ttft_max": max(ttft),
        "good": fmean([_good(one) for one in ended]),
    }


def figures(ran: Ran, cost: StepCost) -> Figures:
    """Of a whole load, without its edges where these are latencies."""
    cut = int(len(ran.served) * EDGE)
    inner = ran.served[cut : len(ran.served) - cut]
    last = max(one.arrival.at for one in inner)
    offered = len(inner) / (last - inner[0].arrival.at or 1.0)
    found = latencies(inner, cost)
    return {**found, "goodput": found["good"] * offered, **usage(ran)}


def usage(ran: Ran) -> Figures:
    """Of the cells and the steps. Per step: while somebody waited, where anybody did."""
    busy = ran.queued if ran.queued.steps else ran.all
    needed = sum(one.needed for one in ran.served)
    return {
        "tokens_per_step": busy.tokens / busy.steps,
        "tokens_per_s": busy.tokens / busy.seconds,
        "running": ran.all.running / ran.all.steps,
        "evictions_per_100": 100 * ran.all.evictions / len(ran.served),
        "wasted": sum(max(0, one.wasted) for one in ran.served) / needed,
    }


def alone(one: Served, cost: StepCost) -> float:
    """What it would take in an empty box."""
    asked = one.arrival.asked
    depth = asked.prompt_tokens + asked.length // 2
    return cost.of(0, 0, asked.prompt_tokens, 0) + (asked.length - 1) * cost.of(1, depth, 0, 0)


def _good(one: Served) -> bool:
    rest = (one.e2e - one.ttft) / max(1, one.arrival.asked.length - 1)
    return one.ttft <= SLO_TTFT_S and rest <= SLO_TOKEN_S


def _spread(name: str, values: Sequence[float]) -> Figures:
    return {
        f"{name}_mean": fmean(values),
        f"{name}_p50": quantile(values, 0.50),
        f"{name}_p95": quantile(values, 0.95),
        f"{name}_p99": quantile(values, 0.99),
    }
