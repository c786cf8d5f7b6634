"""`python -m bench.console`: what consoles cost the box, and what one costs the desk it runs on.

Throughput with five listeners on /events over throughput with none, in pairs; and of a real console
on a terminal, with 200 requests in its table: seconds to the first screen, and share of one core.
"""

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.accounts.keys import FILE_NAME, KeyStore
from bench import machine
from bench.load import Address, LoadError, call, request_bytes
from bench.once import kept
from bench.options import numbers
from bench.scenarios import SCENARIOS, Sizes, Workload, run_round
from bench.servers import Server, Shape, default_model, start_ours, unwind_on_sigterm

LISTENERS = 5
COST = 0.01
"""Of the throughput, at most."""
CORE_SHARE = 0.05
START_S = 1.0
ROWS = 200
_FIRST_SCREEN = b"age "
"""Row 1 tells how old what is shown is: so something is shown."""
_SIZE = (24, 80)


def main(argv: list[str] | None = None) -> int:
    return kept(measure, parse(argv))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.console", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=6, help="pairs per row (default 6)")
    add("--concurrency", type=numbers, default=(1, 8), metavar="N,N")
    add("--seconds", type=float, default=20.0, help="over which the console's CPU is taken")
    add("--starts", type=int, default=5)
    add("--json", type=Path, metavar="PATH", help="write everything measured")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    shape = Shape(default_model(), 8192, 16, machine.usable_cores())
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as name:
        folder = Path(name)
        state = folder / "box-state"
        state.mkdir(mode=0o700)
        key = KeyStore(state / FILE_NAME).create("bench", ("admin", "metrics"))
        server = start_ours("box", shape, folder, {"limits.queue_requests": 256})
        try:
            listened = [_listened(server, key, users, options.rounds) for users in
                        options.concurrency]  # fmt: skip
            told = _telling(server, key, options.seconds)
            desk = asyncio.run(_on_a_desk(server, key, options))
        finally:
            server.stop()
    return {
        "benchmark": "console",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "listeners": listened,
        "telling": told,
        "desk": desk,
    }


# -- what it costs the box -------------------------------------------------------------------------


def _listened(server: Server, key: str, users: int, rounds: int) -> dict[str, Any]:
    work = Workload(None, Sizes(2 * users, 100, 128, 1, 1), seed=1)
    scenario = next(one for one in SCENARIOS if one.name == "distinct-stream")
    ratios = []
    for number in range(-1, rounds):
        asks = asyncio.run(work.round(scenario, users, number, server))
        speed = {}
        for heard in (False, True) if number % 2 else (True, False):
            with _listening(server.address, key) if heard else contextlib.nullcontext():
                run = run_round(server, asks, users)
            speed[heard] = sum(r.completion_tokens for r in run.replies) / run.wall
        if number >= 0:
            ratios.append(speed[True] / speed[False])
    median = statistics.median(ratios)
    verdict = "reached" if median >= 1 - COST else "missed"
    print(
        f"{LISTENERS} listeners, {users} users: throughput {median:.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}), target {1 - COST:.2f}: {verdict}"
    )
    return {"users": users, "ratios": ratios, "median": median}


def _telling(server: Server, key: str, seconds: float) -> dict[str, float]:
    """The daemon's CPU over wall time while the box is idle, without listeners and with them: a
    finer measure than throughput, whose rounds differ by more than what is looked for."""
    assert server.process is not None
    shares = {}
    for heard in (False, True):
        with _listening(server.address, key) if heard else contextlib.nullcontext():
            time.sleep(1)
            before, began = machine.cpu_alone(server.process.pid), time.perf_counter()
            time.sleep(seconds)
            used = machine.cpu_alone(server.process.pid) - before
            shares["heard" if heard else "alone"] = used / (time.perf_counter() - began)
    print(
        f"daemon, idle: {shares['alone']:.1%} of one core alone, {shares['heard']:.1%} with "
        f"{LISTENERS} listeners"
    )
    return shares


@contextmanager
def _listening(address: Address, key: str) -> Iterator[None]:
    """Listeners in a process of their own, as consoles are: they read and throw away."""
    command = [sys.executable, "-m", "bench.console_listen", address.host, str(address.port)]
    process = subprocess.Popen(
        [*command, str(LISTENERS)],
        env={**os.environ, "STEELYARD_ADMIN_KEY": key},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"listening\n":
            raise LoadError("the listeners did not get through to /events")
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# -- what it costs the desk ------------------------------------------------------------------------


async def _on_a_desk(server: Server, key: str, options: argparse.Namespace) -> dict[str, Any]:
    starts = [await asyncio.to_thread(_start_s, server.address, key)
              for _ in range(options.starts)]  # fmt: skip
    start = statistics.median(starts)
    print(
        f"console: first screen after {start:.2f} s, target {START_S:.0f}: {_word(start, START_S)}"
    )
    await _admin(server, key, "/admin/hold")
    writers = [await _waiting(server.address, number) for number in range(ROWS)]
    share = await asyncio.to_thread(_share, server.address, key, options.seconds)
    for writer in writers:
        writer.close()
    await _admin(server, key, "/admin/resume")
    print(
        f"console: {share:.1%} of one core with {ROWS} requests shown, target "
        f"{CORE_SHARE:.0%}: {_word(share, CORE_SHARE)}"
    )
    return {"starts_s": starts, "core_share": share}


def _word(value: float, most: float) -> str:
    return "reached" if value <= most else "missed"


async def _admin(server: Server, key: str, path: str) -> None:
    status, body = await call(server.address, "POST", path, {}, key)
    if status != 200:
        raise LoadError(f"POST {path}: {status} {body.decode(errors='replace')[:200]}")


async def _waiting(address: Address, number: int) -> asyncio.StreamWriter:
    """A request that waits: the queue is held."""
    body = {"model": "default", "prompt": f"number {number}", "max_tokens": 8, "stream": True}
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request_bytes(address, "POST", "/v1/completions", json.dumps(body).encode()))
    await writer.drain()
    return writer


def _start_s(address: Address, key: str) -> float:
    began = time.perf_counter()
    with _console(address, key) as (_, screen):
        _until(screen, _FIRST_SCREEN)
        return time.perf_counter() - began


def _share(address: Address, key: str, seconds: float) -> float:
    """CPU of the console that shows the table, over wall time."""
    with _console(address, key) as (process, screen):
        _until(screen, _FIRST_SCREEN)
        os.write(screen, b"2")
        _read(screen, 3.0)
        before, began = machine.cpu_of(process.pid), time.perf_counter()
        _read(screen, seconds)
        used = machine.cpu_of(process.pid) - before
        return used / (time.perf_counter() - began)


@contextmanager
def _console(address: Address, key: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """`steelyard tui` on a terminal of its own."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *_SIZE, 0, 0))
    url = f"http://{address.host}:{address.port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "tui", "--url", url, "--operator", "bench"],
        env={**os.environ, "STEELYARD_ADMIN_KEY": key, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        yield process, screen
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def _until(screen: int, text: bytes) -> None:
    seen, deadline = b"", time.monotonic() + 60
    while text not in seen:
        if time.monotonic() > deadline:
            raise LoadError(f"the console never showed {text!r}")
        seen += _read(screen, 0.02)


def _read(screen: int, seconds: float) -> bytes:
    """What it writes for so long; a terminal must be read, or the console stops."""
    seen, deadline = b"", time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([screen], [], [], left)[0]:
            seen += os.read(screen, 1 << 16)
    return seen


if __name__ == "__main__":
    unwind_on_sigterm()
    sys.exit(main())
