"""The same comparisons on the real daemon, over HTTP: order, admission and pools, in turns A B A B.

Prompts are those that the forecaster has not seen; answers end by themselves, at the temperature
and with seeds as they were released. Loads are scaled so that all of it takes the minutes asked
for. llama-server's code serves a fifth of the load of the order part at the same times.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import control_open as http
from bench import machine
from bench.control_cells import A_GOAL, CELL_GOAL, LATENCY_GOALS, MOST_EVICTIONS
from bench.control_load import poisson
from bench.control_open import Body, Sent
from bench.control_report import Found, Goals, over, real_lines
from bench.control_requests import released, unseen
from bench.options import Value
from bench.servers import Server, Shape, default_model, start_ours, start_peer
from bench.stats import Figures, ratio

RHO = 0.9
A_RHO = 0.4
PLACES = 4
"""Of the box whose order is compared: few, or nobody waits at this load."""
CELLS = 8192
SMALL_CELLS, MANY = 4096, 48
"""Of the box whose admission is compared."""
B_USERS = 24
FEWEST = 8
"""Requests of a load."""
SHARES = {"order": 0.3, "peer": 0.15, "pools": 0.15, "admission": 0.1}
"""Of the minutes; the rest is for starting, measuring the saturation and answers that end late."""
PEER_SHARE = 0.2
SIDES: dict[str, dict[str, Value]] = {
    "fcfs": {"control.policy": "fcfs"},
    "ours": {"control.policy": "expected-cost"},
    "placebo": {"control.policy": "shuffled"},
}
RULES: dict[str, dict[str, Value]] = {
    "reserve": {"control.policy": "fcfs", "control.admission": "reserve"},
    "fill": {"control.policy": "fcfs", "control.admission": "fill"},
    "peak": {},
}


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[bool]]:
    """Raises BadDataset, LoadError, StartError, PeerError."""
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as folder, ExitStack() as stack:
        bench = _Real(options, Path(folder), stack)
        for part in ("order", "pools", "admission"):
            if part in options.parts:
                getattr(bench, part)()
    goals = {name: good for part in bench.parts for name, good in part["reached"].items()}
    about = {
        "benchmark": "control, real",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "minutes": options.minutes,
        "rounds": options.rounds,
        "parts": bench.parts,
    }
    return about, list(goals.values())


@dataclass(slots=True)
class _Prompts:
    """Deals out unseen prompts, in an order of its own, again from the first when all were used."""

    talks: list[tuple[tuple[str, str], ...]]
    most: int
    """Tokens of an answer."""
    place: int = 0

    @classmethod
    def read(cls, most: int) -> "_Prompts":
        talks = [
            tuple((turn.role, turn.text) for turn in case.question.turns)
            for case in unseen(released())
        ]
        random.Random("real").shuffle(talks)
        return cls(talks, most)

    def take(self, count: int) -> list[Body]:
        found = []
        for _ in range(count):
            talk = self.talks[self.place % len(self.talks)]
            found.append(http.chat(talk, self.most, self.place))
            self.place += 1
        return found


class _Real:
    def __init__(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
        self._options, self._folder, self._stack = options, folder, stack
        self._prompts = _Prompts.read(options.answer_tokens)
        self.parts: list[dict[str, Any]] = []

    # -- the parts -------------------------------------------------------------------------------

    def order(self) -> None:
        sides = {name: self._ours(name, CELLS, PLACES, more) for name, more in SIDES.items()}
        rate = self._saturation(sides["fcfs"])
        each = self._seconds("order") / (self._options.rounds * len(sides))
        found: Found = {name: [] for name in sides}
        for number in range(self._options.rounds):
            load = self._load(max(FEWEST, int(RHO * rate * each)), RHO * rate, number)
            for name in _turned(list(sides), number):
                self._tell(f"order, round {number + 1}, {name}: {len(load)} requests")
                found[name].append(http.figures(*http.run(sides[name], load)))
        if not self._options.no_peer:
            found |= self._beside_peer(sides["ours"], rate)
        self._end(sides)
        best = {k: over(found, "ours", "fcfs", k) for k in LATENCY_GOALS}
        self._note(
            "order", found, {k: best[k] <= goal for k, goal in LATENCY_GOALS.items()}, "fcfs"
        )

    def pools(self) -> None:
        server = self._ours("pools", CELLS, 16, {})
        rate = self._saturation(server)
        each = self._seconds("pools") / (2 * self._options.rounds)
        found: Found = {"A alone": [], "A beside B": []}
        for number in range(self._options.rounds):
            load = self._load(max(FEWEST, int(A_RHO * rate * each)), A_RHO * rate, 100 + number)
            batch = [body | {"service_tier": "flex"} for body in self._prompts.take(4 * len(load))]
            for name in _turned(list(found), number):
                self._tell(f"pools, round {number + 1}, {name}: {len(load)} requests of A")
                users = B_USERS if name == "A beside B" else 0
                began = time.perf_counter()
                replies, tokens = http.beside(server, load, batch, users)
                seconds = time.perf_counter() - began
                more = {"b_tokens_per_s": tokens / seconds}
                found[name].append(http.figures(replies, seconds) | more)
        self._end({"pools": server})
        worse = over(found, "A beside B", "A alone", "ttft_p99")
        self._note("pools", found, {"A's TTFT p99": worse <= A_GOAL}, "A alone")

    def admission(self) -> None:
        """Everything waits from the start; the three rules one after the other, once a round."""
        sides = {name: self._ours(name, SMALL_CELLS, MANY, more) for name, more in RULES.items()}
        each = self._seconds("admission") / (self._options.rounds * len(sides))
        rate = self._saturation(sides["reserve"])
        found: Found = {name: [] for name in sides}
        for number in range(self._options.rounds):
            load = [
                Sent(0.0, body) for body in self._prompts.take(max(2 * FEWEST, int(rate * each)))
            ]
            for name in _turned(list(sides), number):
                self._tell(f"admission, round {number + 1}, {name}: {len(load)} requests")
                found[name].append(_counted(sides[name], load))
        self._end(sides)
        per_step = over(found, "peak", "reserve", "tokens_per_step")
        evicted = ratio([one.get("evictions_per_100", 0.0) for one in found["peak"]]).median
        goals = {"2 x reserve": per_step >= CELL_GOAL, "evictions": evicted <= MOST_EVICTIONS}
        self._note("admission", found, goals, "reserve")

    # -- what they share -------------------------------------------------------------------------

    def _beside_peer(self, ours: Server, rate: float) -> Found:
        """One round, at a load that llama-server's code can bear."""
        peer = start_peer("peer", self._shape(CELLS, PLACES), self._folder, {})
        self._stack.callback(peer.stop)
        seconds = self._seconds("peer") / 2
        mine = PEER_SHARE * RHO * rate
        load = self._load(max(FEWEST, int(mine * seconds)), mine, 50)
        self._tell(f"order, beside llama-server's code: {len(load)} requests a side")
        found = {
            name: [http.figures(*http.run(server, load))]
            for name, server in (("ours, peer's load", ours), ("peer", peer))
        }
        peer.stop()
        return found

    def _ours(self, name: str, cells: int, places: int, more: dict[str, Value]) -> Server:
        settings: dict[str, Value] = {"engine.draft_tokens": 0, **more}
        server = start_ours(name, self._shape(cells, places), self._folder, settings)
        self._stack.callback(server.stop)
        return server

    def _shape(self, cells: int, places: int) -> Shape:
        return Shape(default_model().resolve(), cells, places, self._options.threads)

    def _saturation(self, server: Server) -> float:
        """Requests a second while always somebody waits: of a backlog, until its half has ended,
        so that the last few do not count for much."""
        load = [Sent(0.0, body) for body in self._prompts.take(FEWEST if self._quick else 48)]
        replies, _ = http.run(server, load)
        ends = sorted(reply.ended for reply in replies)
        half = len(ends) // 2
        rate = half / (ends[half - 1] - min(reply.sent for reply in replies))
        self._tell(f"{server.name}: {rate:.2f} requests a second when saturated")
        return rate

    @property
    def _quick(self) -> bool:
        return bool(self._options.minutes < 5)

    def _seconds(self, part: str) -> float:
        return float(self._options.minutes * 60 * SHARES[part])

    def _load(self, count: int, rate: float, seed: int) -> list[Sent]:
        times = poisson(count, rate, seed)
        return [Sent(at, body) for at, body in zip(times, self._prompts.take(count), strict=True)]

    def _end(self, sides: dict[str, Server]) -> None:
        for server in sides.values():
            server.stop()

    def _note(self, part: str, found: Found, goals: Goals, base: str) -> None:
        self.parts.append({"part": part, "over": base, "figures": found, "reached": goals})
        print("\n".join(real_lines(part, found, goals)), flush=True)

    def _tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _turned(names: list[str], number: int) -> list[str]:
    """Who goes first changes from round to round."""
    return names[::-1] if number % 2 else names


def _counted(server: Server, load: Sequence[Sent]) -> Figures:
    """With the engine's counters, whose mean per step counts the whole time of the daemon."""
    before = http.counters(server)
    replies, seconds = http.run(server, load)
    after = http.counters(server)
    found = http.figures(replies, seconds)
    if {"steps", "evictions"} <= after.keys() & before.keys():
        tokens = sum(reply.completion_tokens for reply in replies)
        found["tokens_per_step"] = tokens / (after["steps"] - before["steps"])
        evicted = after["evictions"] - before["evictions"]
        found["evictions_per_100"] = 100 * evicted / len(load)
    return found
