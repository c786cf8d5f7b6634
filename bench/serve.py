"""`python -m bench.serve`: Steelyard against llama-server's own code, in pairs A B A B.

Same model, threads, context and number of sequences; the figures are ratios ours / peer.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import machine
from bench.load import LoadError
from bench.options import Value, assignment, numbers, texts
from bench.peer import PeerError
from bench.report import NOISE, Cell, document, header, noise_of, row
from bench.scenarios import SCENARIOS, Profile, Scenario, Sizes, Workload, run_round
from bench.servers import (
    Server,
    Shape,
    StartError,
    default_model,
    running,
    start_ours,
    start_peer,
    unwind_on_sigterm,
)
from bench.stats import Run

Sides = tuple[Server, Server]
Pair = tuple[Run, Run]

SELF_CHECK = 0.05
"""How far from 1 the ratio of the peer to itself may be on a quiet machine."""

_EQUAL: dict[str, Value] = {"engine.draft_tokens": 0, "engine.flash_attention": "on"}
"""llama-server drafts nothing and turns flash attention on where the backend has it."""


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        cells, about = measure(options)
    except (LoadError, StartError, PeerError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if options.json:
        text = json.dumps(document(cells, about, machine.usable_cores()), indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    return conclude(cells, options.self_check)


def conclude(cells: Sequence[Cell], self_check: bool) -> int:
    """Says how it went: exit status 1 when a target was missed, or a check of the benchmark."""
    if self_check:
        off = max(abs(cell.ratios()["tokens_per_s"].median - 1) for cell in cells)
        print(f"self-check: throughput ratios at most {off:.1%} from 1, allowed {SELF_CHECK:.0%}")
        return int(off > SELF_CHECK)
    missed = sum(not good for cell in cells for good in cell.verdict().values())
    print(f"{missed} targets missed" if missed else "every target reached")
    return int(missed > 0)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.serve", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    add = parser.add_argument
    add("--scenarios", type=texts, default=names, metavar="A,B", help=", ".join(names))
    add("--concurrency", type=numbers, metavar="N,N", help="instead of each scenario's own")
    add("--rounds", type=int, default=3, help="pairs per cell (default 3)")
    add("--retries", type=int, default=0, help="noisy rounds per cell that are measured again")
    add("--requests", type=int, default=0, help="per round (default: 2 x concurrency, at least 4)")
    add("--prompt-tokens", type=int, default=100, help="of distinct prompts (default 100)")
    add("--output-tokens", type=int, default=128, help="of distinct prompts (default 128)")
    add("--turns", type=int, default=4, help="of a dialogue (default 4)")
    add("--answer-tokens", type=int, default=64, help="in a dialogue, at most (default 64)")
    add("--threads", type=int, default=machine.usable_cores(), help="of each server's engine")
    add("--model", type=Path, help="a GGUF file (default: the packaged model)")
    add("--seed", type=int, default=1, help="of prompts and their order")
    add("--json", type=Path, metavar="PATH", help="write everything measured")
    add("--url", help="a running Steelyard, used as it is")
    add("--peer-url", help="a running llama-server, used as it is")
    add("--ours-set", type=assignment, action="append", default=[], metavar="KEY=VALUE",
        help="a setting of steelyard.toml, e.g. engine.draft_tokens=4; in a self-check a "
        "parameter of the peer, which then stands in for ours")  # fmt: skip
    add("--peer-set", type=assignment, action="append", default=[], metavar="KEY=VALUE",
        help="a parameter of the peer, e.g. kv_unified=true")  # fmt: skip
    add("--self-check", action="store_true", help="the peer on both sides: ratios must be near 1")
    options = parser.parse_args(argv)
    if unknown := set(options.scenarios) - set(names):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def measure(options: argparse.Namespace) -> tuple[list[Cell], dict[str, Any]]:
    """Runs all that was asked for, printing each row as it is known."""
    data = os.environ.get("STEELYARD_DATA")
    chosen = list(_chosen(options, bool(data)))
    if not chosen:
        raise ValueError("nothing is left to measure")
    sizes = Sizes(
        options.requests,
        options.prompt_tokens,
        options.output_tokens,
        options.turns,
        options.answer_tokens,
    )
    workload = Workload(Path(data) if data else None, sizes, options.seed)
    about = _about(options, bool(data))
    cells: list[Cell] = []
    print(header(), flush=True)
    for profile in dict.fromkeys(scenario.profile for scenario in chosen):
        with both_sides(options, profile) as (ours, peer):
            about["servers"].append(_servers(profile, ours, peer))
            for scenario in (s for s in chosen if s.profile is profile):
                for users in options.concurrency or scenario.concurrency:
                    cells.append(_cell(scenario, users, options, workload, (ours, peer)))
                    print(row(cells[-1], machine.usable_cores()), flush=True)
    return cells, about


def _chosen(options: argparse.Namespace, has_data: bool) -> Iterable[Scenario]:
    for scenario in SCENARIOS:
        if scenario.name not in options.scenarios:
            continue
        if scenario.needs_data and not has_data:
            print(f"{scenario.name}: left out, since STEELYARD_DATA does not name the data folder")
            continue
        yield scenario


def _cell(
    scenario: Scenario, users: int, options: argparse.Namespace, work: Workload, sides: Sides
) -> Cell:
    """A warm-up of one request a side, then the rounds. Noisy ones are measured again while
    `--retries` lasts.
    """
    pairs: list[Pair] = []
    retries, number = options.retries, 0
    _round(scenario, 1, -1, work, sides, only=1)
    while len(pairs) < options.rounds:
        pair = _round(scenario, users, number, work, sides)
        number += 1
        if retries and (noise_of(pair, machine.usable_cores()) or 0) > NOISE:
            retries -= 1
            continue
        pairs.append(pair)
    return Cell(scenario, users, tuple(pairs))


def _round(
    scenario: Scenario,
    users: int,
    number: int,
    work: Workload,
    sides: Sides,
    only: int | None = None,
) -> Pair:
    """The same jobs for ours, then for the peer."""
    ours, peer = sides
    asks = asyncio.run(work.round(scenario, users, number, peer))[:only]
    return run_round(ours, asks, users), run_round(peer, asks, users)


@contextmanager
def both_sides(options: argparse.Namespace, profile: Profile) -> Iterator[Sides]:
    """Ours and the peer, up and ready; ended when the block is left."""
    model = (options.model or default_model()).resolve()
    shape = Shape(model, profile.context, profile.sequences, options.threads)
    mine = (_EQUAL if profile.equal else {}) | dict(options.ours_set)
    theirs = dict(options.peer_set)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="steelyard-bench-")))
        if options.peer_url:
            peer = running("peer", options.peer_url)
        else:
            peer = start_peer("peer", shape, folder, theirs)
            stack.callback(peer.stop)
        if options.url:
            ours = running("ours", options.url)
        elif options.self_check:
            ours = start_peer("ours", shape, folder, theirs | dict(options.ours_set))
        else:
            ours = start_ours("ours", shape, folder, mine)
        stack.callback(ours.stop)
        yield ours, peer


def _about(options: argparse.Namespace, has_data: bool) -> dict[str, Any]:
    return {
        "benchmark": "serve",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "self_check": options.self_check,
        "machine": machine.facts(),
        "model": (options.model or default_model()).name,
        "real_prompts": has_data,
        "options": {name: _plain(value) for name, value in vars(options).items()},
        "servers": [],
    }


def _plain(value: object) -> object:
    return value.name if isinstance(value, Path) else value


def _servers(profile: Profile, ours: Server, peer: Server) -> dict[str, Any]:
    """Both sides' settings, so that a reader sees that they were equal."""
    return {
        "sequences": profile.sequences,
        "context": profile.context,
        "equal_settings": profile.equal,
        "ours": _server(ours),
        "peer": _server(peer),
    }


def _server(server: Server) -> dict[str, Any]:
    """Without the folders of this machine."""
    settings = {
        name: Path(value).name if isinstance(value, str) and os.sep in value else value
        for name, value in server.settings.items()
    }
    return {"settings": settings, **server.about}


if __name__ == "__main__":
    unwind_on_sigterm()
    sys.exit(main())
