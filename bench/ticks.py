"""`python -m bench.ticks`: how late the control loop's ticks are while the engine has all cores.

A box with 8 answers at a time, on all cores; the ticker of a real daemon, asked through
/admin/control. Once as the system allows (SCHED_RR where it may), once without CAP_SYS_NICE (then
the engine is niced), beside the work of a tick for 64 requests, in this process. Figures mean
nothing on a machine that does something else. Exit status: 0 all goals reached, 1 some missed, 2
could not measure.
"""

import argparse
import asyncio
import ctypes
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from appliance.spread import spread
from bench import servers
from bench.load import LoadError, call, post
from bench.machine import facts
from bench.servers import Server, Shape, StartError

AT_ONCE = 8
WINDOW_S = 20.5
"""The ticker tells of its newest 2,048 ticks."""
LATE_MS, OVERRUN_PCT, COST_MS = 2.0, 0.1, 0.3
KEY_S = 10.0
PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23
Goals = dict[str, tuple[float, bool]]


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    found: dict[str, Any] = {"benchmark": "ticks", "machine": facts()}
    goals: Goals = {}
    try:
        found["cost"] = cost()
        goals["cost p99 ms, 64 requests"] = _at_most(found["cost"]["p99_ms"], COST_MS)
        for name in options.modes:
            found[name] = _box(name, options)
            _judge(name, found[name], goals)
    except (LoadError, StartError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1))
    for name, (value, good) in goals.items():
        print(f"{'reached' if good else 'MISSED '} {name}: {value:.3f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(good for _, good in goals.values()) else 1


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.ticks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=62.0, help="of load, for each mode")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--model", type=Path, help="GGUF; else the default one")
    parser.add_argument(
        "--modes", nargs="*", default=["as allowed", "niced"], choices=["as allowed", "niced"]
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args(argv)


def _at_most(value: float, most: float) -> tuple[float, bool]:
    return value, value <= most


def _judge(name: str, found: dict[str, Any], goals: Goals) -> None:
    mode = f"{name} ({found['mode']})"
    goals[f"{mode}: late p99 ms, worst window"] = _at_most(found["late_p99_ms"], LATE_MS)
    goals[f"{mode}: deadlines not kept, %"] = _at_most(found["overrun_pct"], OVERRUN_PCT)


# -- a real box ----------------------------------------------------------------------------------


def _box(name: str, options: argparse.Namespace) -> dict[str, Any]:
    model = options.model or servers.default_model()
    shape = Shape(model, 8192, options.at_once, options.threads)
    with tempfile.TemporaryDirectory() as folder:
        before = _without_priority() if name == "niced" else None
        server = servers.start_ours("ours", shape, Path(folder), {}, before=before)
        try:
            key = _admin_key(Path(folder) / "ours.log")
            return asyncio.run(_loaded(server, key, options))
        finally:
            server.stop()


def _without_priority() -> Any:
    """For a child: it and its own may not be ahead of others."""
    libc = ctypes.CDLL(None, use_errno=True)

    def drop() -> None:
        libc.prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)

    return drop


def _admin_key(log: Path) -> str:
    """It is printed right after the box is ready."""
    end = time.monotonic() + KEY_S
    while time.monotonic() < end:
        found = re.search(r"sk-steelyard-[^\s.]+\n", log.read_text(encoding="utf-8"))
        if found is not None:
            return found[0].strip()
        time.sleep(0.05)
    raise StartError("the daemon printed no admin key")


async def _loaded(server: Server, key: str, options: argparse.Namespace) -> dict[str, Any]:
    until = time.monotonic() + options.seconds
    users = [asyncio.create_task(_user(server, at, until)) for at in range(options.at_once)]
    await asyncio.sleep(2.0)
    before = await _ticker(server, key)
    windows = []
    while time.monotonic() + WINDOW_S < until:
        await asyncio.sleep(WINDOW_S)
        windows.append(await _ticker(server, key))
    for user in users:
        user.cancel()
    await asyncio.gather(*users, return_exceptions=True)
    if not windows:
        raise LoadError(f"--seconds must be more than {WINDOW_S + 2:g}")
    after = windows[-1]
    missed = sum(after[part] - before[part] for part in ("overruns", "skipped"))
    due = sum(after[part] - before[part] for part in ("ticks", "skipped"))
    return {
        "mode": after["mode"],
        "ticks": after["ticks"] - before["ticks"],
        "overrun_pct": round(100 * missed / max(1, due), 4),
        "late_p50_ms": max(one["late_p50_ms"] for one in windows),
        "late_p99_ms": max(one["late_p99_ms"] for one in windows),
        "late_max_ms": max(one["late_max_ms"] for one in windows),
        "cost_p50_ms": max(one["cost_p50_ms"] for one in windows),
        "cost_p99_ms": max(one["cost_p99_ms"] for one in windows),
    }


async def _user(server: Server, number: int, until: float) -> None:
    """One answer after the other."""
    done = 0
    while time.monotonic() < until:
        body = {
            "messages": [{"role": "user", "content": f"Tell story {number} of {done}."}],
            "max_tokens": 200,
        }
        await post(server.address, "/v1/chat/completions", {**body, "stream": True})
        done += 1


async def _ticker(server: Server, key: str) -> dict[str, Any]:
    status, body = await call(server.address, "GET", "/admin/control", key=key)
    if status != 200:
        raise LoadError(f"/admin/control answered {status}")
    found = json.loads(body)
    if found["degraded"]:
        raise LoadError(f"the control loop is degraded: {found['degraded']}")
    return dict(found["ticker"])


# -- the work of a tick --------------------------------------------------------------------------


def cost(requests: int = 64, ticks: int = 3000) -> dict[str, float]:
    """Of the windows alone, with so many requests in flight, of which one ends every 50 ms."""
    from appliance.compensation import Compensation
    from appliance.forecast.conformal import TAUS, Table, correct
    from appliance.forecast.hazard import Lengths
    from appliance.forecast.told import Forecast, ForecasterSnapshot

    raw = Lengths.from_logits([-2.0] * 24)
    told = correct(raw, (0.0,) * len(TAUS))
    forecast = Forecast("v", "ok", raw, 1, 2, 3, 4, 2, 512, "chat", corrected=told)
    calibrated = ForecasterSnapshot(version="v", calibration=Table())
    compensation = Compensation("m", forecaster=lambda: calibrated)
    took = []
    for tick in range(ticks):
        now = tick / 100
        if tick % 5 == 0:
            compensation.observe(forecast, 1 + 37 * tick % 500, tick % 3 == 0)
        if tick % 50 == 0:
            compensation.running([(forecast, 1 + (tick + 7 * n) % 400) for n in range(requests)])
        begun = time.thread_time()
        compensation.tick(now)
        took.append(1e3 * (time.thread_time() - begun))
    names = ("p50_ms", "p99_ms", "max_ms")
    return {name: round(ms, 4) for name, ms in zip(names, spread(took), strict=True)}


if __name__ == "__main__":
    sys.exit(main())
