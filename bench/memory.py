"""Resident memory of a group of processes, the model's mapped pages told apart. Linux only."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
ALLOWANCE = 300 * MIB
"""What the box may take beside the model and the KV cache."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes. `rss` counts a shared page once per process, `pss` once in all."""

    rss: int = 0
    pss: int = 0
    anonymous: int = 0
    model_rss: int = 0
    model_pss: int = 0

    def __add__(self, other: "Resident") -> "Resident":
        return Resident(
            self.rss + other.rss,
            self.pss + other.pss,
            self.anonymous + other.anonymous,
            self.model_rss + other.model_rss,
            self.model_pss + other.model_pss,
        )


def resident(pids: Iterable[int], model: Path) -> Resident:
    """The sum over the processes."""
    texts = (Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8") for pid in pids)
    return sum((parse_smaps(text, str(model)) for text in texts), Resident())


def parse_smaps(text: str, model: str) -> Resident:
    """Reads /proc/<pid>/smaps: per mapping a header line, its path at the end, then its fields."""
    totals = {"Rss": 0, "Pss": 0, "Anonymous": 0}
    of_model = dict.fromkeys(totals, 0)
    in_model = False
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name in totals:
            size = int(value.split()[0]) * 1024
            totals[name] += size
            of_model[name] += size if in_model else 0
        elif "-" in line.split(" ", 1)[0]:
            in_model = line.endswith(" " + model)
    return Resident(
        totals["Rss"], totals["Pss"], totals["Anonymous"], of_model["Rss"], of_model["Pss"]
    )
