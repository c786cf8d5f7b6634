"""When requests arrive: at random, as in a recorded trace, in bursts, or all at once."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

TRACES = {
    "azure-conv": "traces_azure_2023_conv.csv",
    "azure-code": "traces_azure_2023_code.csv",
    "mooncake": "traces_mooncake_conversation.csv",
}
"""Files of $STEELYARD_DATA; the first column is seconds since the trace began."""
BURST = 24
"""Requests that come at once in a burst."""


def poisson(count: int, rate: float, seed: int) -> list[float]:
    """Seconds; `rate` a second."""
    pick = random.Random(f"poisson {seed}")
    at, found = 0.0, []
    for _ in range(count):
        at += pick.expovariate(rate)
        found.append(at)
    return found


def bursts(count: int, rate: float, seed: int) -> list[float]:
    """BURST requests at once, the bursts at random."""
    starts = poisson(-(-count // BURST), rate / BURST, seed)
    return [at for at in starts for _ in range(BURST)][:count]


def trace(times: Sequence[float], count: int, rate: float, seed: int) -> list[float]:
    """A stretch of a trace, from another place for each seed, its time stretched to `rate`."""
    most = len(times) - count - 1
    first = random.Random(f"trace {seed}").randrange(max(1, most))
    part = [times[(first + i) % len(times)] for i in range(count)]
    part = [at - part[0] for at in part]
    scale = (count - 1) / rate / part[-1]
    return [at * scale for at in part]


def read_trace(data: Path, name: str) -> list[float]:
    """Arrival times of a trace, ascending."""
    with (data / TRACES[name]).open(encoding="utf-8", newline="") as file:
        return sorted(float(row["arrival_s"]) for row in csv.DictReader(file))


def arrivals(kind: str, count: int, rate: float, seed: int, data: Path | None) -> list[float]:
    """`kind`: poisson, bursts, or a trace of `data`."""
    if kind == "poisson":
        return poisson(count, rate, seed)
    if kind == "bursts":
        return bursts(count, rate, seed)
    assert data is not None, "traces were asked for without the data folder"
    return trace(read_trace(data, kind), count, rate, seed)
