"""The account under random work, cancellations and deaths: real engine loop, journal, tickets,
books and ledger around a scripted model. Whatever happened, every request has one final row, and
the rows sum to what the journal was given, to the token.

Both processes die at any record: within the write of a step's records, between that write and the
telling, with what was told read or not. What the daemon had queued for the ledger dies with it.
"""

import shutil
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.engine.commands import Ping, Sampling
from appliance.errors import EngineFailed
from appliance.ledger.books import Caller
from appliance.ledger.rows import RequestRow
from appliance.ledger.verify import unpack_tokens
from appliance.ledger.verify.check import verify
from appliance.snapshot import Unreported
from appliance.watchdog import Cause
from tests.unit.engine_parts import make_submit
from tests.unit.life_parts import Client, Truth, minus
from tests.unit.life_processes import Processes

KEY = "k_0000002a"
CALLER = Caller("t" * 32, "q", "/v1/completions", KEY, "app", "sales", "", 1.0)
CRASHED = Cause("engine_crashed", "died")


class Life(Processes, RuleBasedStateMachine):
    """What happens to the box in any order, and what holds whatever happened."""

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

    @rule()
    def keep_house(self) -> None:
        self.tidy()

    # -- what holds ------------------------------------------------------------------------------

    @invariant()
    def no_row_came_twice(self) -> None:
        assert self.ledger.snapshot.duplicates == 0
        assert self.ledger.snapshot.set_apart == 0

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
