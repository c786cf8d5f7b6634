"""Who is let in, what pool B borrows and gives back, and that nobody waits for ever."""

from typing import Any

import pytest

from appliance.engine.commands import Admission, Expect, Sampling, Steer
from appliance.engine.keeping import Costs
from appliance.engine.plan import Restore, Save
from appliance.engine.pools import A_LEAST, FILL, HANDFUL, sane
from appliance.engine.scheduler import WORTH_WAITING
from appliance.engine.sequence import Sequence, State
from appliance.engine.turns import HELD_STEPS
from tests.unit.engine_parts import Simulation, answer_to, make_scheduler, make_submit
from tests.unit.test_keeping import CHEAP


def simulate(n_cells: int = 400, max_sequences: int = 8, **steer: Any) -> Simulation:
    """Whatever is added says nothing of its length unless it is told."""
    scheduler = make_scheduler(n_cells, max_sequences, 0)
    scheduler.steer(Steer(**{"forecast": True, **steer}))
    return Simulation(scheduler)


def add(
    simulation: Simulation, name: str, prompt: int = 10, tokens: int = 30, **fields: Any
) -> Sequence:
    """No two begin alike."""
    number = sum(name.encode())
    (sequence,) = simulation.add(make_submit(name, [number, *range(1, prompt)], tokens, **fields))
    return sequence


def running(simulation: Simulation) -> str:
    return " ".join(sequence.request.id for sequence in simulation.scheduler.running)


def run_on(simulation: Simulation, steps: int) -> None:
    for _ in range(steps):
        simulation.step()


# Admission


@pytest.mark.parametrize(
    ("admission", "expected"),
    [("reserve", 4), ("peak", 4), ("fill", 8)],
)
def test_without_forecasts_the_rules_count_with_max_tokens(
    admission: Admission, expected: int
) -> None:
    simulation = simulate(n_cells=400, admission=admission)
    for number in range(8):
        add(simulation, f"{number}", prompt=10, tokens=90)
    run_on(simulation, 2)
    assert len(simulation.scheduler.running) == expected


def test_peak_rule_lets_in_by_what_is_expected_not_by_what_is_allowed() -> None:
    table = Expect("", (1, 10, 20), (0.9, 0.5, 0.0))
    simulation = simulate(n_cells=200, expected=table)
    for number in range(8):
        add(simulation, f"{number}", prompt=10, tokens=190)
    run_on(simulation, 2)
    assert len(simulation.scheduler.running) == 8


@pytest.mark.parametrize(
    "fields", [{"sampling": Sampling(ignore_eos=True)}, {"forced": tuple(range(190))}]
)
def test_answer_of_a_given_length_is_not_expected_to_become_as_long_as_others(
    fields: dict[str, Any],
) -> None:
    simulation = simulate(n_cells=400, expected=Expect("", (1, 10, 20), (0.9, 0.5, 0.0)))
    for number in range(8):
        add(simulation, f"{number}", prompt=10, tokens=190, **fields)
    run_on(simulation, 2)
    assert len(simulation.scheduler.running) == 2


def test_own_forecast_counts_more_than_that_for_all() -> None:
    simulation = simulate(n_cells=200, expected=Expect("", (1, 10, 20), (0.9, 0.5, 0.0)))
    first, second = (add(simulation, name, 10, 190) for name in "ab")
    for sequence in (first, second):
        simulation.scheduler.expect(sequence, Expect("", (149, 150), (1.0, 0.0)), 0.0)
    simulation.step()
    assert running(simulation) == "a"


def test_forecasts_that_cannot_be_relied_on_are_not_used() -> None:
    short = Expect("", (1, 10, 20), (0.9, 0.5, 0.0))
    simulation = simulate(n_cells=200, forecast=False)
    for name in "ab":
        simulation.scheduler.expect(add(simulation, name, 10, 190), short, 0.0)
    simulation.step()
    assert running(simulation) == "a"


