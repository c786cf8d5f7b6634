"""`python -m bench.overhead`: what the box costs beside the model's own compute.

The share of an engine step that is not llama_decode, under load; resident memory against model +
KV cache + 300 MB; and the time from start to ready with a warm disk cache.
"""

import argparse
import asyncio
import dataclasses
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance import gguf
from appliance.accounts.keys import FILE_NAME, KeyStore
from bench import machine, memory
from bench.load import LoadError, call
from bench.once import kept
from bench.options import Value, assignment, numbers
from bench.scenarios import SCENARIOS, Sizes, Workload, run_round
from bench.servers import Server, Shape, default_model, start_ours, unwind_on_sigterm
from bench.stats import figures

PYTHON_SHARE = 0.03
"""Of a step, at most, outside llama_decode."""
READY_S = 5.0

_COUNTER = re.compile(r"^steelyard:engine_(compute|busy)_seconds(?:_total)?(?:\{.*\})? (\S+)")


def main(argv: list[str] | None = None) -> int:
    return kept(measure, parse(argv))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.overhead", description=__doc__)
    add = parser.add_argument
    add("--concurrency", type=numbers, default=(1, 4, 8, 16), metavar="N,N")
    add("--starts", type=int, default=5, help="starts that are timed, after one to warm the cache")
    add("--requests", type=int, default=0, help="per run (default: 2 x concurrency, at least 4)")
    add("--output-tokens", type=int, default=128)
    add("--context", type=int, default=8192)
    add("--sequences", type=int, default=16)
    add("--threads", type=int, default=machine.usable_cores())
    add("--model", type=Path, help="a GGUF file (default: the packaged model)")
    add("--json", type=Path, metavar="PATH", help="write everything measured")
    add("--ours-set", type=assignment, action="append", default=[], metavar="KEY=VALUE",
        help="a setting of steelyard.toml, e.g. engine.draft_tokens=0")  # fmt: skip
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Prints each figure as it is known; returns them all."""
    shape = Shape(
        (options.model or default_model()).resolve(),
        options.context,
        options.sequences,
        options.threads,
    )
    settings: dict[str, Value] = dict(options.ours_set)
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as name:
        folder = Path(name)
        ready = _ready_times(shape, folder, settings, options.starts)
        steps, used = _under_load(shape, folder, settings, options)
    return {
        "benchmark": "overhead",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "model": shape.model.name,
        "settings": settings,
        "ready_s": ready,
        "steps": steps,
        "memory": used,
    }


@contextmanager
def _daemon(
    shape: Shape, folder: Path, settings: dict[str, Value], name: str
) -> Iterator[tuple[Server, str]]:
    """Ours, ready, and a key that may read its counters."""
    state = folder / f"{name}-state"
    state.mkdir(mode=0o700)
    key = KeyStore(state / FILE_NAME).create("bench", ("metrics", "admin"))
    server = start_ours(name, shape, folder, settings)
    try:
        yield server, key
    finally:
        server.stop()


def _ready_times(
    shape: Shape, folder: Path, settings: dict[str, Value], starts: int
) -> list[float]:
    """Seconds from start to ready; one start goes before to warm the disk cache."""
    times = []
    for number in range(starts + 1 if starts else 0):
        with _daemon(shape, folder, settings, f"start{number}") as (server, _):
            times.append(server.ready_s)
    if not times:
        return []
    typical = statistics.median(times[1:])
    print(f"ready after {typical:.2f} s, target {READY_S:.0f} s: {_word(typical <= READY_S)}")
    return times[1:]


def _under_load(
    shape: Shape, folder: Path, settings: dict[str, Value], options: argparse.Namespace
) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """Per concurrency the cost of a step; and memory before and after the load."""
    data = os.environ.get("STEELYARD_DATA")
    sizes = Sizes(options.requests, 100, options.output_tokens, 1, 1)
    work = Workload(Path(data) if data else None, sizes, seed=1)
    steps = []
    with _daemon(shape, folder, settings, "load") as (server, key):
        idle = _resident(server, shape.model)
        _step_cost(server, key, work, 1, -1)
        for number, users in enumerate(options.concurrency):
            steps.append(_step_cost(server, key, work, users, number))
            _print_step(steps[-1])
        loaded = _resident(server, shape.model)
    budget = _budget(shape, str(settings.get("engine.kv_type", "f16")))
    _print_memory(loaded, budget)
    used = {"idle": dataclasses.asdict(idle), "loaded": dataclasses.asdict(loaded)}
    return steps, {"budget": budget, **used}


def _step_cost(
    server: Server, key: str, work: Workload, users: int, number: int
) -> dict[str, float]:
    """Streams, since those bring the most work per step."""
    assert server.process is not None
    scenario = next(s for s in SCENARIOS if s.name == "distinct-stream")
    asks = asyncio.run(work.round(scenario, users, number, server))
    before, own = _counters(server, key), machine.cpu_alone(server.process.pid)
    run = run_round(server, asks, users)
    after = _counters(server, key)
    busy = after["busy"] - before["busy"]
    compute = after["compute"] - before["compute"]
    return {
        "concurrency": users,
        "busy_s": busy,
        "compute_s": compute,
        "python_share": 1 - compute / busy,
        "daemon_cpu_share": (machine.cpu_alone(server.process.pid) - own) / run.wall,
        "client_cpu_share": run.client_cpu / run.wall,
        "tokens_per_s": figures([run])["tokens_per_s"],
    }


def _counters(server: Server, key: str) -> dict[str, float]:
    status, body = asyncio.run(call(server.address, "GET", "/metrics", key=key))
    found = parse_counters(body.decode())
    if status != 200 or len(found) < 2:
        raise LoadError(f"/metrics (HTTP {status}) does not tell the engine's compute time")
    return found


def parse_counters(text: str) -> dict[str, float]:
    """Seconds of the engine in llama_decode (`compute`) and in its busy loop (`busy`)."""
    found = (_COUNTER.match(line) for line in text.splitlines())
    return {match[1]: float(match[2]) for match in found if match}


def _resident(server: Server, model: Path) -> memory.Resident:
    assert server.process is not None
    return memory.resident(machine.tree(server.process.pid), model)


def _budget(shape: Shape, kv_type: str) -> dict[str, int]:
    header = gguf.read(shape.model)
    kv = header.kv_bytes_per_token(kv_type) * shape.context
    total = shape.model.stat().st_size + kv + memory.ALLOWANCE
    return {"model": shape.model.stat().st_size, "kv": kv, "total": total}


def _print_step(step: Mapping[str, float]) -> None:
    share = step["python_share"]
    print(
        f"concurrency {step['concurrency']:>2}: {share:.2%} of a step outside llama_decode, target "
        f"{PYTHON_SHARE:.0%}: {_word(share <= PYTHON_SHARE)}; the daemon itself takes "
        f"{step['daemon_cpu_share']:.1%} of a core",
        flush=True,
    )


def _print_memory(used: memory.Resident, budget: Mapping[str, int]) -> None:
    mib = memory.MIB
    print(
        f"resident {used.pss / mib:.0f} MiB ({used.model_pss / mib:.0f} MiB of it the model file, "
        f"mapped; {used.anonymous / mib:.0f} MiB anonymous; RSS summed {used.rss / mib:.0f} MiB), "
        f"target {budget['total'] / mib:.0f} MiB = model {budget['model'] / mib:.0f} + KV "
        f"{budget['kv'] / mib:.0f} + 300: {_word(used.pss <= budget['total'])}"
    )


def _word(good: bool) -> str:
    return "reached" if good else "missed"


if __name__ == "__main__":
    unwind_on_sigterm()
    sys.exit(main())
