"""`python -m bench.tune`: what `steelyard tune` finds here, and what it brings through the daemon.

Tunes for the model in a state directory of its own, then serves with the defaults and with what was
found, in pairs A B A B. The figures are ratios found / default.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import machine
from bench.once import kept
from bench.options import numbers
from bench.scenarios import SCENARIOS, Sizes, Workload, run_round
from bench.servers import Server, Shape, StartError, default_model, start_ours, unwind_on_sigterm
from bench.stats import Ratio, Run, figures, ratios

_SHOWN = ("tokens_per_s", "ttft_p50", "itl_p50")


def main(argv: list[str] | None = None) -> int:
    return kept(measure, parse(argv))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.tune", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="shorter measurements while tuning")
    add("--allow-different-answers", action="store_true", help="as the option of the command")
    add("--rounds", type=int, default=4, help="pairs per row (default 4)")
    add("--concurrency", type=numbers, default=(1, 4, 8), metavar="N,N")
    add("--prompt-tokens", type=int, default=400)
    add("--output-tokens", type=int, default=96)
    add("--model", type=Path, help="a GGUF file (default: the packaged model)")
    add("--json", type=Path, metavar="PATH", help="write everything measured")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    model = (options.model or default_model()).resolve()
    shape = Shape(model, 8192, 16, machine.usable_cores())
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as name:
        folder = Path(name)
        entry = tuned(folder, model, options)
        settings = {f"engine.{key}": value for key, value in entry["settings"].items()}
        print(f"settings found: {settings or 'the defaults'}\n")
        rows = paired(folder, shape, settings, options) if settings else {}
    return {
        "benchmark": "tune",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "tuned": entry,
        "served": rows,
    }


def tuned(folder: Path, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What the command keeps; prints its table."""
    command = [sys.executable, "-m", "appliance", "tune", "--model", str(model), "--keep-anyway"]
    command += ["--quick"] * options.quick
    command += ["--allow-different-answers"] * options.allow_different_answers
    env = {**os.environ, "STEELYARD_STATE": str(folder / "state")}
    if subprocess.run(command, env=env, check=False).returncode:
        raise StartError("tuning failed: see above")
    show = [sys.executable, "-m", "appliance", "tune", "show", "--json"]
    done = subprocess.run(show, env=env, check=True, capture_output=True, text=True)
    entry: dict[str, Any] = json.loads(done.stdout)
    return entry


def paired(
    folder: Path, shape: Shape, settings: Mapping[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Rows by concurrency. The default side has the threads that it would choose by itself."""
    sizes = Sizes(0, options.prompt_tokens, options.output_tokens, 1, 1)
    work = Workload(None, sizes, seed=1)
    plain: dict[str, Any] = {"engine.draft_tokens": 0}
    rows: dict[str, Any] = {}
    default = start_ours("default", shape, folder, plain)
    try:
        found = start_ours("found", shape, folder, {**plain, **settings})
        try:
            for users in options.concurrency:
                rows[str(users)] = _row(users, work, default, found, options.rounds)
        finally:
            found.stop()
    finally:
        default.stop()
    return rows


def _row(users: int, work: Workload, default: Server, found: Server, rounds: int) -> dict[str, Any]:
    scenario = next(one for one in SCENARIOS if one.name == "distinct-stream")
    pairs: list[tuple[Run, Run]] = []
    for number in range(-1, rounds):
        asks = asyncio.run(work.round(scenario, users, number, default))
        order = (default, found) if number % 2 == 0 else (found, default)
        runs = {side.name: run_round(side, asks, users) for side in order}
        if number >= 0:  # the first one warms both
            pairs.append((runs["found"], runs["default"]))
    seen = ratios([(figures([ours]), figures([theirs])) for ours, theirs in pairs])
    kept = {name: seen[name] for name in _SHOWN if name in seen}
    print(f"{users:3} at once: " + ", ".join(f"{k} {_words(v)}" for k, v in kept.items()))
    return {name: {"median": one.median, "each": one.each} for name, one in kept.items()}


def _words(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


if __name__ == "__main__":
    unwind_on_sigterm()
    sys.exit(main())
