"""Exclusive requests: alone on an emptied cache, in their turn, and true in what they claim."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec.structs import replace

from appliance.engine.commands import Submit
from appliance.engine.plan import Chunk, Clear, Plan
from appliance.engine.scheduler import Scheduler
from appliance.engine.sequence import Sequence
from tests.unit.engine_parts import Simulation, answer_to, make_scheduler, make_submit
from tests.unit.scheduler_machine import SchedulerMachine, submits


def turn(sequence: Sequence) -> tuple[int, int]:
    return sequence.request.priority, sequence.order


class Watched(Simulation):
    """Sees from the plans and the mirrored cache who was alone, without asking the scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.alone: dict[Sequence, bool] = {}
        self.begun: set[Sequence] = set()

    def step(self) -> Plan:
        waiting = [s for s in self.scheduler.waiting if s.request.exclusive]
        plan = super().step()
        for sequence in plan.started:
            overtaken = [s for s in waiting if turn(s) < turn(sequence)]
            assert all(s in plan.started for s in overtaken), "overtook an exclusive request"
        return plan

    def _check_plan(self, plan: Plan) -> None:
        super()._check_plan(plan)
        for chunk in plan.chunks:
            self._watch(chunk, plan)

    def _watch(self, chunk: Chunk, plan: Plan) -> None:
        sequence = chunk.sequence
        again = chunk.start == 0 and sequence in self.begun
        self.begun.add(sequence)
        others = [s for s in self.scheduler.running if s is not sequence]
        alone = not others and not self.scheduler.cached and len(plan.chunks) == 1
        fine = alone and not again and not chunk.draft
        self.alone[sequence] = self.alone.get(sequence, True) and fine
        if sequence.request.exclusive:
            assert fine, "an exclusive request had company"
            assert (Clear() in plan.moves) == (chunk.start == 0), "cleared once, at its start"

    def finish(self, sequence: Sequence) -> None:
        assert not sequence.exclusive or self.alone[sequence], "claims to have been alone"
        assert sequence.exclusive or not sequence.request.exclusive
        super().finish(sequence)


class ExclusiveMachine(SchedulerMachine):
    """The random traffic of the scheduler's own test, with exclusive requests in between."""

    draft_tokens = 5

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Watched(self.scheduler)

    @rule(request=submits(), exclusive=st.booleans())
    def add(self, request: Submit, exclusive: bool) -> None:  # type: ignore[override]
        self.simulation.add(replace(request, exclusive=exclusive))
        self.added += request.n
        self.work += request.n * (len(request.prompt) + request.max_tokens)


TestExclusiveAtRandom = ExclusiveMachine.TestCase
TestExclusiveAtRandom.settings = settings(max_examples=80, stateful_step_count=25)


def test_exclusive_request_waits_its_turn_and_holds_the_rest_until_it_ended() -> None:
    simulation = Watched(make_scheduler())
    simulation.add(make_submit("before", max_tokens=5))
    simulation.step()
    simulation.add(make_submit("alone", max_tokens=4, exclusive=True))
    simulation.add(make_submit("after", max_tokens=1))
    simulation.run(most=11)
    assert [s.request.id for s in simulation.finished] == ["before", "alone", "after"]
    assert [s.parallel for s in simulation.finished] == [1, 1, 1]


def test_exclusive_request_is_not_held_up_by_those_that_keep_coming() -> None:
    simulation = Watched(make_scheduler(max_sequences=4))
    for number in range(3):
        simulation.add(make_submit(f"running{number}", max_tokens=6))
    simulation.step()
    (alone,) = simulation.add(make_submit("alone", max_tokens=2, exclusive=True))
    for number in range(8):
        simulation.add(make_submit(f"later{number}", max_tokens=6))
        simulation.step()
    assert alone in simulation.finished, "started as soon as those before it had ended"


def test_exclusive_requests_do_not_hold_up_those_between_them() -> None:
    simulation = Watched(make_scheduler())
    for name, exclusive in (("a", True), ("b", False), ("c", True), ("d", False), ("e", True)):
        simulation.add(make_submit(name, max_tokens=2, exclusive=exclusive))
    simulation.run(most=20)
    assert [s.request.id for s in simulation.finished] == list("abcde")


