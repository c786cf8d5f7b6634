"""The account under random work, cancellations and deaths: real engine loop, journal, tickets,
books and ledger around a scripted model. Whatever happened, every request has one final row, and
the rows sum to what the journal was given, to the token.

Both processes die at any record: within the write of a step's records, between that write and the
telling, with what was told read or not. What the daemon had queued for the ledger dies with it.
"""

import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.engine import step as step_module
from appliance.engine.commands import Cancel, Command, Ping, Sampling
from appliance.engine.reports import Batch, Pong, Report, Stats
from appliance.engine.step import Engine
from appliance.errors import EngineFailed, Unavailable
from appliance.ledger import recovery, writer
from appliance.ledger.books import Books, Caller, Identity, Texts
from appliance.ledger.recovery import read_lost
from appliance.ledger.restart import numbers_in, recover, settled, spent
from appliance.ledger.rows import RequestRow
from appliance.ledger.verify import unpack_tokens
from appliance.ledger.verify.check import verify
from appliance.ledger.writer import Ledger
from appliance.snapshot import Unreported, accumulate, with_unreported
from appliance.ticket import CancelReason, Ticket
from appliance.tickets import Tickets
from appliance.watchdog import Cause
from tests.unit.engine_parts import FakeRunner, make_scheduler, make_submit, next_token
from tests.unit.life_parts import (
    SEGMENT,
    Client,
    Desk,
    Killed,
    MortalJournal,
    Truth,
    Truths,
    cut,
    minus,
    quick,
    truths_in,
)
from tests.unit.step_parts import no_grammar

KEY = "k_0000002a"
CALLER = Caller("t" * 32, "q", "/v1/completions", KEY, "app", "sales", "", 1.0)
CRASHED = Cause("engine_crashed", "died")
STOPPING = Unavailable("the box is shutting down", code="shutting_down")
MODELS: dict[str, Callable[[list[int]], int]] = {
    "plain": next_token,
    "short": lambda tokens: 30 if next_token(tokens) == 0 else next_token(tokens),
    "ill": lambda tokens: -1 if next_token([*tokens, 7]) == 0 else next_token(tokens),
}
"""One that goes on, one that ends by itself, one whose logits are no numbers now and then."""


