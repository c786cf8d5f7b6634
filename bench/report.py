"""The table that is printed and the document that is written."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.scenarios import TARGETS, Scenario
from bench.stats import Ratio, Run, figures, ratios, verdict

NOISE = 0.05
"""Share of the machine that others may use before a round is called noisy."""

_LATENCIES = ("ttft_p50", "ttft_p99", "e2e_p50", "e2e_p99", "itl_p50", "itl_p99")


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario at one concurrency: (ours, peer) for every round."""

    scenario: Scenario
    users: int
    rounds: tuple[tuple[Run, Run], ...]

    def ratios(self) -> dict[str, Ratio]:
        return ratios([(figures([ours]), figures([peer])) for ours, peer in self.rounds])

    def verdict(self) -> dict[str, bool]:
        return verdict(TARGETS.get((self.scenario.name, self.users), {}), self.ratios())

    def noise(self, cores: int) -> float | None:
        """The largest share of the machine that other processes took in a round."""
        shares = (share for pair in self.rounds if (share := noise_of(pair, cores)) is not None)
        return max(shares, default=None)


def noise_of(pair: tuple[Run, Run], cores: int) -> float | None:
    """The share of the machine that others took while either side ran; None where not known."""
    known = [r.foreign_cpu / (r.wall * cores) for r in pair if r.foreign_cpu is not None]
    return max(known, default=None)


def header() -> str:
    names = " ".join(f"{name.replace('_', ' '):>9}" for name in _LATENCIES)
    return f"{'scenario':<16}{'c':>3} {'tok/s ours':>11} {'peer':>8} {'ratio':>18}  {names}  notes"


def row(cell: Cell, cores: int) -> str:
    """Ratios are ours / peer: tokens/s above 1 is better, every latency below 1."""
    ours, peer = (figures([pair[side] for pair in cell.rounds]) for side in (0, 1))
    measured = cell.ratios()
    speed = measured["tokens_per_s"]
    spread = f"{speed.median:.3f} ({speed.low:.2f}-{speed.high:.2f})"
    latencies = " ".join(
        f"{measured[name].median:>9.3f}" if name in measured else f"{'-':>9}" for name in _LATENCIES
    )
    return (
        f"{cell.scenario.name:<16}{cell.users:>3} {ours['tokens_per_s']:>11.1f} "
        f"{peer['tokens_per_s']:>8.1f} {spread:>18}  {latencies}  {_notes(cell, cores)}"
    )


def _notes(cell: Cell, cores: int) -> str:
    missed = [name for name, good in cell.verdict().items() if not good]
    notes = [f"misses {name}" for name in missed]
    noise = cell.noise(cores)
    if noise is not None and noise > NOISE:
        notes.append(f"noisy: others took {noise:.0%} of the machine")
    return "; ".join(notes)


def document(cells: Sequence[Cell], about: dict[str, Any], cores: int) -> dict[str, Any]:
    """All that was measured, every raw sample included. Times in seconds since a run began."""
    return {**about, "cells": [_cell(cell, cores) for cell in cells]}


def _cell(cell: Cell, cores: int) -> dict[str, Any]:
    ours, peer = (figures([pair[side] for pair in cell.rounds]) for side in (0, 1))
    return {
        "scenario": cell.scenario.name,
        "concurrency": cell.users,
        "ours": ours,
        "peer": peer,
        "ratios": {name: dataclasses.asdict(value) for name, value in cell.ratios().items()},
        "targets": TARGETS.get((cell.scenario.name, cell.users), {}),
        "reached": cell.verdict(),
        "noise": cell.noise(cores),
        "rounds": [{"ours": _run(ours), "peer": _run(peer)} for ours, peer in cell.rounds],
    }


def _run(run: Run) -> dict[str, Any]:
    zero = min(reply.sent for reply in run.replies)
    return {
        "wall": run.wall,
        "client_cpu": run.client_cpu,
        "server_cpu": run.server_cpu,
        "foreign_cpu": run.foreign_cpu,
        "figures": figures([run]),
        "requests": [
            {
                "sent": round(reply.sent - zero, 6),
                "ended": round(reply.ended - zero, 6),
                "marks": [round(mark - zero, 6) for mark in reply.marks],
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": reply.completion_tokens,
                "cached_tokens": reply.cached_tokens,
            }
            for reply in run.replies
        ],
    }