def test_exclusive_request_empties_the_cache_and_leaves_nothing_in_it() -> None:
    simulation = Watched(make_scheduler())
    simulation.add(make_submit("cached", range(40)))
    simulation.run(most=20)
    assert simulation.scheduler.cached
    (alone,) = simulation.add(make_submit("alone", range(40), exclusive=True))
    plan = simulation.step()
    assert plan.moves[-1] == Clear()
    assert plan.evicted == 1
    assert alone.cached_tokens == 0
    simulation.run(most=20)
    assert not simulation.scheduler.cached
    assert simulation.scheduler.pool.used == 0


def test_choices_of_an_exclusive_request_run_one_by_one_each_on_an_empty_cache() -> None:
    simulation = Watched(make_scheduler())
    simulation.add(make_submit("alone", range(20), max_tokens=3, n=3, exclusive=True))
    clears = sum(simulation.step().moves.count(Clear()) for _ in range(9))
    assert clears == 3
    assert [s.choice for s in simulation.finished] == [0, 1, 2]
    assert all(s.exclusive and s.tokens == answer_to(range(20), 3) for s in simulation.finished)


def test_nothing_is_drafted_for_exclusive_and_forced_requests() -> None:
    simulation = Watched(make_scheduler(draft_tokens=5))
    simulation.add(make_submit("alone", (1, 2) * 10, max_tokens=20, exclusive=True))
    simulation.add(make_submit("forced", (1, 2) * 10, max_tokens=20, forced=(1,) * 20))
    steps = [simulation.step() for _ in range(30)]
    assert not any(chunk.draft for plan in steps for chunk in plan.chunks)


@pytest.mark.parametrize("pool", ["a", "b"])
@pytest.mark.parametrize("slowed", [False, True])
def test_its_prompt_is_read_in_the_same_pieces_whatever_the_machine_does(
    slowed: bool, pool: str
) -> None:
    simulation = Watched(make_scheduler(step_tokens=32, prefill_tokens=8))
    simulation.scheduler.slowed = slowed
    simulation.add(make_submit("alone", range(70), max_tokens=2, exclusive=True, pool=pool))
    pieces = [len(chunk.tokens) for _ in range(4) for chunk in simulation.step().chunks]
    assert pieces == [32, 32, 6, 1]


def test_paused_scheduler_starts_no_exclusive_request() -> None:
    simulation = Watched(make_scheduler())
    simulation.scheduler.paused = True
    simulation.add(make_submit("alone", exclusive=True))
    assert not simulation.step().started
    simulation.scheduler.paused = False
    simulation.run(most=20)
    assert len(simulation.finished) == 1


def test_ordinary_request_says_when_it_was_alone_by_chance() -> None:
    simulation = Watched(make_scheduler(cached_sequences=0))
    (first,) = simulation.add(make_submit("first", max_tokens=4))
    simulation.run(most=10)
    (second,) = simulation.add(make_submit("second", max_tokens=8))
    simulation.step()
    (third,) = simulation.add(make_submit("third", max_tokens=2))
    simulation.run(most=20)
    assert [first.exclusive, second.exclusive, third.exclusive] == [True, False, False]


def test_company_in_the_cache_is_company() -> None:
    simulation = Watched(make_scheduler())
    simulation.add(make_submit("first", range(40), scope="a"))
    simulation.run(most=10)
    (second,) = simulation.add(make_submit("second", range(40), scope="b"))
    simulation.run(most=10)
    assert second.parallel == 1
    assert not second.exclusive


def test_preempted_sequence_was_not_exclusive() -> None:
    simulation = Watched(make_scheduler(n_cells=32, cached_sequences=0))
    simulation.add(make_submit("old", range(12), max_tokens=16))
    (young,) = simulation.add(make_submit("young", range(12), max_tokens=8))
    preempted = sum(simulation.step().preempted for _ in range(10))
    assert preempted == 1
    simulation.run(most=50)
    assert young in simulation.finished
    assert not young.exclusive


def test_drafted_sequence_was_not_exclusive() -> None:
    drafting = Watched(make_scheduler(draft_tokens=5, cached_sequences=0))
    (sequence,) = drafting.add(make_submit(prompt=(1, 2) * 10, max_tokens=30))
    for _ in range(30):
        plan = drafting.step()
        if any(chunk.draft for chunk in plan.chunks):
            assert not sequence.exclusive
            break
    else:
        raise AssertionError("nothing was drafted")
