"""`python -m bench.kill --kills 200`: SIGKILL to daemon and engine at random instants, under random
load; afterwards every token is looked for.

What a client received and what the engine wrote down must be in the ledger, and nothing else.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.servers import unwind_on_sigterm
from tests.box.asking import Asked, ask
from tests.box.ledgered import Journalled, Ledgered, Row, check_chain, check_sums, check_usage
from tests.box.running import RunningBox

ENGINE = {"max_sequences": 4, "restarts": 100, "restart_window_s": 1}
WAITS_S = (0.05, 0.4, 1.5)
"""From the load to the kill: a random part of one of these."""
LONGEST_START_S = 1.2
"""A daemon that is killed while it starts has come that far at most."""
IN_VAIN = 0.25
"""Share of starts that are killed too."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request and what its client has of it."""

    name: str
    asked: Asked
    parts: int
    n: int
    hung_up: bool

    @property
    def received(self) -> dict[int, list[int]]:
        """Token ids by choice, numbered through over the prompts."""
        found: dict[int, list[int]] = defaultdict(list)
        for choice in self.asked.choices:
            found[choice["index"]] += choice.get("token_ids") or ()
        return found

    @property
    def complete(self) -> bool:
        return self.asked.status == 200 and not self.asked.errors and bool(self._usage())

    def _usage(self) -> list[dict[str, Any]]:
        return [event["usage"] for event in self.asked.events if event.get("usage")]


@dataclass(slots=True)
class Toll:
    """What it came to."""

    daemons: int = 0
    engines: int = 0
    requests: int = 0
    received: int = 0
    """Tokens that clients had."""
    journalled: int = 0
    """Tokens that were looked up in the journal of a killed daemon."""
    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.daemons + self.engines

    @property
    def sound(self) -> bool:
        return not (self.lost or self.doubled or self.faults)

    def compare(self, wanted: Sequence[int], kept: Sequence[int], *, whole: bool) -> None:
        """`wanted` must be what was kept, or its beginning."""
        same = 0
        for a, b in zip(wanted, kept, strict=False):
            if a != b:
                break
            same += 1
        self.lost += len(wanted) - same
        if whole:
            self.doubled += len(kept) - same

    def __str__(self) -> str:
        lines = [
            f"{self.kills} kills: {self.daemons} of the daemon, {self.engines} of the engine; "
            f"{self.requests} requests, {self.received} tokens received by clients, "
            f"{self.journalled} compared with the journal: {self.lost} lost, {self.doubled} doubled"
        ]
        return "\n".join([*lines, *self.faults])


