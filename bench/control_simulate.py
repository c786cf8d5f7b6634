"""The simulated comparisons. All policies of a setting get the same requests at the same times."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from bench.control_box import Arrival, Box, Ran, Size
from bench.control_cells import Cell, Setting, interval
from bench.control_curve import StepCost
from bench.control_figures import figures, latencies, usage
from bench.control_load import arrivals, poisson
from bench.control_policies import FCFS, OURS, POLICIES, RULES, Policy
from bench.control_requests import Asked, Stock
from bench.stats import Figures

BOXES = {
    "default": Size(8192, 16),
    "narrow": Size(8192, 4),
    "tight": Size(4096, 16),
    "tiny": Size(1024, 16),
    "small pool": Size(4096, 64),
}
"""default: as configured. narrow: few places, as for a model that is large for its machine. tight,
tiny: few cells. small pool: nothing but cells is short."""
SATURATING = 600
BACKLOG = 500
"""Requests that wait from the start where cells are compared."""
FULL = 1.1
"""What A and B ask for together, over what the box can serve, beside B_FIRST from the start."""
B_FIRST = 50
FEW = ("fcfs", "ours", "placebo", "oracle", "oracle, no ageing")
"""The policies that run everywhere."""
FULLEST = Setting("order", "default", "all", "poisson", 0.9)
"""Every policy is compared here."""


def settings(parts: Sequence[str], rhos: Sequence[float], traces: Sequence[str]) -> list[Setting]:
    """In the order in which they run."""
    found = [Setting("admission", "small pool", mix, "backlog") for mix in ("all", "ended", "long")]
    found += [Setting("pools", "default", "all", "poisson", rho) for rho in (0.3, 0.5, 0.7)]
    found += [Setting("order", "default", "all", "poisson", rho) for rho in rhos]
    for box, mix in (("default", "ended"), ("narrow", "all"), ("narrow", "ended")):
        found.append(Setting("order", box, mix, "poisson", 0.9))
    for name in traces:
        found += [Setting("order", box, "all", name, 0.9) for box in ("default", "narrow")]
    found += [
        Setting("odd", "default", "all", "bursts", 0.9),
        Setting("odd", "default", "long", "poisson", 0.9),
        Setting("odd", "tight", "all", "poisson", 0.9),
        Setting("odd", "tiny", "all", "poisson", 0.9),
        Setting("odd", "narrow", "equal", "poisson", 0.9),
    ]
    return [one for one in found if one.part in parts]


@dataclass(slots=True)
class Simulator:
    cost: StepCost
    stock: Stock
    data: Path | None
    """With the recorded traces."""
    requests: int
    seeds: Sequence[int]
    tell: Callable[[str], None] = lambda text: None
    _rates: dict[tuple[str, str], float] = field(default_factory=dict)

    def cell(self, setting: Setting) -> Cell:
        if setting.part == "admission":
            return self._admission(setting)
        return self._pools(setting) if setting.part == "pools" else self._order(setting)

    def saturation(self, box: str, mix: str) -> float:
        """Requests a second that the fcfs box serves while always somebody waits."""
        key = box, mix
        if key not in self._rates:
            stock = self._stock(box, mix)
            load = [Arrival(0.0, one) for one in stock.draw(SATURATING, 0)]
            queued = self._box(box, stock, FCFS).run(load).queued
            mean = fmean([one.asked.length for one in load])
            self._rates[key] = queued.tokens / queued.seconds / mean
        return self._rates[key]

    def _stock(self, box: str, mix: str) -> Stock:
        return self.stock.mix(mix).within(BOXES[box].cells)

    def _box(self, name: str, stock: Stock, policy: Policy) -> Box:
        return Box(BOXES[name], self.cost, policy, stock.everywhere)

    def _order(self, setting: Setting) -> Cell:
        policies = [one for one in POLICIES if setting == FULLEST or one.name in FEW]
        stock = self._stock(setting.box, setting.mix)
        rate = setting.rho * self.saturation(setting.box, setting.mix)
        runs: dict[str, list[Ran]] = {policy.name: [] for policy in policies}
        for seed in self.seeds:
            asked = stock.draw(self.requests, seed)
            times = arrivals(setting.arrivals, self.requests, rate, seed, self.data)
            for policy in policies:
                self.tell(f"{setting}, seed {seed}, {policy.name}")
                load = _load(times, policy.foresight(asked, seed))
                runs[policy.name].append(self._box(setting.box, stock, policy).run(load))
        found = {
            name: tuple(figures(ran, self.cost) for ran in rans) for name, rans in runs.items()
        }
        return Cell(setting, found, dict(_intervals(runs)))

    def _admission(self, setting: Setting) -> Cell:
        """Order of arrival under every rule, so that all serve the same mix all the time."""
        stock = self._stock(setting.box, setting.mix)
        found: dict[str, list[Figures]] = {policy.name: [] for policy in RULES}
        for seed in self.seeds:
            asked = stock.draw(BACKLOG, seed)
            for policy in RULES:
                self.tell(f"{setting}, seed {seed}, {policy.name}")
                load = [Arrival(0.0, one) for one in policy.foresight(asked, seed)]
                found[policy.name].append(usage(self._box(setting.box, stock, policy).run(load)))
        return Cell(setting, {name: tuple(each) for name, each in found.items()})

    def _pools(self, setting: Setting) -> Cell:
        """A's requests alone, then the same beside more of B than the box can serve."""
        stock = self._stock(setting.box, setting.mix)
        most = self.saturation(setting.box, setting.mix)
        found: dict[str, list[Figures]] = {"alone": [], "beside B": []}
        for seed in self.seeds:
            asked = stock.draw(self.requests // 2, seed)
            mine = _load(poisson(len(asked), setting.rho * most, seed), asked)
            batch = self._batch(mine, stock, most * (FULL - setting.rho), seed)
            for name, load in (("alone", mine), ("beside B", _together(mine, batch))):
                self.tell(f"{setting}, seed {seed}, {name}")
                box = self._box(setting.box, stock, OURS)
                ran = box.run(load, most_s=mine[-1].at)
                found[name].append(self._of_both(ran, box.now))
        return Cell(setting, {name: tuple(each) for name, each in found.items()})

    def _batch(
        self, mine: Sequence[Arrival], stock: Stock, rate: float, seed: int
    ) -> list[Arrival]:
        """Some of B are there from the start, the others keep coming while A's do."""
        asked = stock.draw(int(rate * mine[-1].at) + B_FIRST, seed + 1000)
        times = [0.0] * B_FIRST + poisson(len(asked) - B_FIRST, rate, seed + 1000)
        return [Arrival(at, one, "b", "batch") for at, one in zip(times, asked, strict=True)]

    def _of_both(self, ran: Ran, seconds: float) -> Figures:
        a = [one for one in ran.served if one.arrival.pool == "a"]
        b = [one for one in ran.served if one.arrival.pool == "b" and one.ended]
        return {
            **latencies(a[len(a) // 20 :], self.cost),
            "b_tokens_per_s": sum(one.arrival.asked.length for one in b) / seconds,
            "evictions_per_100": 100 * ran.all.evictions / max(1, len(a) + len(b)),
        }


def _load(times: Sequence[float], asked: Sequence[Asked]) -> list[Arrival]:
    return [Arrival(at, one) for at, one in zip(times, asked, strict=True)]


def _together(one: Sequence[Arrival], other: Sequence[Arrival]) -> list[Arrival]:
    return sorted([*one, *other], key=lambda arrival: arrival.at)


def _intervals(runs: Mapping[str, Sequence[Ran]]) -> Iterator[tuple[str, tuple[float, float]]]:
    whole = {name: [[one.e2e for one in ran.served] for ran in rans] for name, rans in runs.items()}
    base = whole[FCFS.name]
    for name, each in whole.items():
        yield name, interval(list(zip(each, base, strict=True)))
