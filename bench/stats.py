"""From raw samples to figures, and from pairs of figures to ratios. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.load import Reply

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """One round of one side. CPU in seconds; None where the server's process is not ours."""

    replies: tuple[Reply, ...]
    client_cpu: float
    server_cpu: float | None = None
    foreign_cpu: float | None = None
    """Used by other processes of this machine meanwhile: the noise of the measurement."""

    @property
    def wall(self) -> float:
        """From the first request sent to the last answer ended."""
        return max(r.ended for r in self.replies) - min(r.sent for r in self.replies)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours / peer over the rounds."""

    median: float
    low: float
    high: float
    each: tuple[float, ...]


def quantile(values: Sequence[float], q: float) -> float:
    """Linear between neighbours, as NumPy's default. `values` must not be empty."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _spread(name: str, values: Sequence[float]) -> Figures:
    if not values:
        return {}
    return {f"{name}_p50": quantile(values, 0.5), f"{name}_p99": quantile(values, 0.99)}


def figures(runs: Sequence[Run]) -> Figures:
    """Throughput over all runs, latencies over all their requests; seconds."""
    replies = [reply for run in runs for reply in run.replies]
    wall = sum(run.wall for run in runs)
    streamed = [reply for reply in replies if reply.marks]
    return {
        "tokens_per_s": sum(r.completion_tokens for r in replies) / wall,
        "requests_per_s": len(replies) / wall,
        "answer_tokens": statistics.fmean(r.completion_tokens for r in replies),
        "prompt_tokens": statistics.fmean(r.prompt_tokens for r in replies),
        "cached_tokens": statistics.fmean(r.cached_tokens for r in replies),
        **_spread("e2e", [r.e2e for r in replies]),
        **_spread("ttft", [r.ttft for r in streamed]),
        **_spread("itl", [gap for r in streamed for gap in r.gaps]),
        "client_cpu_share": sum(run.client_cpu for run in runs) / wall,
    }


def ratios(pairs: Sequence[tuple[Figures, Figures]]) -> dict[str, Ratio]:
    """Per figure: the median of the rounds' ratios ours / peer, lowest and highest."""
    names = [name for name in pairs[0][0] if all(a.get(name) and b.get(name) for a, b in pairs)]
    return {name: ratio([a[name] / b[name] for a, b in pairs]) for name in names}


def ratio(each: Sequence[float]) -> Ratio:
    return Ratio(statistics.median(each), min(each), max(each), tuple(each))


def verdict(targets: Mapping[str, float], measured: Mapping[str, Ratio]) -> dict[str, bool]:
    """Per target: reached? Throughput has to be at least the target, a latency at most."""
    return {
        name: (measured[name].median >= goal)
        if name.endswith("_per_s")
        else (measured[name].median <= goal)
        for name, goal in targets.items()
        if name in measured
    }
