"""What the simulation found, as a table and as a document."""

from collections.abc import Iterator, Sequence
from typing import Any

from bench.control_cells import Cell
from bench.stats import Figures, Ratio, ratio

Found = dict[str, list[Figures]]
"""Figures of each round, by side."""
Goals = dict[str, bool]

_ORDER = (
    ("ttft_mean", "TTFT"), ("ttft_p50", "p50"), ("ttft_p95", "p95"), ("ttft_p99", "p99"),
    ("e2e_mean", "e2e"), ("e2e_p50", "p50"), ("e2e_p95", "p95"), ("e2e_p99", "p99"),
    ("slowdown_mean", "slowdown"), ("ttft_max", "max wait"), ("goodput", "goodput"),
)  # fmt: skip
_PLAIN = (
    ("tokens_per_step", "tok/step"),
    ("evictions_per_100", "evicted"),
    ("wasted", "wasted"),
)
_ADMISSION = (("tokens_per_step", "tok/step"), ("tokens_per_s", "tok/s"))
_POOLS = (
    ("ttft_mean", "TTFT"), ("ttft_p50", "p50"), ("ttft_p99", "p99"),
    ("e2e_mean", "e2e"), ("e2e_p99", "p99"),
)  # fmt: skip
_REAL = (
    "ttft_mean", "ttft_p50", "ttft_p99", "e2e_mean", "e2e_p50", "e2e_p99", "tokens_per_s",
    "tokens_per_step", "evictions_per_100", "b_tokens_per_s",
)  # fmt: skip
_COLUMNS = {"admission": _ADMISSION, "pools": _POOLS}


def lines(cell: Cell) -> Iterator[str]:
    """A line of names, then one for each policy: medians of the ratios, spread of the mean."""
    columns = _COLUMNS.get(cell.setting.part, _ORDER)
    yield f"{cell.setting}; over {cell.base}, median of {len(cell.found[cell.base])} seeds"
    names = "".join(f"{name:>9}" for _, name in (*columns, *_PLAIN))
    yield f"  {'':<20}{names}"
    for policy in cell.found:
        ratios = cell.ratios(policy)
        each = "".join(_median(ratios.get(name)) for name, _ in columns)
        plain = "".join(_plain(cell, policy, name) for name, _ in _PLAIN)
        yield f"  {policy:<20}{each}{plain}{_spread(cell, policy, ratios)}"
    for name, reached in cell.goals().items():
        yield f"  {name}: {'reached' if reached else 'MISSED' + _bound(cell, name)}"


def _median(found: Ratio | None) -> str:
    return f"{found.median:>9.2f}" if found is not None else f"{'-':>9}"


def _plain(cell: Cell, policy: str, name: str) -> str:
    if any(name not in one for one in cell.found[policy]):
        return f"{'-':>9}"
    return f"{cell.median(policy, name):>9.2f}"


def _spread(cell: Cell, policy: str, ratios: dict[str, Ratio]) -> str:
    mean = ratios.get("e2e_mean")
    if mean is None or policy == cell.base:
        return ""
    low_high = cell.gain.get(policy)
    sure = f", 95 % {low_high[0]:.2f}-{low_high[1]:.2f}" if low_high else ""
    return f"   e2e {mean.low:.2f}-{mean.high:.2f}{sure}"


def _bound(cell: Cell, name: str) -> str:
    """What one who knows every length reaches."""
    if cell.setting.part == "admission" and name == "2 x reserve":
        best = cell.ratios("peak, oracle")["tokens_per_step"].median
        return f" (who knows every length gets {best:.2f} x)"
    if name in ("e2e_mean", "e2e_p99"):
        ours, oracle = (cell.ratios(one)[name].median for one in ("ours", "oracle"))
        least = cell.ratios("oracle, no ageing")[name].median
        return f" ({ours:.2f}; who knows every length: {oracle:.2f}, without ageing {least:.2f})"
    return ""


def document(cells: Sequence[Cell], about: dict[str, Any]) -> dict[str, Any]:
    return {**about, "cells": [cell.document() for cell in cells]}


def over(found: Found, one: str, base: str, name: str) -> float:
    """The median of the rounds' ratios."""
    pairs = zip(found[one], found[base], strict=True)
    return ratio([mine[name] / theirs[name] for mine, theirs in pairs]).median


def real_lines(part: str, found: Found, goals: Goals) -> list[str]:
    """A part that ran on real servers: medians as they are, not ratios."""
    shown = [name for name in _REAL if any(name in one for each in found.values() for one in each)]
    lines = [f"{part}; medians of the rounds, seconds and tokens"]
    lines.append(f"  {'':<20}" + "".join(f"{name.replace('_', ' '):>19}" for name in shown))
    for side, each in found.items():
        medians = (ratio([one.get(name, 0.0) for one in each]).median for name in shown)
        lines.append(f"  {side:<20}" + "".join(f"{value:>19.3f}" for value in medians))
    return lines + [f"  {name}: {'reached' if good else 'MISSED'}" for name, good in goals.items()]
