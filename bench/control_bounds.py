"""What other rules of order could bring at best: `python -m bench.control_bounds`.

A box of places alone: cells are never short, and giving a place up or getting one back costs
nothing. So a rule that gains little here gains nothing in a real box. Step costs, lengths and
forecasts are those of control.py, and so is the load; needs STEELYARD_DATA.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from random import Random
from statistics import fmean, median

from appliance.config.control import ControlConfig
from appliance.engine.expectations import PROMPT_COST
from appliance.engine.order import ageing
from appliance.forecast.dataset import BadDataset
from bench import control_curve
from bench.control_curve import StepCost
from bench.control_figures import EDGE
from bench.control_known import GRAIN, Known, known
from bench.control_load import arrivals
from bench.stats import quantile

STEP_TOKENS = 512
LOAD = 0.9
BACKLOG = 600
SETTINGS = (
    (4, "poisson"), (16, "bursts"), (16, "azure-code"), (16, "poisson"),
)  # fmt: skip
"""Places and arrivals: those of control.py in which somebody waits, and the one in which hardly
anybody does."""
AGEING = ControlConfig().ageing
MARGIN = 64.0
"""Tokens by which one that waits must be cheaper than one that runs to get its place."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`tells`: by what of `Known` requests are ordered; None: by arrival."""

    name: str
    tells: str | None
    gives: int = 0
    """Times that one that runs gives its place to a cheaper one, at most."""
    margin: float = MARGIN
    ageing: float = AGEING
    shared: bool = True
    """Ageing as in the product; else `ageing` however many wait."""


ALWAYS = 10**6
RULES = (
    Rule("arrival", None),
    Rule("the product's", "first"),
    Rule("the same, fixed ageing", "first", shared=False),
    Rule("second forecast while waiting", "second"),
    Rule("second, gives way once", "refined", gives=1),
    Rule("second, gives way always", "refined", gives=ALWAYS, margin=0.0),
    Rule("feedback, no forecasts", "had", gives=ALWAYS, margin=0.0),
    Rule("lengths known", "exact"),
    Rule("lengths known, gives way", "exact", gives=ALWAYS, margin=0.0),
    Rule("lengths known, no ageing", "exact", ageing=0.0),
    Rule("the same, gives way", "exact", gives=ALWAYS, margin=0.0, ageing=0.0),
)


@dataclass(slots=True, eq=False)
class Job:
    """One request in the box. Seconds since the load began."""

    at: float
    asked: Known
    turn: int = 0
    """Steps before it came."""
    generated: int = 0
    read: int = 0
    """Prompt tokens."""
    gave: int = 0
    """Times it gave its place up."""
    cost: float = 0.0
    first: float = 0.0
    ended: float = 0.0

    @property
    def decodes(self) -> bool:
        return self.read == self.asked.prompt_tokens

    @property
    def depth(self) -> int:
        return self.read + self.generated


