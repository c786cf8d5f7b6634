"""Random work for a scheduler: requests of all kinds, steps, cancellations; always checked."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.engine.commands import Submit
from tests.unit.engine_parts import Simulation, make_scheduler, make_submit

N_CELLS = 96
PREFIXES = ((), tuple(range(40)), tuple(range(64)), (7,) * 50)


@st.composite
def submits(draw: st.DrawFn) -> Submit:
    """Requests that often begin alike; some fill the whole pool."""
    prefix = draw(st.sampled_from(PREFIXES))
    own = tuple(draw(st.lists(st.integers(0, 3), max_size=8)))
    filler = (9,) * draw(st.sampled_from((0, 0, 0, N_CELLS)))
    prompt = (prefix + own + filler)[: N_CELLS - 1] or (1,)
    return make_submit(
        str(draw(st.uuids())),
        prompt,
        draw(st.integers(1, N_CELLS - len(prompt))),
        n=draw(st.sampled_from((1, 1, 1, 2, 3))),
        scope=draw(st.sampled_from("ab")),
        cache_prompt=draw(st.sampled_from((True, True, True, False))),
        priority=draw(st.sampled_from((0, 0, 1))),
    )


class SchedulerMachine(RuleBasedStateMachine):
    """Random traffic over a pool far too small for it."""

    draft_tokens = 0

    def __init__(self) -> None:
        super().__init__()
        scheduler = make_scheduler(
            N_CELLS,
            max_sequences=3,
            cached_sequences=3,
            step_tokens=24,
            prefill_tokens=16,
            draft_tokens=self.draft_tokens,
        )
        self.simulation = Simulation(scheduler)
        self.scheduler = scheduler
        self.added = 0
        self.aborted = 0
        self.work = 0

    @rule(request=submits())
    def add(self, request: Submit) -> None:
        self.simulation.add(request)
        self.added += request.n
        self.work += request.n * (len(request.prompt) + request.max_tokens)

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        for _ in range(count):
            plan = self.simulation.step()
            assert not (self.scheduler.paused and plan.started)

    @precondition(lambda self: self.scheduler.running or self.scheduler.waiting)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        alive = [*self.scheduler.running, *self.scheduler.waiting]
        self.scheduler.finish(alive[data.draw(st.integers(0, len(alive) - 1))])
        self.aborted += 1

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.scheduler.paused = on

    @invariant()
    def everything_is_accounted_for(self) -> None:
        self.scheduler.check()

    def teardown(self) -> None:
        self.scheduler.paused = False
        self.simulation.run(most=10 * self.work + 10)
        assert len(self.simulation.finished) + self.aborted == self.added
        assert self.scheduler.pool.pinned == 0