def test_what_a_running_answer_has_become_is_reckoned_with() -> None:
    """It has outlived half of what it was expected to be, so another one fits."""
    simulation = simulate(n_cells=200)
    first = add(simulation, "a", 10, 190)
    simulation.scheduler.expect(first, Expect("", (99, 100), (1.0, 0.0)), 0.0)
    simulation.step()
    second = add(simulation, "b", 10, 190)
    simulation.scheduler.expect(second, Expect("", (99, 100), (1.0, 0.0)), 0.0)
    simulation.step()
    assert running(simulation) == "a"
    run_on(simulation, 40)
    assert running(simulation) == "a b"


@pytest.mark.parametrize("admission", ["peak", "reserve", "fill"])
def test_empty_pool_lets_in_its_first_whatever_is_expected_of_it(admission: Admission) -> None:
    simulation = simulate(n_cells=200, admission=admission, b_cells=10)
    add(simulation, "batch", 150, 50, pool="b")
    simulation.step()
    assert running(simulation) == "batch"
    simulation.run(most=60)


def test_shared_prefix_is_counted_once() -> None:
    simulation = simulate(n_cells=300)
    sequences = simulation.add(make_submit("r", range(200), max_tokens=20, n=4))
    run_on(simulation, 10)
    assert len(simulation.scheduler.running) == 4
    assert all(sequence.state is State.DECODE for sequence in sequences)
    assert simulation.scheduler.pools.peak(sequences, batch=False) <= 300


# Few cells


def crowd(count: int, n_cells: int, costs: Costs | None = CHEAP, **fields: Any) -> Simulation:
    """So many answers of 100 tokens, which is known."""
    simulation = simulate(n_cells, expected=Expect("", (99, 100), (1.0, 0.0)))
    simulation.scheduler.cache.keeping.costs = costs
    for number in range(count):
        add(simulation, f"{number}", 10, 100, **fields)
    run_on(simulation, 2)
    return simulation


def test_few_that_run_are_joined_by_more_than_fit_where_giving_way_costs_little() -> None:
    simulation = crowd(3, 200)
    assert running(simulation) == "0 1 2"
    simulation.run(most=2000)
    assert simulation.scheduler.cache.keeping.restored > 0
    assert simulation.scheduler.overflows == 0
    assert all(s.tokens == answer_to(s.request.prompt, 100) for s in simulation.finished)


@pytest.mark.parametrize("costs", [None, Costs(1000, 1.0, 1.0)], ids=["unknown", "dear"])
def test_they_are_not_where_tokens_would_be_computed_again(costs: Costs | None) -> None:
    assert running(crowd(3, 200, costs)) == "0"


def test_no_more_than_a_handful_is_joined() -> None:
    assert len(crowd(12, 480).scheduler.running) == HANDFUL


def test_nobody_joins_where_most_cells_are_taken() -> None:
    simulation = crowd(2, 200)
    run_on(simulation, 72)
    assert simulation.scheduler.pools.held(batch=False) >= FILL * 200
    add(simulation, "late", 10, 100)
    simulation.step()
    assert running(simulation) == "0 1"


def test_pool_b_takes_no_such_risk() -> None:
    assert running(crowd(3, 200, pool="b")) == "0"


def test_overflow_is_counted_only_where_the_rule_had_let_in() -> None:
    wrong = Expect("", (1, 2), (0.5, 0.0))
    for admission, expected in (("peak", True), ("fill", False)):
        simulation = simulate(n_cells=150, admission=admission, expected=wrong)
        for number in range(6):
            add(simulation, f"{number}", 10, 60)
        simulation.run(most=2000)
        assert (simulation.scheduler.overflows > 0) is expected


# Two pools


def test_without_batch_requests_a_has_every_cell() -> None:
    simulation = simulate(n_cells=400, b_cells=200)
    for name in "ab":
        add(simulation, name, 10, 180)
    simulation.step()
    assert running(simulation) == "a b"


def test_waiting_batch_request_has_its_cells_kept_for_it() -> None:
    simulation = simulate(n_cells=400, b_cells=200)
    add(simulation, "batch", 10, 150, pool="b")
    for name in "ab":
        add(simulation, name, 10, 180)
    run_on(simulation, HELD_STEPS + 2)
    assert running(simulation) == "a batch"


