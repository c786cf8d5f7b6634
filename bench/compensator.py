"""`python -m bench.compensator`: how near corrections come, and that they do no harm.

--sensors: a drifting sensor, simulated. --bridge: the same through the real firmware and line.
--tokens: forecasts whose lengths become 30 % longer or shorter, and others that do not. Without
any of these, all three. Exit status: 0 all goals reached, 1 some missed, 2 could not measure.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from appliance.forecast.dataset import BadDataset
from bench import compensator_tokens as tokens
from bench.compensator_bridge import NotCarried, through_the_bridge
from bench.compensator_sensors import STATIC_MV, measured
from bench.machine import facts

BETTER = 5.6
DELAY_MS = 8.0
HARM = 1.02
Goals = dict[str, tuple[float, bool]]
"""What was found, and whether it is enough."""


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    everything = not (options.sensors or options.bridge or options.tokens)
    found: dict[str, Any] = {"benchmark": "compensator", "machine": facts()}
    goals: Goals = {}
    try:
        if options.sensors or everything:
            found["sensors"] = _sensors(options, goals)
        if options.bridge or everything:
            found["bridge"] = _bridge(options, goals)
        if options.tokens or everything:
            found["tokens"] = _tokens(options, goals)
    except (BadDataset, NotCarried) as error:
        print(error, file=sys.stderr)
        return 2
    for name, (value, good) in goals.items():
        print(f"{'reached' if good else 'MISSED '} {name}: {value:.3f}")
    found["goals"] = {name: {"found": v, "reached": good} for name, (v, good) in goals.items()}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(good for _, good in goals.values()) else 1


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.compensator", description=__doc__)
    parser.add_argument("--sensors", action="store_true")
    parser.add_argument("--bridge", action="store_true")
    parser.add_argument("--tokens", action="store_true")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each channel")
    parser.add_argument("--channels", type=int, default=8, help="simulated ones")
    parser.add_argument("--seeds", type=int, default=3, help="forecasters of the token channel")
    parser.add_argument("--orders", type=int, default=10, help="of each one's answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompts", type=Path, help="JSONL; else from $STEELYARD_DATA")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(argv)


def _sensors(options: argparse.Namespace, goals: Goals) -> dict[str, Any]:
    scenes: dict[str, dict[str, float]] = {
        "every sample told": {},
        "half told": {"told": 0.5},
        "a tenth told": {"told": 0.1},
        "2 % outliers": {"outliers": 0.02},
        "sigma 0.20 mV": {"sigma": 0.2},
    }
    found: dict[str, Any] = {}
    for name, changed in scenes.items():
        rows = measured(options.channels, options.seconds, options.seed, **changed)
        found[name] = {method: dataclasses.asdict(row) for method, row in rows.items()}
        _show(f"sensors, {name}", found[name])
    _judge("sensor", found["every sample told"], goals)
    return found


def _bridge(options: argparse.Namespace, goals: Goals) -> dict[str, Any]:
    found = through_the_bridge(options.seconds, options.seed)
    rows = {name: row for name, row in found.items() if isinstance(row, dict)}
    _show(f"through the bridge, {found['samples']} samples, {found['lost']} lost", rows)
    _judge("bridge", rows, goals)
    goals["bridge, samples lost"] = (found["lost"], not found["lost"])
    return found


def _judge(name: str, rows: dict[str, Any], goals: Goals) -> None:
    for method in ("causal", "retroactive"):
        better = rows["static"]["rms_mv"] / rows[method]["rms_mv"]
        goals[f"{name}, {method}: static over RMS"] = (better, better >= BETTER)
    delay = rows["retroactive"]["delay_p95"]
    goals[f"{name}, retroactive: delay p95 ms"] = (delay, delay <= DELAY_MS)


def _show(title: str, rows: dict[str, Any]) -> None:
    print(f"{title}\n  {'':14}{'RMS mV':>8}{'better':>8}{'error':>8}  delay p50/p95/max ms   steps")
    for name, row in rows.items():
        delays = "/".join(f"{row[f'delay_{part}']:.0f}" for part in ("p50", "p95", "max"))
        print(
            f"  {name:14}{row['rms_mv']:8.3f}{STATIC_MV / row['rms_mv']:8.2f}"
            f"{row['error_mv']:8.3f}  {delays:20}{row['steps']:8}"
        )


def _tokens(options: argparse.Namespace, goals: Goals) -> dict[str, Any]:
    streams = tokens.released(options.prompts, options.seeds)
    streams |= {f"simulated, sigma {s:g}": tokens.simulated(s) for s in (0.3, 0.5, 1.0)}
    found = {name: tokens.tried(stream, options.orders) for name, stream in streams.items()}
    for line in _lines(found):
        print(line)
    real = [one for name, one in found.items() if name.startswith("forecaster")]
    worst = max(ratio for one in real for ratio in one.calm)
    goals["tokens, undrifted: worst MAE ratio"] = (worst, worst <= HARM)
    for factor in tokens.FACTORS:
        left = float(np.median([abs(one.left(factor)) / one.dead_band for one in found.values()]))
        far = max(abs(one.left(factor)) / one.dead_band for one in found.values())
        goals[f"tokens, {factor:g} x: error left, dead-bands (worst)"] = (far, far <= 1.0)
        goals[f"tokens, {factor:g} x: error left, dead-bands (median)"] = (left, left <= 1.0)
    return {name: dataclasses.asdict(one) for name, one in found.items()}


def _lines(found: dict[str, "tokens.Tried"]) -> Iterator[str]:
    yield "tokens: median of log(length / forecast), 65 to 128 answers after lengths have changed"
    yield f"  {'':26}{'factor':>7}{'uncorrected':>13}{'corrected':>11}{'dead-band':>11}{'MAE':>7}"
    for name, one in found.items():
        for at, factor in enumerate(tokens.FACTORS):
            yield (
                f"  {name:26}{factor:7.2f}{one.plain[at]:13.3f}{one.corrected[at]:11.3f}"
                f"{one.dead_band:11.3f}{one.mae[at]:7.3f}"
            )
        yield f"  {name:26}{'none':>7}  MAE x {min(one.calm):.4f} to {max(one.calm):.4f}"


if __name__ == "__main__":
    sys.exit(main())
