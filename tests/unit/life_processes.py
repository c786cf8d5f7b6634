"""The box whose random life test_account_property.py tells: a state directory, and the processes
that come, die and go."""

import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest import mock

import msgspec

from appliance.engine import step as step_module
from appliance.engine.commands import Cancel, Command
from appliance.engine.reports import Batch, Pong, Report, Stats
from appliance.engine.step import Engine
from appliance.errors import Unavailable
from appliance.ledger import recovery, writer
from appliance.ledger.books import Books, Identity, Texts
from appliance.ledger.recovery import read_lost
from appliance.ledger.restart import numbers_in, recover, settled, spent
from appliance.ledger.rows import RequestRow
from appliance.ledger.writer import Ledger
from appliance.snapshot import Unreported, accumulate, with_unreported
from appliance.ticket import CancelReason, Ticket
from appliance.tickets import Tickets
from tests.unit.engine_parts import FakeRunner, make_scheduler, next_token
from tests.unit.life_parts import (
    SEGMENT,
    Client,
    Desk,
    Killed,
    MortalJournal,
    Truths,
    cut,
    quick,
    truths_in,
)
from tests.unit.step_parts import no_grammar

STOPPING = Unavailable("the box is shutting down", code="shutting_down")
MODELS: dict[str, Callable[[list[int]], int]] = {
    "plain": next_token,
    "short": lambda tokens: 30 if next_token(tokens) == 0 else next_token(tokens),
    "ill": lambda tokens: -1 if next_token([*tokens, 7]) == 0 else next_token(tokens),
}
"""One that goes on, one that ends by itself, one whose logits are no numbers now and then."""


class Processes:
    """One state directory, the daemon and the engine that come and go, and all that is known to be
    true of their work."""

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

    def tidy(self) -> None:
        """As the daemon's housekeeping does."""
        for segment in spent(self.home / "journal", self.pid if self.engine else 0):
            if self.ledger.run(partial(settled, numbers=numbers_in(segment))).result(30):
                segment.path.unlink()

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

    @property
    def total(self) -> Unreported:
        sums = [truth.sums for truth in self.truths.values()]
        return Unreported(
            *(sum(getattr(one, name) for one in sums) for name in Unreported.__struct_fields__)
        )

    def rows(self) -> Iterator[tuple[RequestRow, bytes | None]]:
        db = sqlite3.connect(self.home / "ledger.sqlite")
        found = db.execute(
            "SELECT body, tokens FROM entries LEFT JOIN payloads USING (seq) WHERE kind = 'request'"
        ).fetchall()
        db.close()
        return ((msgspec.json.decode(body, type=RequestRow), tokens) for body, tokens in found)