def test_no_more_is_kept_for_batch_requests_than_they_should_need() -> None:
    simulation = simulate(n_cells=400, b_cells=200)
    add(simulation, "batch", 10, 20, pool="b")
    for name in "ab":
        add(simulation, name, 10, 170)
    simulation.step()
    assert running(simulation) == "a b"


def test_batch_borrows_what_is_idle_and_gives_it_back() -> None:
    simulation = simulate(n_cells=400, b_cells=100)
    for name in ("x", "y", "z"):
        add(simulation, name, 10, 100, pool="b")
    run_on(simulation, 60)
    assert running(simulation) == "x y z"
    assert simulation.scheduler.pools.borrowed > 0
    add(simulation, "chat", 250, 20)
    run_on(simulation, 5)
    assert "chat" in running(simulation)
    assert simulation.scheduler.batch_evictions > 0
    assert simulation.scheduler.overflows == 0
    simulation.run(most=4000)
    assert all(s.generated == s.request.max_tokens for s in simulation.finished)


def test_interactive_request_gets_the_place_of_a_batch_request_in_the_same_step() -> None:
    simulation = simulate(n_cells=400, max_sequences=2)
    simulation.scheduler.cache.keeping.costs = CHEAP
    for name in ("x", "y"):
        add(simulation, name, 40, 60, pool="b")
    run_on(simulation, 10)
    chat = add(simulation, "chat", 10, 5)
    plan = simulation.step()
    assert plan.started == (chat,)
    assert [type(move) for move in plan.moves if isinstance(move, Save)] == [Save]
    moves = [move for _ in range(100) for move in simulation.step().moves]
    assert any(isinstance(move, Restore) for move in moves)
    simulation.run(most=400)
    assert all(s.tokens == answer_to(s.request.prompt, s.generated) for s in simulation.finished)


def test_batch_request_waits_while_its_pool_is_full_and_a_needs_the_rest() -> None:
    simulation = simulate(n_cells=400, b_cells=100)
    for name in "ab":
        add(simulation, name, 10, 140)
    add(simulation, "x", 10, 80, pool="b")
    add(simulation, "y", 10, 80, pool="b")
    run_on(simulation, 3)
    assert running(simulation) == "a b x"
    simulation.run(most=4000)


def test_big_interactive_prompt_is_not_kept_out_by_batch_requests_that_keep_coming() -> None:
    simulation = simulate(n_cells=400, b_cells=200)
    for name in ("w", "x"):
        add(simulation, name, 10, 80, pool="b")
    run_on(simulation, 20)
    big = add(simulation, "big", 350, 10)
    for number in range(300):
        add(simulation, f"{number}", 10, 80, pool="b")
        simulation.step()
        if big.state is State.FINISHED:
            return
    raise AssertionError("it never got its cells")


def test_batch_request_ends_though_interactive_ones_never_stop_coming() -> None:
    simulation = simulate(n_cells=400, max_sequences=2, max_wait_s=200.0)
    batch = add(simulation, "batch", 10, 40, pool="b", priority=1)
    for number in range(1500):
        add(simulation, f"chat{number}", 10, 20)
        simulation.step()
        if batch.state is State.FINISHED:
            return
    raise AssertionError("pool B starved")


def test_request_that_runs_can_be_moved_to_the_other_pool() -> None:
    simulation = simulate()
    sequence = add(simulation, "r", 10, 50)
    run_on(simulation, 5)
    for pool in ("b", "a"):
        simulation.scheduler.reprioritise(sequence, 0, pool, 0.0)
        simulation.scheduler.check()
        assert simulation.scheduler.pool.batch == (sequence.computed if pool == "b" else 0)
    simulation.run(most=100)


def test_batch_request_gets_on_in_steps_that_long_prompts_fill() -> None:
    scheduler = make_scheduler(2000, 3, 0, step_tokens=16, prefill_tokens=16)
    scheduler.steer(Steer())
    simulation = Simulation(scheduler)
    batch = add(simulation, "batch", 4, 50, pool="b")
    run_on(simulation, 2)
    before = batch.generated
    add(simulation, "long", 1500, 1)
    run_on(simulation, 3 * HELD_STEPS)
    assert batch.generated == before + 3


