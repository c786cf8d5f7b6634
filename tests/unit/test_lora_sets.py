"""Sequences of several LoRA sets: one set a step, a turn for each, nothing shared between them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec.structs import replace

from appliance.engine.commands import LoraSet, Pool, Submit
from appliance.engine.sequence import Sequence, State
from appliance.engine.sets import TURN, Sets
from appliance.engine.turns import HELD_STEPS
from tests.unit.engine_parts import Simulation, make_scheduler, make_submit
from tests.unit.scheduler_machine import submits
from tests.unit.test_pools_at_random import PoolsMachine, pools

X: LoraSet = ((0, 1.0),)
Y: LoraSet = ((0, 0.5), (2, -1.0))
SETS: tuple[LoraSet, ...] = ((), X, Y, ((1, 1.0),))
loras = st.sampled_from(SETS)


class LoraMachine(PoolsMachine):
    """Random traffic of four sets; what the pools promise holds as well."""

    @rule(
        request=submits(),
        pool=pools,
        priority=st.integers(-1, 1),
        alone=st.integers(0, 9),
        lora=loras,
    )
    def add(
        self, request: Submit, pool: Pool, priority: int, alone: int, lora: LoraSet = X
    ) -> None:
        super().add(replace(request, lora=lora), pool, priority, alone)


TestLoraAtRandom = LoraMachine.TestCase
TestLoraAtRandom.settings = settings(max_examples=60, stateful_step_count=30)


def make_running(lora: LoraSet, pool: Pool = "a") -> Sequence:
    request = make_submit(lora=lora, pool=pool)
    return Sequence(request, 0, 0, list(request.prompt), State.DECODE)


def make_sets(*sequences: Sequence) -> Sets:
    sets = Sets()
    for sequence in sequences:
        sets.arrives(sequence)
    return sets


def turns_of(sets: Sets, running: list[Sequence], steps: int) -> list[LoraSet]:
    """Whose turn each of so many steps was, if whoever has the turn always has work."""
    found = []
    for _ in range(steps):
        next(iter(sets.turns(running, [])))
        found.append(sets.turn)
    return found


def test_one_set_alone_decides_nothing_and_costs_nothing() -> None:
    running = [make_running(X), make_running(X)]
    sets = make_sets(*running)
    assert not sets.mixed
    assert len(list(sets.turns(running, []))) == 1
    assert sets.of(running) is running
    assert not sets.apart(running[0])
    assert not sets.others_decode(running)


def test_sets_have_turns_of_equal_length() -> None:
    running = [make_running(()), make_running(X), make_running(Y)]
    found = turns_of(make_sets(*running), running, 6 * TURN)
    assert found == [lora for lora in ((), X, Y) * 2 for _ in range(TURN)]


@given(
    st.lists(
        st.tuples(st.sampled_from(("come", "go", "step")), loras, st.integers(1, 3 * TURN)),
        max_size=40,
    )
)
def test_no_set_that_has_work_waits_longer_than_the_others_turns(
    moves: list[tuple[str, LoraSet, int]],
) -> None:
    """Also while others come and go, as often as they like."""
    sets, running = Sets(), list[Sequence]()
    waited: dict[LoraSet, int] = {}
    for move, lora, count in moves:
        if move == "come":
            running.append(make_running(lora))
            sets.arrives(running[-1])
        elif move == "go":
            for sequence in [s for s in running if s.request.lora == lora][:count]:
                running.remove(sequence)
                sets.leaves(sequence)
        for _ in range(count if move == "step" and running else 0):
            alive = {sequence.request.lora for sequence in running}
            (had,) = turns_of(sets, running, 1)
            turn = had if len(alive) > 1 else next(iter(alive))
            assert turn in alive
            waited = {each: waited.get(each, 0) + 1 for each in alive - {turn}}
            assert max(waited.values(), default=0) <= TURN * (len(SETS) - 1)


def test_a_set_of_batch_work_alone_has_one_step_of_many_and_none_too_few() -> None:
    running = [make_running(()), make_running(X, "b"), make_running(Y)]
    found = turns_of(make_sets(*running), running, 8 * HELD_STEPS)
    assert found.count(X) == 8
    assert found.count(()) > 2 * HELD_STEPS
    assert found.count(Y) > 2 * HELD_STEPS


def test_batch_work_computes_where_interactive_work_cannot() -> None:
    """The one in front wants all cells, which B's hold as long as they run and are not given up."""
    running = [make_running(X, "b")]
    waiting = [make_running(Y)]
    sets = make_sets(*running, *waiting)
    tried = [sets.turn for _ in sets.turns(running, waiting)]
    assert tried == [Y, X]


def start(simulation: Simulation, **fields: object) -> Sequence:
    return simulation.add(make_submit(**fields))[0]  # type: ignore[arg-type]


def test_an_equal_prompt_with_other_adapters_is_computed_anew() -> None:
    simulation = Simulation(make_scheduler())
    prompt = tuple(range(40))
    for lora in (X, Y, (), X):
        start(simulation, prompt=prompt, max_tokens=2, lora=lora)
        simulation.run(most=20)
    assert [sequence.cached_tokens for sequence in simulation.finished] == [0, 0, 0, 39]


