"""`python -m bench.ledger`: what the account costs and how fast it answers.

serving: throughput with ledger and token journal on against off, in pairs A B A B.
verify:  rows per second of the whole verification, and of --fast.
queries: `usage` and `requests list` on a ledger of millions of requests.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from appliance.ledger.database import connect
from appliance.ledger.queries import (
    RequestFilter,
    UsageFilter,
    actions,
    request,
    requests,
    usage,
)
from appliance.ledger.verify.check import verify
from bench import machine
from bench.filling import DAY, DAYS, FIRST_WALL_NS, SECOND, fill
from bench.load import LoadError, call
from bench.options import numbers, texts
from bench.report import NOISE, Cell
from bench.scenarios import EQUAL, SCENARIOS, Sizes, Workload, run_round
from bench.servers import Server, Shape, StartError, default_model, start_ours, unwind_on_sigterm
from bench.stats import Run

PARTS = ("serving", "verify", "queries")
SERVING = 0.99
"""Of the throughput without an account, at least."""
ROWS_PER_S = 50_000
QUERY_S = 0.1
"""From the page cache. From the disk it is told too, but that is the disk's own figure."""
_COLD, _WARM = 3, 5
"""Times each query starts from the disk, and times it is repeated after each."""
_LAST_NS = FIRST_WALL_NS + DAYS * DAY
_LAST_DAY = FIRST_WALL_NS // DAY + DAYS


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    found: dict[str, Any] = {
        "benchmark": "ledger",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
    }
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-", dir=options.folder) as folder:
        try:
            for part in options.parts:
                found[part] = _MEASURES[part](options, Path(folder))
        except (LoadError, StartError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    missed = sum(not cell["reached"] for part in options.parts for cell in found[part]["cells"])
    print(f"{missed} targets missed" if missed else "every target reached")
    return int(missed > 0)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.ledger", description=__doc__)
    add = parser.add_argument
    add("--parts", type=texts, default=PARTS, metavar="A,B", help=", ".join(PARTS))
    add("--concurrency", type=numbers, default=(1, 4, 8), metavar="N,N", help="of serving")
    add("--rounds", type=int, default=5, help="pairs per concurrency (default 5)")
    add("--per-round", type=int, default=0, help="requests (default: 2 x concurrency, at least 4)")
    add("--output-tokens", type=int, default=128, help="per request (default 128)")
    add("--threads", type=int, default=machine.usable_cores(), help="of the engine")
    add("--model", type=Path, help="a GGUF file (default: the packaged model)")
    add("--rows", type=int, default=200_000, help="to verify (default 200000)")
    add("--requests", type=int, default=5_000_000, help="to query (default 5000000)")
    add("--seed", type=int, default=1, help="of what is asked and generated")
    add("--folder", type=Path, help="where the generated ledgers go: about 2.5 GB per million")
    add("--json", type=Path, metavar="PATH", help="write everything measured")
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return options


# Serving


def measure_serving(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Two daemons that differ in the account alone, one loaded at a time."""
    scenario = next(s for s in SCENARIOS if s.name == "distinct-stream")
    work = Workload(None, Sizes(options.per_round, 100, options.output_tokens, 1, 1), options.seed)
    cells = []
    with _both(options, folder) as (on, off):
        _pair(work, scenario, 1, -1, on, off)
        for users in options.concurrency:
            pairs = [_pair(work, scenario, users, i, on, off) for i in range(options.rounds)]
            cells.append(_serving_cell(Cell(scenario, users, tuple(pairs))))
    return {"cells": cells}


@contextmanager
def _both(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Server, Server]]:
    model = (options.model or default_model()).resolve()
    shape = Shape(model, EQUAL.context, EQUAL.sequences, options.threads)
    with ExitStack() as stack:
        on = start_ours("on", shape, folder, {})
        stack.callback(on.stop)
        with _without_account():
            off = start_ours("off", shape, folder, {})
        stack.callback(off.stop)
        for server, counts in ((on, True), (off, False)):
            _check_account(server, counts)
        yield on, off


def _check_account(server: Server, counts: bool) -> None:
    """Raises LoadError unless it is as it was meant to be: else on is compared with on."""
    status, body = asyncio.run(call(server.address, "GET", "/readyz"))
    told = any(reason.startswith("ledger") for reason in json.loads(body).get("degraded", ()))
    if status != 200 or told == counts:
        raise LoadError(f"the account of {server.name} is not as asked: {body[:300]!r}")


@contextmanager
def _without_account() -> Iterator[None]:
    """For a daemon that is started meanwhile."""
    os.environ["STEELYARD_LEDGER"] = "off"
    try:
        yield
    finally:
        del os.environ["STEELYARD_LEDGER"]


def _pair(
    work: Workload, scenario: Any, users: int, number: int, on: Server, off: Server
) -> tuple[Run, Run]:
    asks = asyncio.run(work.round(scenario, users, number, on))
    return run_round(on, asks, users), run_round(off, asks, users)


def _serving_cell(cell: Cell) -> dict[str, Any]:
    measured = cell.ratios()
    speed, noise = measured["tokens_per_s"], cell.noise(machine.usable_cores())
    reached = speed.median >= SERVING
    noisy = noise is not None and noise > NOISE
    print(
        f"concurrency {cell.users:>2}: throughput {speed.median:.3f} ({speed.low:.3f}-"
        f"{speed.high:.3f}) of that without an account, target {SERVING}: {_word(reached)}"
        f"{f'; noisy: others took {noise:.0%} of the machine' if noisy else ''}",
        flush=True,
    )
    return {
        "concurrency": cell.users,
        "ratios": {name: dataclasses.asdict(value) for name, value in measured.items()},
        "noise": noise,
        "reached": reached,
    }


# Verification


def measure_verify(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Admissions and final rows with token ids, as a box has them."""
    path = folder / "verify.sqlite"
    requests = options.rows // 2
    fill(path, requests, seed=options.seed, admissions=True, tokens=True, progress=_progress)
    cells = []
    for name, deep in (("whole", True), ("--fast", False)):
        verdict = verify(path, deep=deep)
        if not verdict.ok or verdict.rows != 2 * requests:
            raise LoadError(f"the generated ledger is not sound: {verdict}")
        speed = verdict.rows / verdict.seconds
        reached = speed >= ROWS_PER_S
        print(
            f"verify {name}: {speed:,.0f} rows/s over {verdict.rows:,} rows, target "
            f"{ROWS_PER_S:,}: {_word(reached)}",
            flush=True,
        )
        cells.append({"how": name, "rows": verdict.rows, "rows_per_s": speed, "reached": reached})
    size = path.stat().st_size
    path.unlink()
    return {"cells": cells, "bytes": size}


# Queries

Query = Callable[[Database], Any]


def measure_queries(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Final rows alone, without token ids: what lists and sums read. Cold: the file is dropped from
    the page cache and the connection is new; warm: the same again."""
    path = folder / "queries.sqlite"
    count = options.requests
    began = time.perf_counter()
    fill(path, count, seed=options.seed, admissions=False, tokens=False, progress=_progress)
    took, size = time.perf_counter() - began, path.stat().st_size
    print(f"{count:,} requests, {size / 1e9:.1f} GB, made in {took:.0f} s", flush=True)
    cells = [_query_cell(name, query, path) for name, query in queries_on(path, count).items()]
    path.unlink()
    return {"cells": cells, "requests": count, "bytes": size, "fill_s": took}


def queries_on(path: Path, count: int) -> dict[str, Query]:
    """What operators and dashboards ask."""
    with closing(connect(path, read_only=True)) as db:
        known = request_in_the_middle(db, count)
    key, tenant, hour = "k_0000002a", "tenant 7", 3600 * SECOND
    month, day = _LAST_DAY - 30, _LAST_DAY - 1
    return {
        "usage, all": lambda db: usage(db),
        "usage of a month by key": lambda db: usage(db, UsageFilter(first_day=month), ("key_id",)),
        "usage by tenant and day": lambda db: usage(db, by=("day", "tenant")),
        "usage of a key by day": lambda db: usage(db, UsageFilter(key_id=key), ("day",)),
        "usage of a day by everything": lambda db: usage(
            db, UsageFilter(first_day=day), ("key_id", "scenario", "model", "route")
        ),
        "requests, newest": lambda db: requests(db),
        "requests, from the middle": lambda db: requests(db, cursor=count // 2),
        "requests of a key": lambda db: requests(db, RequestFilter(key_id=key)),
        "requests of a tenant that failed": lambda db: requests(
            db, RequestFilter(tenant=tenant, outcome="failed")
        ),
        "requests of a key in a scenario that were cancelled": lambda db: requests(
            db, RequestFilter(key_id=key, scenario="mail", outcome="cancelled")
        ),
        "requests of an hour long ago": lambda db: requests(
            db,
            RequestFilter(
                since_wall_ns=FIRST_WALL_NS + 5 * DAY, until_wall_ns=FIRST_WALL_NS + 5 * DAY + hour
            ),
        ),
        "requests of the last hour that failed": lambda db: requests(
            db, RequestFilter(outcome="failed", since_wall_ns=_LAST_NS - hour)
        ),
        "requests that cannot be": lambda db: requests(
            db, RequestFilter(tenant=tenant, key_id="k_00000000")
        ),
        "one request by its trace": lambda db: request(db, known),
        "actions": lambda db: actions(db),
    }


def request_in_the_middle(db: Database, count: int) -> str:
    (entry,) = requests(db, cursor=count // 2 + 1, limit=1).entries
    return entry.row.trace_id


def _query_cell(name: str, query: Query, path: Path) -> dict[str, Any]:
    cold, warm = [], []
    for _ in range(_COLD):
        _drop_cache(path)
        with closing(connect(path, read_only=True)) as db:
            cold.append(_timed(query, db))
            warm += [_timed(query, db) for _ in range(_WARM)]
    first, typical = statistics.median(cold), statistics.median(warm)
    reached = typical <= QUERY_S
    print(
        f"{name:<52} cold {first * 1e3:7.1f} ms, warm {typical * 1e3:7.2f} ms (at most "
        f"{max(warm) * 1e3:.1f}), target {QUERY_S * 1e3:.0f} warm: {_word(reached)}",
        flush=True,
    )
    return {"query": name, "cold_s": cold, "warm_s": warm, "reached": reached}


def _timed(query: Query, db: Database) -> float:
    began = time.perf_counter()
    query(db)
    return time.perf_counter() - began


def _drop_cache(path: Path) -> None:
    """The kernel forgets the file's pages, which all are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _progress(done: int) -> None:
    if done % 500_000 == 0:
        print(f"  {done:,} rows made", file=sys.stderr, flush=True)


def _word(good: bool) -> str:
    return "reached" if good else "missed"


_MEASURES = {"serving": measure_serving, "verify": measure_verify, "queries": measure_queries}


if __name__ == "__main__":
    unwind_on_sigterm()
    sys.exit(main())
