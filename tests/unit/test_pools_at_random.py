"""Two pools, an order, forecasts and saved states, with traffic and steering at random: every cell
is accounted for, nothing is stuck, and every answer is whole."""

from math import inf, nan

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from appliance.engine.commands import Expect, Pool, Steer, Submit
from appliance.engine.keeping import Costs
from appliance.engine.sequence import Sequence
from tests.unit.engine_parts import Simulation, make_scheduler
from tests.unit.scheduler_machine import N_CELLS, submits

pools = st.sampled_from(("a", "b"))
numbers = st.sampled_from((0.0, 0.3, 0.6, 1.0, 5.0, -1.0, 1e300, inf, -inf, nan))
chances = st.floats(0, 1) | st.sampled_from((nan, inf, -1.0))
tables = st.one_of(
    st.builds(
        Expect,
        st.just(""),
        st.lists(st.integers(-2, 200), max_size=5).map(tuple),
        st.lists(chances, max_size=5).map(tuple),
    ),
    st.builds(
        lambda lengths, survival: Expect("", tuple(lengths), tuple(survival)),
        st.just((0, 4, 10, 30, 90)),
        st.lists(st.floats(0, 1), min_size=5, max_size=5).map(lambda s: sorted(s, reverse=True)),
    ),
)
steers = st.builds(
    Steer,
    policy=st.sampled_from(("fcfs", "expected-cost", "shuffled")),
    admission=st.sampled_from(("peak", "peak", "reserve", "fill")),
    forecast=st.booleans(),
    tau=numbers,
    b_cells=st.sampled_from((0, 10, 30, N_CELLS, -5, 10**12)),
    ageing=numbers,
    max_wait_s=numbers,
    fairness=st.booleans(),
    expected=tables,
)


class PoolsMachine(RuleBasedStateMachine):
    """Random traffic over a cache far too small for it. A token more costs as much as a step."""

    saves = True

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make_scheduler(
            N_CELLS,
            max_sequences=3,
            cached_sequences=3,
            step_tokens=24,
            prefill_tokens=16,
            draft_tokens=3,
        )
        self.scheduler.drafter.observe_step(2, 20.0)
        if self.saves:
            self.scheduler.cache.keeping.costs = Costs(1, 0.0, 1.0)
        self.simulation = Simulation(self.scheduler)
        self.added = self.aborted = self.work = 0

    @property
    def alive(self) -> list[Sequence]:
        return [*self.scheduler.running, *self.scheduler.waiting]

    @rule(request=submits(), pool=pools, priority=st.integers(-1, 1), alone=st.integers(0, 9))
    def add(self, request: Submit, pool: Pool, priority: int, alone: int) -> None:
        changed = replace(request, pool=pool, priority=priority, exclusive=alone == 0)
        self.simulation.add(changed)
        self.added += request.n
        self.work += request.n * (len(request.prompt) + request.max_tokens)

    @rule(count=st.integers(1, 12), seconds=st.sampled_from((0.001, 1.0, 100.0)))
    def step(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.simulation.now += seconds
            self.simulation.step()

    @rule(steer=steers)
    def steer(self, steer: Steer) -> None:
        self.scheduler.steer(steer)

    @rule(on=st.booleans())
    def refuse(self, on: bool) -> None:
        self.simulation.mirror.refuses = on

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), table=tables)
    def expect(self, data: st.DataObject, table: Expect) -> None:
        sequence = data.draw(st.sampled_from(self.alive))
        self.scheduler.expect(sequence, table, self.simulation.now)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), pool=pools, priority=st.integers(-9, 9))
    def reprioritise(self, data: st.DataObject, pool: Pool, priority: int) -> None:
        sequence = data.draw(st.sampled_from(self.alive))
        self.scheduler.reprioritise(sequence, priority, pool, self.simulation.now)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.scheduler.finish(data.draw(st.sampled_from(self.alive)))
        self.aborted += 1

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.scheduler.paused = on

    @invariant()
    def the_pools_make_up_the_whole(self) -> None:
        self.scheduler.check()
        pool, rules = self.scheduler.pool, self.scheduler.pools
        a, b = rules.held(batch=False), rules.held(batch=True)
        assert a + b + (pool.total - pool.pinned) == pool.total
        assert min(a, b, rules.borrowed, rules.b_cells) >= 0
        assert rules.b_cells <= pool.total
        for batch in (False, True):
            peak = rules.peak(self.scheduler.running, batch=batch)
            assert peak >= rules.held(batch=batch)

    @invariant()
    def saved_states_keep_within_bounds(self) -> None:
        kept = [s.saved.reserved for s in self.alive if s.saved is not None]
        assert self.scheduler.cache.keeping.reserved == sum(kept)

    def teardown(self) -> None:
        self.scheduler.paused = False
        self.simulation.run(most=60 * self.work + 100)
        assert len(self.simulation.finished) + self.aborted == self.added
        assert self.scheduler.pool.pinned == 0
        assert self.scheduler.cache.keeping.reserved == 0


class PoolsWithoutSavingMachine(PoolsMachine):
    saves = False


TestPoolsAtRandom = PoolsMachine.TestCase
TestPoolsAtRandom.settings = settings(max_examples=60, stateful_step_count=30)
TestPoolsWithoutSavingAtRandom = PoolsWithoutSavingMachine.TestCase
TestPoolsWithoutSavingAtRandom.settings = settings(max_examples=60, stateful_step_count=30)