@dataclass(slots=True)
class Places:
    """Serves a load under one rule. Nothing is drawn at random in here."""

    count: int
    cost: StepCost
    rule: Rule
    now: float = 0.0
    turns: int = 0
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)

    def run(self, load: Sequence[Job]) -> None:
        """Fills in when each had its first token and its last."""
        coming = list(reversed(load))
        while coming or self.waiting or self.running:
            if not (self.waiting or self.running):
                self.now = max(self.now, coming[-1].at)
            while coming and coming[-1].at <= self.now:
                self._arrive(coming.pop())
            self._seat()
            self._go(coming[-1].at if coming else float("inf"))

    def _arrive(self, job: Job) -> None:
        job.turn = self.turns
        self._price(job)
        self.waiting.append(job)

    def _price(self, job: Job) -> None:
        if self.rule.tells is not None:
            costs = job.asked.costs[self.rule.tells]
            left = costs[min(job.generated // GRAIN, len(costs) - 1)]
            job.cost = left + PROMPT_COST * (job.asked.prompt_tokens - job.read)

    def _seat(self) -> None:
        """Who waits takes the places that are free, then those that the rule has others give up."""
        if not self.waiting:
            return
        self._sort()
        free = self.count - len(self.running)
        self.running += self.waiting[:free]
        del self.waiting[:free]
        for _ in range(len(self.waiting) if self.rule.gives else 0):
            if not self._exchange():
                return

    def _sort(self) -> None:
        if self.rule.tells is None:
            self.waiting.sort(key=attrgetter("at"))
            return
        rate = self._ageing
        self.waiting.sort(key=lambda job: (job.cost + rate * job.turn, job.at))

    @property
    def _ageing(self) -> float:
        most, queued = self.rule.ageing, len(self.waiting)
        return ageing(most, queued, len(self.running)) if self.rule.shared else most

    def _exchange(self) -> bool:
        """The dearest of the running ones for the first that waits, if that is cheap enough."""
        rate = self._ageing
        able = [job for job in self.running if job.decodes and job.gave < self.rule.gives]
        for job in able:
            self._price(job)
        dearest = max(able, key=lambda job: job.cost + rate * job.turn, default=None)
        if dearest is None:
            return False
        heir = self.waiting[0]
        gain = dearest.cost - heir.cost + rate * (dearest.turn - heir.turn)
        if gain <= self.rule.margin:
            return False
        dearest.gave += 1
        self.running[self.running.index(dearest)] = heir
        self.waiting[0] = dearest
        self._sort()
        return True

    def _go(self, until: float) -> None:
        """One step with prompts in it, or as many without as nothing changes in."""
        if all(job.decodes for job in self.running):
            self._decode(until)
        else:
            self._read()

    def _decode(self, until: float) -> None:
        most = min(job.asked.length - job.generated for job in self.running)
        if self.waiting and self.rule.gives:
            most = min(most, GRAIN)
        count, depth = len(self.running), sum(job.depth for job in self.running)
        steps = 0
        while steps < most and self.now < until:
            self.now += self.cost.of(count, depth, 0, 0)
            depth += count
            steps += 1
        self.turns += steps
        for job in list(self.running):
            self._tokens(job, steps)

    def _read(self) -> None:
        decoding = [job for job in self.running if job.decodes]
        room, tokens, seen, ready = STEP_TOKENS - len(decoding), 0, 0, []
        for job in self.running:
            part = min(room - tokens, job.asked.prompt_tokens - job.read)
            seen += part * job.read
            tokens += part
            job.read += part
            if job.decodes and job not in decoding:
                ready.append(job)
        depth = sum(job.depth for job in decoding)
        self.now += self.cost.of(len(decoding), depth, tokens, seen)
        self.turns += 1
        for job in decoding + ready:
            self._tokens(job, 1)

    def _tokens(self, job: Job, count: int) -> None:
        job.first = job.first or self.now
        job.generated += count
        if job.generated == job.asked.length:
            job.ended = self.now
            self.running.remove(job)


def load_of(stock: Sequence[Known], times: Sequence[float], seed: int) -> list[Job]:
    pick = Random(f"bounds {seed}")
    return [Job(at, pick.choice(stock)) for at in times]


def saturation(stock: Sequence[Known], places: int, cost: StepCost) -> float:
    """Requests a second that are served in order of arrival while always somebody waits."""
    load = load_of(stock, [0.0] * BACKLOG, 0)
    Places(places, cost, RULES[0]).run(load)
    ended = sorted(job.ended for job in load)
    at = int(BACKLOG * 0.85)
    return at / ended[at]


def compared(
    stock: Sequence[Known], places: int, kind: str, seeds: Sequence[int], count: int, data: Path
) -> Iterator[tuple[str, float, float, float]]:
    """Rule by rule: mean and P99 end to end over those in order of arrival (medians of the seeds'
    ratios), and how often a request gave its place up."""
    cost = StepCost(control_curve.stored())
    rate = LOAD * saturation(stock, places, cost)
    cut, base = int(count * EDGE), dict[int, list[float]]()
    for rule in RULES:
        means, tails, gave = [], [], []
        for seed in seeds:
            load = load_of(stock, arrivals(kind, count, rate, seed, data), seed)
            Places(places, cost, rule).run(load)
            inner = load[cut : len(load) - cut]
            whole = [job.ended - job.at for job in inner]
            over = base.setdefault(seed, whole)
            means.append(fmean(whole) / fmean(over))
            tails.append(quantile(whole, 0.99) / quantile(over, 0.99))
            gave.append(fmean(job.gave for job in inner))
        yield rule.name, median(means), median(tails), fmean(gave)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.control_bounds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    try:
        stock = known()
    except BadDataset as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    seeds, found = range(options.first_seed, options.first_seed + options.seeds), []
    for places, kind in SETTINGS:
        print(f"{places} places, {kind} {LOAD:g}; over arrival, median of {options.seeds} seeds")
        print(f"  {'':<32}{'mean':>8}{'p99':>8}{'gave way':>10}")
        data = Path(os.environ["STEELYARD_DATA"])
        for name, mean, tail, gave in compared(stock, places, kind, seeds, options.requests, data):
            print(f"  {name:<32}{mean:>8.3f}{tail:>8.2f}{gave:>10.2f}", flush=True)
            found.append([places, kind, name, mean, tail, gave])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
