"""`python -m bench.bridge`: the line to the board, with the real firmware on a pseudo-terminal.

16 channels at 1 kHz for a minute: samples lost (by their absolute index), round trips of commands,
frames refused, and what both ends take of a core. Then what goes wrong: hangs (when the board warns
and cuts, by its own clock), a cable that is pulled, firmware updates, a million damaged frames.
Figures are this machine's; goals that count anywhere: nothing is lost or wrongly accepted, and the
watchdog is within 50 ms where the machine is not busy with other things.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.board.service import BoardService
from appliance.board.snapshot import BoardSnapshot
from appliance.config import BoardConfig
from appliance.snapshot import EngineSnapshot
from appliance.spread import spread
from bench import bridge_faults, machine
from firmware_bridge.commands import Ping, Stream
from firmware_bridge.events import Done, Samples
from firmware_bridge.link import Link
from firmware_bridge.simulation import Simulation

PARTS = ("line", "service", "hangs", "pulls", "updates", "power", "fuzz")
PING_EVERY_S = 0.05
TICKS = os.sysconf("SC_CLK_TCK")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.bridge", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--times", type=int, default=10, help="hangs of each kind, and pulls")
    parser.add_argument("--frames", type=int, default=1_000_000, help="damaged ones")
    parser.add_argument("--only", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "line": lambda: line(options.seconds),
        "service": lambda: service(options.seconds),
        "hangs": lambda: bridge_faults.hangs(options.times),
        "pulls": lambda: bridge_faults.pulls(options.times),
        "updates": bridge_faults.updates,
        "power": bridge_faults.power_cuts,
        "fuzz": lambda: bridge_faults.fuzz(options.frames),
    }
    found: dict[str, Any] = {"benchmark": "bridge", "machine": machine.facts()}
    for name in options.only or PARTS:
        found[name] = parts[name]()
        _print(name, found[name])
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if _reached(found) else 1


def _reached(found: dict[str, Any]) -> bool:
    """The goals that do not depend on how busy the machine is."""
    return bool(
        found.get("line", {}).get("lost", 0) == 0
        and found.get("pulls", {}).get("exact", True)
        and found.get("fuzz", {}).get("false_accepts", 0) == 0
        and found.get("power", {}).get("unfinished", 0) == 0
        and found.get("updates", {}).get("foreign", "refused") == "refused"
    )


def line(seconds: float) -> dict[str, Any]:
    """The link alone, with commands at 20 a second."""
    with Simulation() as board:
        link = Link(board.path)
        link.start()
        try:
            _until(lambda: link.telemetry.state == "ready")
            link.send(Stream(True))
            _until(lambda: link.telemetry.counters.samples > 0)
            return _measured(link, board.process.pid, seconds)
        finally:
            link.stop()


def _measured(link: Link, firmware: int, seconds: float) -> dict[str, Any]:
    link.take_events()
    before, begun = link.telemetry.counters, time.monotonic()
    host, board = time.process_time(), _cpu_s(firmware)
    trips: list[float] = []
    frames = 0
    while time.monotonic() - begun < seconds:
        link.send(Ping(b"bench"))
        time.sleep(PING_EVERY_S)
        for event in link.take_events():
            frames += isinstance(event, Samples)
            if isinstance(event, Done):
                trips.append(event.round_trip)
    took, after = time.monotonic() - begun, link.telemetry.counters
    middle, high, largest = spread(trips)
    return {
        "seconds": round(took, 1),
        "samples_per_s": round((after.samples - before.samples) / took, 1),
        "frames_per_s": round(frames / took, 1),
        "lost": after.lost - before.lost,
        "bad_frames": after.bad - before.bad,
        "commands": len(trips),
        "rtt_p50_ms": round(1000 * middle, 2),
        "rtt_p99_ms": round(1000 * high, 2),
        "rtt_max_ms": round(1000 * largest, 2),
        "host_cpu_pct": round(100 * (time.process_time() - host) / took, 2),
        "firmware_cpu_pct": round(100 * (_cpu_s(firmware) - board) / took, 2),
    }


def service(seconds: float) -> dict[str, Any]:
    """The whole service of the daemon: link, sensors, corrections, heartbeats."""

    def proving() -> EngineSnapshot:
        return EngineSnapshot(state="ready", last_progress=time.monotonic())

    with Simulation() as board:
        keeper = BoardService(BoardConfig(), device=board.path, engine=proving)
        keeper.start(lambda told: None)
        try:
            _until(lambda: keeper.snapshot.state == "armed")
            begun, host = time.monotonic(), time.process_time()
            left: list[float] = []
            off: list[tuple[float, float]] = []
            while time.monotonic() - begun < seconds:
                time.sleep(PING_EVERY_S)
                _note(keeper.snapshot, left, off)
            took = time.monotonic() - begun
            cpu = time.process_time() - host
        finally:
            keeper.stop()
    return {
        "host_cpu_pct": round(100 * cpu / took, 2),
        "left_ms_min": round(min(left)),
        "reference_rms_uv_raw": _rms([raw for raw, _ in off]),
        "reference_rms_uv_corrected": _rms([value for _, value in off]),
        "unfed": keeper.snapshot.unfed,
    }


def _note(board: BoardSnapshot, left: list[float], off: list[tuple[float, float]]) -> None:
    remaining = board.left_ms(time.monotonic())
    if remaining is not None:
        left.append(remaining)
    for one in board.readings:
        if one.name == "reference" and one.raw is not None and one.value is not None:
            off.append((one.raw - 1.0, one.value - 1.0))


def _rms(volts: list[float]) -> float:
    return round(1e6 * math.sqrt(sum(v * v for v in volts) / len(volts)), 1)


def _until(condition: Any, patience_s: float = 20.0) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("the simulated board did not answer: is micropython installed?")
        time.sleep(0.02)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _print(part: str, found: dict[str, Any]) -> None:
    print(part)
    for name, value in found.items():
        print(f"  {name:28} {value}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