class Life(RuleBasedStateMachine):
    """One state directory, the processes that come and go, and all that is known to be true."""

    def __init__(self) -> None:
        super().__init__()
        self._patches = ExitStack()
        for module, name, value in (
            (recovery, "SEGMENT_RECORDS", SEGMENT),
            (step_module, "JOURNAL_RESERVE", 8),
            (writer, "COMPANY_S", 0.0),
        ):
            self._patches.enter_context(mock.patch.object(module, name, value))
        self.home = Path(tempfile.mkdtemp(prefix="steelyard-"))
        self.truths: Truths = {}
        self.clients: dict[int, Client] = {}
        self.doubtful: set[int] = set()
        """Open when the power went: what of them was not on disk is gone."""
        self.names = itertools.count()
        self.pid = 1000
        self.boot = 0
        self.start_daemon()

    # -- the processes ---------------------------------------------------------------------------

    def start_daemon(self) -> None:
        identity = Identity("tiny", "ab" * 32, "cd" * 32, "test", str(self.boot))
        self.ledger = Ledger.open(self.home / "ledger.sqlite", connect=quick)
        recover(self.ledger, self.home / "journal", identity)
        self.desk = Desk(self.ledger)
        self.books = Books(self.desk, identity, costing=lambda row: None, texts=Texts())
        self.tickets = Tickets(self.tell_cancel)
        self.engine: Engine | None = None
        self.past = self.stats = Stats()
        self.before = self.total
        self.start_engine()

    def start_engine(self) -> None:
        self.pid += 1
        self.inbox: list[Command] = []
        self.wire: list[Report] = []
        self.mute_at: int | None = None
        self.runner = FakeRunner(self.write_token)
        with mock.patch("os.getpid", return_value=self.pid):
            self.journal = MortalJournal(self.home / "journal", self.truths)
        scheduler = make_scheduler(
            n_cells=40, max_sequences=3, cached_sequences=2, prefill_tokens=6, draft_tokens=2
        )
        self.engine = Engine(
            self.runner, scheduler, no_grammar, self.publish, self.journal, self.runner.clock
        )
        self.inbox += [ticket.request for ticket in self.tickets.open.values()]

    def write_token(self, tokens: list[int]) -> int:
        """The model is in the prompt's first token, so that a request keeps its own."""
        return list(MODELS.values())[tokens[0] % 3](tokens)

    def publish(self, report: Report) -> None:
        if self.mute_at is not None and len(self.wire) >= self.mute_at:
            raise Killed
        self.wire.append(report)

    def tell_cancel(self, ticket: Ticket, reason: CancelReason) -> bool:
        self.inbox.append(Cancel(ticket.id, reason))
        return self.engine is not None

    def turn(self) -> bool:
        """One turn of the engine's loop; False when it has nothing to do. Raises Killed."""
        assert self.engine is not None
        commands, self.inbox = self.inbox, []
        for command in commands:
            self.engine.handle(command)
        if commands or self.engine.busy:
            self.engine.step()
        return self.engine.busy

    def hear(self, count: int | None = None) -> None:
        """The daemon reads the oldest reports."""
        now = self.wire[:count]
        self.wire = self.wire[len(now) :]
        for report in now:
            assert isinstance(report, Batch | Pong)
            for event in report.events if isinstance(report, Batch) else ():
                self.tickets.deliver(event)
            self.stats = accumulate(self.past, report.stats)

    def read_journal(self) -> recovery.Lost:
        """As the supervisor does when its child is gone."""
        self.journal.close()
        self.engine, self.inbox, self.wire = None, [], []
        lost = read_lost(str(self.home / "journal"), self.pid, self.stats)
        self.past = with_unreported(self.stats, lost.unreported)
        self.stats = accumulate(self.past, Stats())
        return lost

    # -- what happens ----------------------------------------------------------------------------

    @rule(
        model=st.integers(0, 2),
        kind=st.integers(1, 4),
        length=st.integers(1, 24),
        n=st.integers(1, 3),
        max_tokens=st.integers(0, 15),
        stream=st.booleans(),
        turns=st.none() | st.integers(0, 10),
        priority=st.integers(-1, 1),
        exclusive=st.sampled_from([False, False, False, True]),
    )
    def submit(self, model: int, kind: int, length: int, turns: int | None, **fields: Any) -> None:
        """Prompts of one model and kind share what prefixes they can."""
        deadline = None if turns is None else self.runner.now + turns * self.runner.step_s
        request = make_submit(
            f"r{next(self.names)}",
            [model, *(place * kind % 5 for place in range(length))],
            sampling=Sampling(temperature=0.0),
            scope=KEY,
            deadline=deadline,
            **fields,
        )
        request = self.books.number(request, KEY)
        assert request.number not in self.truths, "a number was used twice"
        self.doubtful.discard(request.number)  # nobody had ever been told of it
        entry = self.books.open(
            CALLER, request, tier="default", prompt_text="", on_close=lambda row: None
        )
        client = self.clients[request.number] = Client(entry, request.n)
        self.tickets.add(request, client)
        if self.engine is not None:
            self.inbox.append(request)

    @precondition(lambda self: self.engine is not None)
    @rule(turns=st.integers(1, 12))
    def work(self, turns: int) -> None:
        for _ in range(turns):
            if not self.turn():
                return

    @precondition(lambda self: self.engine is not None)
    @rule(turns=st.integers(1, 30))
    def serve(self, turns: int) -> None:
        """All goes well for a while."""
        for _ in range(turns):
            busy = self.turn()
            self.desk.commit()
            self.hear()
            if not busy:
                return

    @rule(count=st.integers(1, 12))
    def listen(self, count: int) -> None:
        self.hear(count)

    @rule(count=st.integers(1, 6))
    def commit(self, count: int) -> None:
        self.desk.commit(count)

    @precondition(lambda self: self.engine is not None)
    @rule()
    def ping(self) -> None:
        self.inbox.append(Ping(1.0))

    @rule(pick=st.integers(0, 20), by=st.sampled_from(["client", "operator", "box"]))
    def cancel(self, pick: int, by: Any) -> None:
        opened = list(self.tickets.open.values())
        if opened:
            opened[pick % len(opened)].cancel(by=by)

    @precondition(lambda self: self.engine is not None)
    @rule(
        records=st.none() | st.integers(0, 12),
        reports=st.integers(0, 3),
        heard=st.none() | st.integers(0, 20),
    )
    def kill_engine(self, records: int | None, reports: int, heard: int | None) -> None:
        """It dies amid the next write, or before the telling that follows one; the daemon has read
        all that was told, or no more than `heard` reports."""
        self.die(records, reports)
        self.hear(heard)
        self.tickets.engine_died(CRASHED, self.read_journal())
        told = Unreported(
            self.stats.prompt_tokens, self.stats.cached_tokens, self.stats.predicted_tokens
        )
        assert told == minus(self.total, self.before), "the counters are not the journal's"

    @precondition(lambda self: self.engine is None)
    @rule()
    def revive(self) -> None:
        self.start_engine()

    @precondition(lambda self: self.engine is None)
    @rule()
    def wait_without_engine(self) -> None:
        self.tickets.expire_waiting()

    @rule(
        how=st.sampled_from(["killed", "killed twice", "without power", "stopped"]),
        records=st.none() | st.integers(0, 12),
        turns=st.integers(0, 3),
        left=st.floats(0, 1),
    )
    def end_daemon(self, how: str, records: int | None, turns: int, left: float) -> None:
        """And begin again. The engine goes on until it notices, or to the middle of a write."""
        if how == "stopped":
            self.stop(turns)
        else:
            self.die(records, turns)
            self.ledger.close(0)
        if how == "killed twice":
            self.start_in_vain()
        elif how == "without power":
            self.lose_power(left)
        self.start_daemon()

    def start_in_vain(self) -> None:
        """The daemon is killed again when its rows are durable and the journal is still there."""
        kept = self.home / "kept"
        shutil.copytree(self.home / "journal", kept)
        self.start_daemon()
        self.journal.close()
        self.ledger.close(0)
        shutil.rmtree(self.home / "journal")
        kept.rename(self.home / "journal")

    def lose_power(self, left: float) -> None:
        """The last records never reached the disk. The ledger's rows did: it waits for them."""
        cut(self.home / "journal", left)
        closed = {row.number for row, _ in self.rows()}
        remaining = truths_in(self.home / "journal")
        for number in self.clients.keys() - closed:
            self.truths.pop(number, None)
            self.doubtful.add(number)
            if number in remaining:
                self.truths[number] = remaining[number]
        self.boot += 1

    @rule()
    def tidy(self) -> None:
        """As the daemon's housekeeping does."""
        for segment in spent(self.home / "journal", self.pid if self.engine else 0):
            if self.ledger.run(partial(settled, numbers=numbers_in(segment))).result(30):
                segment.path.unlink()

    def die(self, records: int | None, reports: int) -> None:
        """The engine runs on to that point, or to the end of its work."""
        if self.engine is None:
            return
        self.journal.dies_after = records
        self.mute_at = len(self.wire) + reports if records is None else None
        try:
            for _ in range(8):
                if not self.turn():
                    break
        except Killed:
            pass
        self.journal.close()
        self.engine = None

    def stop(self, turns: int = 0) -> None:
        """SIGTERM, after the time to drain."""
        self.tickets.fail_all(STOPPING)
        if self.engine is not None:
            for _ in range(turns):
                self.turn()
            self.hear()
            self.tickets.settle(self.read_journal())
        else:
            self.tickets.settle(recovery.Lost())
        self.desk.commit()
        self.tidy()
        assert self.ledger.snapshot.duplicates == self.ledger.snapshot.set_apart == 0
        assert self.ledger.close() == 0

    # -- what holds ------------------------------------------------------------------------------

    @property
    def total(self) -> Unreported:
        sums = [truth.sums for truth in self.truths.values()]
        return Unreported(
            *(sum(getattr(one, name) for one in sums) for name in Unreported.__struct_fields__)
        )

    @invariant()
    def no_row_came_twice(self) -> None:
        assert self.ledger.snapshot.duplicates == 0
        assert self.ledger.snapshot.set_apart == 0

    def rows(self) -> Iterator[tuple[RequestRow, bytes | None]]:
        db = sqlite3.connect(self.home / "ledger.sqlite")
        found = db.execute(
            "SELECT body, tokens FROM entries LEFT JOIN payloads USING (seq) WHERE kind = 'request'"
        ).fetchall()
        db.close()
        return ((msgspec.json.decode(body, type=RequestRow), tokens) for body, tokens in found)

    def teardown(self) -> None:
        try:
            self.stop()
            self.check_account()
        finally:
            self._patches.close()
            shutil.rmtree(self.home)

    def check_account(self) -> None:
        found = list(self.rows())
        numbers = [row.number for row, _ in found]
        assert len(set(numbers)) == len(numbers), "a request has two final rows"
        wanted = {number for number, client in self.clients.items() if client.admitted}
        assert wanted | self.truths.keys() <= set(numbers), "a request has no final row"
        for row, tokens in found:
            self.check_row(row, tokens)
        verdict = verify(self.home / "ledger.sqlite")
        assert verdict.ok, str(verdict)
        assert verdict.in_flight == []

    def check_row(self, row: RequestRow, tokens: bytes | None) -> None:
        truth = self.truths.get(row.number, Truth())
        counted = Unreported(row.prefill_tokens, row.cached_tokens, row.completion_tokens)
        assert counted == truth.sums
        client = self.clients[row.number]
        if tokens is not None:
            _, *choices = ([*ids] for ids in unpack_tokens(tokens))
            assert choices == [truth.tokens.get(choice, []) for choice in range(row.n)]
        if row.number in self.doubtful:
            assert not row.exact
            return
        for choice, ids in client.received.items():
            assert truth.tokens.get(choice, [])[: len(ids)] == ids, "a client's token is not here"
        self.check_told(row, client)

    def check_told(self, row: RequestRow, client: Client) -> None:
        """The usage that was sent is that of the row."""
        if client.error is None and len(client.ends) == row.n:
            counts = [client.ends[choice].counts for choice in range(row.n)]
            assert row.cached_tokens == counts[0].cached_tokens
            assert row.completion_tokens == sum(count.completion_tokens for count in counts)
        elif isinstance(client.error, EngineFailed) and not row.recovered:
            assert client.error.extra["usage"]["completion_tokens"] == row.completion_tokens  # type: ignore[index]


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
