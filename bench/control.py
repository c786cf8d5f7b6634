"""`python -m bench.control`: what budgets, order and admission bring, in a simulated box and, with
`--real`, on the daemon.

Simulated: the product's own scheduler on a clock that moves by what each step costs the real
engine; lengths of real answers, forecasts of the packaged forecaster. Exit status: 0 all goals
reached, 1 some missed, 2 could not measure.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from appliance.forecast.dataset import BadDataset
from bench import control_curve, control_measure, control_real, control_report, machine
from bench.control_cells import Cell
from bench.control_curve import StepCost
from bench.control_load import TRACES
from bench.control_requests import CAP, Stock, stock
from bench.control_simulate import Simulator, settings
from bench.load import LoadError
from bench.options import texts
from bench.peer import PeerError
from bench.servers import StartError, default_model, unwind_on_sigterm

RHOS = (0.5, 0.7, 0.8, 0.9, 0.97)
PARTS = ["admission", "pools", "order", "odd"]


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        if options.measure:
            _measure()
        found, reached = control_real.run(options) if options.real else _simulate(options)
    except (BadDataset, LoadError, OSError, PeerError, StartError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    missed = sum(not one for one in reached)
    print(f"{missed} of {len(reached)} goals missed" if missed else "every goal reached")
    return int(missed > 0)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.control", description=__doc__)
    add = parser.add_argument
    add("--parts", type=texts, default=PARTS, metavar="A,B", help=", ".join(PARTS))
    add("--only", default="", metavar="TEXT", help="settings whose name has it, e.g. 'narrow box'")
    add("--rho", type=_loads, default=RHOS, metavar="R,R", help="loads of the first order part")
    add("--seeds", type=int, default=3)
    add("--first-seed", type=int, default=1, help="others than a rule was chosen on (default 1)")
    add("--requests", type=int, default=2000, help="per load (default 2000)")
    add("--measure", action="store_true", help="measure the step costs first and store them")
    add("--real", action="store_true", help="the daemon over HTTP instead of the simulation")
    add("--minutes", type=float, default=12.0, help="that --real may take, about (default 12)")
    add("--rounds", type=int, default=2, help="pairs A B of --real (default 2)")
    add("--answer-tokens", type=int, default=CAP, help="limit of answers in --real (default 512)")
    add("--no-peer", action="store_true", help="--real without llama-server's code")
    add("--threads", type=int, default=machine.usable_cores(), help="of each real engine")
    add("--json", type=Path, metavar="PATH", help="write everything measured")
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return options


def _loads(text: str) -> tuple[float, ...]:
    found = tuple(float(part) for part in text.split(","))
    if not all(0 < rho < 2 for rho in found):
        raise argparse.ArgumentTypeError(f"{text!r}: every load must be between 0 and 2")
    return found


def _measure() -> None:
    curve = control_measure.measure(default_model().resolve(), print)
    text = msgspec.json.format(msgspec.json.encode(curve), indent=1) + b"\n"
    control_curve.FILE.write_bytes(text)


def _simulate(options: argparse.Namespace) -> tuple[dict[str, Any], list[bool]]:
    data, asked = os.environ.get("STEELYARD_DATA"), stock()
    print(asked.about)
    if not data:
        print("the recorded traces are left out, for the same reason")
    plan = settings(options.parts, options.rho, tuple(TRACES) if data else ())
    plan = [one for one in plan if options.only in str(one)]
    simulator = Simulator(
        StepCost(control_curve.stored()),
        asked,
        Path(data) if data else None,
        options.requests,
        range(options.first_seed, options.first_seed + options.seeds),
    )
    cells = []
    for number, setting in enumerate(plan, 1):
        simulator.tell = _progress(f"{number}/{len(plan)}")
        cells.append(simulator.cell(setting))
        _clear()
        print("\n".join(control_report.lines(cells[-1])), flush=True)
    return _found(cells, asked, options), [good for cell in cells for good in cell.goals().values()]


def _found(cells: list[Cell], asked: Stock, options: argparse.Namespace) -> dict[str, Any]:
    about = {
        "benchmark": "control, simulated",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "requests": asked.about,
        "curve": msgspec.to_builtins(control_curve.stored()),
        "seeds": options.seeds,
        "first seed": options.first_seed,
        "requests per load": options.requests,
    }
    return control_report.document(cells, about)


def _progress(place: str) -> Callable[[str], None]:
    def tell(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{place} {text}", end="", file=sys.stderr, flush=True)

    return tell


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    unwind_on_sigterm()
    sys.exit(main())