def test_a_prompt_leaves_room_for_those_who_decode_with_other_adapters() -> None:
    simulation = Simulation(make_scheduler(prefill_tokens=16))
    start(simulation, prompt=(1,), max_tokens=50)
    simulation.step()
    start(simulation, prompt=tuple(range(100)), max_tokens=1, lora=X)
    plans = [simulation.step() for _ in range(4 * TURN)]
    assert max(plan.n_tokens for plan in plans) == 16


def test_whoever_is_in_front_has_what_is_left_though_others_have_the_turn() -> None:
    """One place is left, and it is not for the one behind, whose adapters are in use."""
    simulation = Simulation(make_scheduler(max_sequences=3))
    start(simulation, max_tokens=200, lora=X)
    start(simulation, max_tokens=200, lora=X)
    simulation.step()
    first = start(simulation, max_tokens=3, lora=Y)
    behind = start(simulation, max_tokens=3, lora=X)
    for _ in range(2 * TURN):
        simulation.step()
        assert behind.times.started == 0.0 or first.times.started > 0.0
    assert first.times.started > 0.0


def test_whoever_is_in_front_has_the_cells_though_others_have_the_turn() -> None:
    simulation = Simulation(make_scheduler(n_cells=96))
    start(simulation, max_tokens=40, lora=X)
    simulation.step()
    first = start(simulation, prompt=(7,) * 70, max_tokens=1, lora=Y)
    behind = start(simulation, prompt=(8,) * 30, max_tokens=1, lora=X)
    while first.times.started == 0.0:
        simulation.step()
        assert behind.times.started == 0.0
    simulation.run(most=200)


def test_where_there_is_room_for_all_nobody_waits_for_those_in_front() -> None:
    simulation = Simulation(make_scheduler(max_sequences=4))
    start(simulation, max_tokens=100, lora=X)
    simulation.step()
    start(simulation, max_tokens=3, lora=Y)
    behind = start(simulation, max_tokens=3, lora=X)
    simulation.step()
    assert behind.times.started > 0.0


def test_a_burst_of_two_sets_fills_the_places_within_two_turns() -> None:
    simulation = Simulation(make_scheduler(max_sequences=8, step_tokens=64))
    for number in range(8):
        start(simulation, max_tokens=100, lora=(X, Y)[number % 2])
    for _ in range(TURN + 1):
        simulation.step()
    assert len(simulation.scheduler.running) == 8


def test_an_exclusive_request_is_alone_whatever_its_adapters() -> None:
    simulation = Simulation(make_scheduler())
    start(simulation, max_tokens=5)
    simulation.step()
    alone = start(simulation, max_tokens=5, lora=X, exclusive=True)
    start(simulation, max_tokens=5, lora=Y)
    start(simulation, max_tokens=5)
    simulation.run(most=100)
    assert alone.exclusive
    assert alone.parallel == 1


def test_batch_work_of_a_new_set_starts_beside_interactive_work_of_another() -> None:
    simulation = Simulation(make_scheduler())
    start(simulation, max_tokens=200, lora=X)
    simulation.step()
    batch = start(simulation, max_tokens=5, lora=Y, pool="b")
    for _ in range(2 * HELD_STEPS):
        simulation.step()
    assert batch.times.started > 0.0


def test_batch_work_of_two_sets_goes_on_beside_interactive_work_that_needs_the_steps() -> None:
    simulation = Simulation(make_scheduler(n_cells=2048, max_sequences=8))
    for _ in range(4):
        start(simulation, max_tokens=500, lora=X)
    batch = [start(simulation, max_tokens=500, lora=lora, pool="b") for lora in (X, Y)]
    for _ in range(10 * HELD_STEPS):
        simulation.step()
    assert min(sequence.generated for sequence in batch) >= 5


def test_batch_work_does_not_slip_in_before_an_exclusive_request_when_its_step_has_come() -> None:
    simulation = Simulation(make_scheduler())
    before = [
        start(simulation, max_tokens=90, lora=X),
        start(simulation, max_tokens=90, lora=Y, pool="b"),
    ]
    for _ in range(HELD_STEPS - 1):
        simulation.step()
    for sequence in before:
        simulation.scheduler.finish(sequence)
    alone = start(simulation, max_tokens=5, lora=X, exclusive=True)
    start(simulation, max_tokens=5, lora=Y, pool="b")
    assert simulation.step().started == (alone,)
    simulation.run(most=50)
    assert alone.exclusive


def test_trees_of_sets_that_nobody_has_any_more_are_gone() -> None:
    """A request may name any scale: what was kept for each would grow without end."""
    simulation = Simulation(make_scheduler(cached_sequences=2))
    for number in range(20):
        start(simulation, prompt=range(40), max_tokens=2, lora=((0, 1.0 + number),))
        simulation.run(most=20)
    assert len(simulation.scheduler.cache._residents._trees) <= 2
    assert not simulation.scheduler.sets.mixed
