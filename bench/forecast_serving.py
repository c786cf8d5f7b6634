"""`python -m bench.forecast_serving`: what forecasting costs a box that serves.

Two daemons that differ in `forecast.enabled` alone, one loaded at a time, in pairs A B A B. Prompts
are texts that none saw before; answers end by themselves, at temperature 0, so both sides generate
the same tokens; nothing is drafted, as how much is depends on measured times. Goals: p50 of the
time to first token within 2 % at one user, throughput within 1 % at eight. What a forecast costs is
paid once a request, so throughput is measured for short answers (at most 64 tokens) and for whole
ones (at most 512).
"""

import argparse
import asyncio
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import machine
from bench.forecast_prompts import assemble
from bench.load import Address, Job, LoadError, Reply, call, post
from bench.options import Value, numbers
from bench.report import NOISE, Cell
from bench.scenarios import EQUAL, SCENARIOS, Ask, run_round
from bench.servers import Server, Shape, StartError, default_model, start_ours, unwind_on_sigterm
from bench.stats import Run

GOALS = {1: ("ttft_p50", 1.02), 8: ("tokens_per_s", 0.99)}
LONGEST = 1500
"""Characters of a prompt: the box's usual ones, not the rare long."""


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    unwind_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as folder:
        try:
            found = _measure(options, Path(folder))
        except (LoadError, StartError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(not cell["reached"] for cell in found["cells"]))


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.forecast_serving", description=__doc__)
    add = parser.add_argument
    add("--concurrency", type=numbers, default=(1, 8), metavar="N,N")
    add("--rounds", type=int, default=9, help="pairs per concurrency (default 9)")
    add("--per-round", type=int, default=32, help="requests per side and round (default 32)")
    add("--output-tokens", type=numbers, default=(64, 512), metavar="N,N", help="at most")
    add("--threads", type=int, default=machine.usable_cores(), help="of the engine")
    add("--json", type=Path, metavar="PATH")
    return parser.parse_args(argv)


def _measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    texts = _texts()
    scenario = next(one for one in SCENARIOS if one.name == "chat")
    cells = []
    with _both(options, folder) as (on, off):
        _pair(on, off, _asks(texts, options.per_round, 16), 1, 0)
        for users, limit in _plan(options):
            rounds = [
                _pair(on, off, _asks(texts, options.per_round, limit), users, number)
                for number in range(options.rounds)
            ]
            cells.append(_cell(Cell(scenario, users, tuple(rounds)), limit))
        forecasts = _forecasts(on)
    print(f"forecaster: {json.dumps(forecasts)}")
    return {
        "benchmark": "forecast serving",
        "machine": machine.facts(),
        "cells": cells,
        "forecaster": forecasts,
    }


def _texts() -> Iterator[str]:
    """Each once."""
    data = os.environ.get("STEELYARD_DATA")
    if not data:
        raise LoadError("STEELYARD_DATA does not name the data folder (bench/README.md)")
    return (
        one.messages[0].content
        for one in assemble(Path(data))
        if len(one.messages) == 1 and len(one.messages[0].content) <= LONGEST
    )


def _plan(options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """Users, and the limit of their answers. One user is asked for the first token alone, which
    comes as soon whatever the limit is."""
    limits = sorted(options.output_tokens)
    for users in options.concurrency:
        for limit in limits[:1] if users == 1 else limits:
            yield users, limit


def _asks(texts: Iterator[str], count: int, limit: int) -> list[Ask]:
    return [_ask(next(texts), limit) for _ in range(count)]


def _ask(text: str, limit: int) -> Ask:
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": limit,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }

    def ask(address: Address, replies: list[Reply]) -> Job:
        async def job() -> None:
            replies.append(await post(address, "/v1/chat/completions", body))

        return job

    return ask


@contextmanager
def _both(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Server, Server]]:
    shape = Shape(default_model().resolve(), EQUAL.context, EQUAL.sequences, options.threads)
    with ExitStack() as stack:
        made = []
        for name, enabled in (("on", True), ("off", False)):
            settings: dict[str, Value] = {"forecast.enabled": enabled, "engine.draft_tokens": 0}
            server = start_ours(name, shape, folder, settings)
            stack.callback(server.stop)
            made.append(server)
        yield made[0], made[1]


def _pair(on: Server, off: Server, asks: list[Ask], users: int, number: int) -> tuple[Run, Run]:
    """Who goes first changes from round to round."""
    if number % 2:
        second = run_round(off, asks, users)
        return run_round(on, asks, users), second
    return run_round(on, asks, users), run_round(off, asks, users)


def _cell(cell: Cell, limit: int) -> dict[str, Any]:
    ratios = cell.ratios()
    name, goal = GOALS.get(cell.users, ("tokens_per_s", 0.99))
    found = ratios[name]
    reached = found.median <= goal if name.startswith("ttft") else found.median >= goal
    noise = cell.noise(machine.usable_cores())
    noisy = f"; noisy: others took {noise:.0%}" if noise is not None and noise > NOISE else ""
    print(
        f"{cell.users} users, {limit} tokens at most: {name} with forecasts / without "
        f"{found.median:.3f} ({found.low:.3f}-{found.high:.3f}), goal {goal}: "
        f"{'reached' if reached else 'MISSED'}{noisy}",
        flush=True,
    )
    return {
        "concurrency": cell.users,
        "output_tokens": limit,
        "ratios": {key: dataclasses.asdict(value) for key, value in ratios.items()},
        "noise": noise,
        "reached": reached,
    }


def _forecasts(server: Server) -> dict[str, Any]:
    """What the forecaster says of itself: who made them, and how long they took."""
    status, body = asyncio.run(call(server.address, "GET", "/metrics"))
    if status != 200:
        return {"metrics": status}
    return {
        line.rpartition(" ")[0]: line.rpartition(" ")[2]
        for line in body.decode().splitlines()
        if line.startswith(("steelyard_forecast_info", "steelyard_forecast_seconds"))
    }


if __name__ == "__main__":
    sys.exit(main())