class Ordeal:
    """One state directory, and a box on it that is killed again and again."""

    def __init__(self, home: Path, seed: int, *, progress: bool = False) -> None:
        self.toll = Toll()
        self._home = home
        self._pick = random.Random(seed)
        self._progress = progress
        self._ledger = Ledgered(home / "state")
        self._calls: list[Call] = []
        self._truths: dict[int, Journalled] = {}

    def run(self, kills: int) -> Toll:
        """So many kills; then a last start, which must account for everything."""
        while self.toll.kills < kills:
            with self._start() as box:
                self._live(box, kills)
            self._truths.update(self._ledger.journal())
            if self._pick.random() < IN_VAIN:
                self._start_in_vain()
        with self._start() as box:
            self._wait_for_all()
            check_sums(box, self._ledger)
            status = box.stop()
        if status != 0:
            self.toll.faults.append(f"the last daemon ended with {status}")
        self._judge()
        return self.toll

    def _start(self) -> Any:
        return RunningBox.start(self._home, engine=ENGINE, server={"drain_s": 0})

    # -- a life ----------------------------------------------------------------------------------

    def _live(self, box: RunningBox, kills: int) -> None:
        """Until the daemon is killed."""
        if self._ledger.in_flight:
            self.toll.faults.append("a start left admissions without a final row")
        while True:
            for _ in range(self._pick.randrange(1, 7)):
                self._calls.append(self._call(box))
            self._wait(self._pick.random() * self._pick.choice(WAITS_S))
            self._hang_up_some()
            daemon = self._strike(box)
            if self._progress and self.toll.kills % 10 == 0:
                print(f"{self.toll.kills} kills", flush=True)
            if daemon or self.toll.kills >= kills:
                break
            if self._pick.random() < 0.7:
                box.wait_ready()
            if self._pick.random() < 0.3:
                self._wait_for_all()
                check_sums(box, self._ledger)
        if not daemon:
            box.process.kill()
            box.process.wait()
        self._wait_for_all()

    def _strike(self, box: RunningBox) -> bool:
        """Kills the engine, the daemon, or both; whether the daemon is gone."""
        target = self._pick.choice(("engine", "engine", "daemon", "both"))
        if target != "daemon" and (engine := engine_of(box)) is not None:
            engine.kill()
            self.toll.engines += 1
        if target == "engine":
            return False
        if target == "both":
            self._wait(self._pick.random() * 0.1)
        box.process.kill()
        box.process.wait()
        self.toll.daemons += 1
        return True

    def _call(self, box: RunningBox) -> Call:
        pick = self._pick
        parts, n = pick.choice((1, 1, 1, 2)), pick.choice((1, 1, 2))
        name = f"call-{len(self._calls)}"
        prompts = [
            f"Story {pick.randrange(6)}" + " and on" * pick.randrange(60) for _ in range(parts)
        ]
        asked = ask(
            box,
            prompts if parts > 1 else prompts[0],  # type: ignore[arg-type]
            headers={"X-Request-Id": name},
            n=n,
            stream=pick.random() < 0.7,
            max_tokens=pick.choice((1, 8, 40, 300)),
            ignore_eos=pick.random() < 0.6,
            temperature=pick.choice((0, 1.0)),
        )
        return Call(name, asked, parts, n, pick.random() < 0.2)

    def _hang_up_some(self) -> None:
        for call in self._calls:
            if call.hung_up and not call.asked.over:
                try:
                    call.asked.hang_up()
                except OSError:
                    continue  # it had just ended

    def _wait_for_all(self) -> None:
        for call in self._calls:
            call.asked.wait()

    def _start_in_vain(self) -> None:
        """A daemon that is killed before it is ready."""
        config = self._home / "steelyard.toml"
        with open(self._home / "log-in-vain", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "appliance", "serve", "--config", str(config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(self._home / "state")},
            )
        self._wait(self._pick.random() * LONGEST_START_S)
        process.kill()
        process.wait()
        self.toll.daemons += 1

    def _wait(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    # -- the verdict -----------------------------------------------------------------------------

    def _judge(self) -> None:
        rows = self._ledger.rows()
        check_chain(self._ledger)
        named: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            named[row["request_id"]].append(row)
        self.toll.requests = len(self._calls)
        for call in self._calls:
            self._judge_call(call, sorted(named[call.name], key=lambda row: int(row["part"])))
        numbered = {row["number"]: row for row in rows}
        for number, truth in self._truths.items():
            self._judge_journal(number, truth, numbered.get(number))

    def _judge_call(self, call: Call, rows: list[Row]) -> None:
        received = call.received
        self.toll.received += sum(map(len, received.values()))
        if len({row["part"] for row in rows}) != len(rows):
            self.toll.faults.append(f"{call.name} has {len(rows)} rows")
            return
        if not call.asked.status and not rows:
            return  # killed before it was admitted, and nobody was told anything
        if call.asked.status == 200 and len(rows) != call.parts:
            self.toll.faults.append(f"{call.name} has {len(rows)} rows for {call.parts} prompts")
        kept = {row["part"]: self._ledger.tokens(row)[1:] for row in rows if row["tokens_sha256"]}
        for choice, ids in received.items():
            part = kept.get(choice // call.n, [[]] * call.n)
            self.toll.compare(ids, part[choice % call.n], whole=call.complete)
        if call.complete:
            check_usage(rows, call.asked.usage)

    def _judge_journal(self, number: int, truth: Journalled, row: Row | None) -> None:
        tokens = truth.sums.completion
        self.toll.journalled += tokens
        if row is None:
            self.toll.lost += tokens
            self.toll.faults.append(f"request {number} is in the journal and has no row")
            return
        counted = (row["prefill_tokens"], row["cached_tokens"], row["completion_tokens"])
        if counted != (truth.prefill, truth.cached, tokens):
            self.toll.faults.append(f"request {number}: {counted} in the ledger, journal {truth}")
        if row["tokens_sha256"] is None:  # its admission was lost: counts alone are kept
            return
        for choice, kept in enumerate(self._ledger.tokens(row)[1:]):
            self.toll.compare(truth.tokens.get(choice, []), kept, whole=True)


def engine_of(box: RunningBox) -> Any:
    """None between two lives."""
    try:
        return box.engine()
    except StopIteration:
        return None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="at least so many (default 200)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args(argv)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as folder:
        toll = Ordeal(Path(folder), options.seed, progress=True).run(options.kills)
    print(toll)
    return 0 if toll.sound else 1


if __name__ == "__main__":
    unwind_on_sigterm()
    sys.exit(main())