def test_batch_prompt_gets_on_though_interactive_prompts_fill_every_step() -> None:
    scheduler = make_scheduler(2000, 6, 0, step_tokens=16, prefill_tokens=16)
    scheduler.steer(Steer())
    simulation = Simulation(scheduler)
    batch = add(simulation, "batch", 20, 2, pool="b")
    run_on(simulation, 1)
    for number in range(1000):
        add(simulation, f"{number}", 64, 1)
        run_on(simulation, 2)
        if batch.state is State.FINISHED:
            return
    raise AssertionError("its prompt was never read")


@pytest.mark.parametrize("slowed", [False, True])
def test_interactive_prompt_has_room_in_steps_that_batch_requests_could_fill(slowed: bool) -> None:
    scheduler = make_scheduler(2000, 9, 0, step_tokens=8, prefill_tokens=8)
    scheduler.steer(Steer())
    simulation = Simulation(scheduler)
    for name in "rstuvwxy":
        add(simulation, name, 4, 200, pool="b")
    run_on(simulation, 10)
    assert len(scheduler.running) == 8
    scheduler.slowed = slowed
    chat = add(simulation, "chat", 10, 3)
    run_on(simulation, 20)
    assert chat.state is State.FINISHED
    simulation.run(most=4000)


def test_batch_requests_that_could_fill_every_step_get_on_beside_prompts_that_never_end() -> None:
    scheduler = make_scheduler(2000, 10, 0, step_tokens=8, prefill_tokens=8)
    scheduler.steer(Steer())
    simulation = Simulation(scheduler)
    batch = [add(simulation, name, 4, 200, pool="b") for name in "rstuvwxy"]
    run_on(simulation, 10)
    talking = add(simulation, "talking", 4, 1000)
    before = [sequence.generated for sequence in batch]
    for number in range(10 * HELD_STEPS):
        if len(scheduler.waiting) < 2:
            add(simulation, f"{number}", 64, 1)
        simulation.step()
    assert talking.generated > 0
    gained = [sequence.generated - had for sequence, had in zip(batch, before, strict=True)]
    assert sum(gained) >= 4 * len(batch)


def test_interactive_request_does_not_wait_for_the_prefix_of_a_batch_request() -> None:
    simulation = simulate(n_cells=800)
    prompt = range(300)
    for _ in range(2):  # somebody of A was here lately
        simulation.add(make_submit("first", (9,), 1))
        simulation.step()
    simulation.add(make_submit("batch", prompt, 5, pool="b"))
    simulation.step()
    (chat,) = simulation.add(make_submit("chat", prompt, 5))
    assert simulation.step().started == (chat,)
    (late,) = simulation.add(make_submit("late", prompt, 5, pool="b"))
    simulation.run(most=200)
    assert late.cached_tokens >= 299 - WORTH_WAITING


def test_exclusive_request_of_a_does_not_wait_for_batch_requests_to_end() -> None:
    simulation = simulate(max_sequences=4)
    for name in "xyz":
        add(simulation, name, 10, 60, pool="b")
    run_on(simulation, 10)
    (alone,) = simulation.add(make_submit("alone", (1, 2), 5, exclusive=True))
    assert simulation.step().started == (alone,)
    run_on(simulation, 3)
    assert running(simulation) == "alone"
    simulation.run(most=400)
    assert alone.exclusive


# Numbers


@pytest.mark.parametrize(
    ("b_cells", "total", "expected"), [(100, 400, 100), (400, 400, 400 - A_LEAST), (90, 100, 50)]
)
def test_pool_a_keeps_its_least(b_cells: int, total: int, expected: int) -> None:
    assert simulate(total, b_cells=b_cells).scheduler.pools.b_cells == expected


def test_odd_numbers_are_made_sane() -> None:
    nan = float("nan")
    steer = sane(Steer(tau=nan, b_cells=-3, ageing=float("inf"), max_wait_s=nan))
    assert steer == Steer()
    assert sane(Steer(tau=7.0, max_wait_s=-1.0)) == Steer(tau=0.999, max_wait_s=0.0)
