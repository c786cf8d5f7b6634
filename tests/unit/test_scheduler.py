"""The scheduler's rules, one by one: who runs, on which cells, with what is computed already."""

import pytest

from appliance.engine.plan import Copy, Remove
from appliance.engine.scheduler import WORTH_WAITING
from appliance.engine.sequence import State
from tests.unit.engine_parts import Simulation, answer_to, make_scheduler, make_submit

# The step


def test_prompt_longer_than_a_step_is_computed_in_chunks() -> None:
    simulation = Simulation(make_scheduler(step_tokens=16, prefill_tokens=16))
    (sequence,) = simulation.add(make_submit(prompt=range(40)))
    chunks = [simulation.step().chunks[0] for _ in range(3)]
    assert [(c.start, len(c.tokens), c.outputs) for c in chunks] == [
        (0, 16, 0),
        (16, 16, 0),
        (32, 8, 1),
    ]
    assert sequence.state is State.DECODE
    assert sequence.generated == 1


def test_decode_goes_before_prefill_and_bounds_it() -> None:
    simulation = Simulation(make_scheduler(step_tokens=32, prefill_tokens=10))
    simulation.add(make_submit("first", (1, 2), 20))
    simulation.step()
    simulation.add(make_submit("second", range(50), 5))
    plan = simulation.step()
    assert [c.sequence.request.id for c in plan.chunks] == ["first", "second"]
    assert [len(c.tokens) for c in plan.chunks] == [1, 10]


def test_lone_prompt_fills_the_whole_step() -> None:
    simulation = Simulation(make_scheduler(step_tokens=32, prefill_tokens=10))
    simulation.add(make_submit(prompt=range(50)))
    assert simulation.step().n_tokens == 32


def test_slowed_scheduler_computes_a_quarter_per_step_and_drafts_nothing() -> None:
    simulation = Simulation(make_scheduler(step_tokens=32, prefill_tokens=16, draft_tokens=4))
    simulation.scheduler.slowed = True
    simulation.add(make_submit("first", range(20), 20))
    assert [simulation.step().n_tokens for _ in range(3)] == [8, 8, 4]
    simulation.add(make_submit("second", range(100, 150), 5))
    plan = simulation.step()
    assert [len(chunk.tokens) for chunk in plan.chunks] == [1, 4]
    simulation.scheduler.slowed = False
    assert simulation.step().n_tokens > 8


def test_several_prompts_share_a_step() -> None:
    simulation = Simulation(make_scheduler(step_tokens=32))
    for name in "abc":
        simulation.add(make_submit(name, (ord(name),) * 12))
    plan = simulation.step()
    assert [len(chunk.tokens) for chunk in plan.chunks] == [12, 12, 8]
    assert [chunk.outputs for chunk in plan.chunks] == [1, 1, 0]


def test_no_more_sequences_run_than_allowed() -> None:
    simulation = Simulation(make_scheduler(max_sequences=2))
    simulation.add(make_submit(n=3, max_tokens=4))
    simulation.step()
    assert len(simulation.scheduler.running) == 2
    simulation.run(most=20)
    assert len(simulation.finished) == 3


def test_lower_priority_number_runs_first_and_ties_in_order_of_arrival() -> None:
    simulation = Simulation(make_scheduler(max_sequences=1))
    for name, priority in (("late", 1), ("first", 0), ("second", 0)):
        simulation.add(make_submit(name, max_tokens=1, priority=priority))
    simulation.run(most=20)
    assert [s.request.id for s in simulation.finished] == ["first", "second", "late"]


def test_paused_scheduler_starts_nothing_and_finishes_what_runs() -> None:
    simulation = Simulation(make_scheduler())
    simulation.add(make_submit("running", max_tokens=3))
    simulation.step()
    simulation.scheduler.paused = True
    simulation.add(make_submit("waiting"))
    for _ in range(5):
        assert not simulation.step().started
    assert [s.request.id for s in simulation.finished] == ["running"]
    simulation.scheduler.paused = False
    assert simulation.step().started


def test_idle_scheduler_plans_nothing() -> None:
    plan = make_scheduler().schedule(1.0)
    assert plan.n_tokens == 0
    assert not plan.moves


# Prefixes


def test_second_identical_prompt_waits_for_the_first_and_reuses_all_but_one_token() -> None:
    simulation = Simulation(make_scheduler(step_tokens=40, prefill_tokens=40))
    prompt = range(80)
    simulation.add(make_submit("first", prompt, 10))
    (second,) = simulation.add(make_submit("second", prompt, 10))
    for _ in range(2):
        simulation.step()
        assert second.state is State.WAITING
    plan = simulation.step()
    assert plan.started == (second,)
    assert second.cached_tokens == 79
    assert [type(move) for move in plan.moves] == [Copy]
    simulation.run(most=20)
    assert second.tokens == answer_to(prompt, 10)


def test_choices_of_one_request_compute_their_prompt_once() -> None:
    simulation = Simulation(make_scheduler())
    sequences = simulation.add(make_submit(prompt=range(50), n=3, max_tokens=4))
    computed = 0
    while simulation.scheduler.running or simulation.scheduler.waiting:
        computed += simulation.step().n_tokens
    assert computed == 50 + 2 + 3 * 3
    assert [s.cached_tokens for s in sequences] == [0, 49, 49]


def test_short_common_prefix_is_not_worth_waiting_for() -> None:
    simulation = Simulation(make_scheduler())
    prompt = range(WORTH_WAITING)
    simulation.add(make_submit("first", prompt))
    simulation.add(make_submit("second", prompt))
    assert len(simulation.step().started) == 2


def test_request_behind_one_that_waits_for_a_prefix_goes_ahead() -> None:
    simulation = Simulation(make_scheduler(step_tokens=80, prefill_tokens=80))
    for name, prompt in (("first", range(60)), ("same", range(60)), ("other", range(100, 110))):
        simulation.add(make_submit(name, prompt))
    assert [s.request.id for s in simulation.step().started] == ["first", "other"]


@pytest.mark.parametrize("fields", [{"scope": "b"}, {"cache_prompt": False}])
def test_other_scope_or_wish_shares_nothing(fields: dict[str, object]) -> None:
    simulation = Simulation(make_scheduler())
    simulation.add(make_submit("first", range(50), 2, scope="a"))
    simulation.run(most=10)
    (second,) = simulation.add(make_submit("second", range(50), 2, **{"scope": "a", **fields}))
    simulation.run(most=10)
    assert second.cached_tokens == 0


def test_uncached_answer_leaves_nothing_behind() -> None:
    simulation = Simulation(make_scheduler())
    simulation.add(make_submit(prompt=range(50), cache_prompt=False))
    simulation.run(most=20)
    assert simulation.scheduler.pool.used == 0
    assert not simulation.scheduler.cached


def test_finished_dialogue_is_taken_over_by_its_next_turn() -> None:
    simulation = Simulation(make_scheduler())
    (first,) = simulation.add(make_submit("first", range(30), 5))
    simulation.run(most=10)
    (second,) = simulation.add(make_submit("second", [*first.tokens, 50, 51], 5))
    plan = simulation.step()
    assert second.cached_tokens == len(first.tokens) - 1
    assert not plan.moves
    assert not simulation.scheduler.cached


def test_repeated_prompt_takes_over_all_but_its_last_token() -> None:
    simulation = Simulation(make_scheduler())
    simulation.add(make_submit("first", range(30), 1))
    simulation.run(most=10)
    (second,) = simulation.add(make_submit("second", range(30), 1))
    plan = simulation.step()
    assert second.cached_tokens == 29
    assert [type(move) for move in plan.moves] == [Remove]
    assert plan.n_tokens == 1


def test_prefix_of_a_longer_answer_is_shared_and_both_stay() -> None:
    simulation = Simulation(make_scheduler())
    simulation.add(make_submit("first", range(40), 5))
    simulation.run(most=10)
    (second,) = simulation.add(make_submit("second", [*range(20), 99], 5))
    plan = simulation.step()
    assert second.cached_tokens == 20
    assert [type(move) for move in plan.moves] == [Copy]
    simulation.run(most=10)
    assert len(simulation.scheduler.cached) == 2
    assert simulation.scheduler.pool.used == 44 + 1 + 4


def test_oldest_finished_sequence_is_evicted_first() -> None:
    simulation = Simulation(make_scheduler(n_cells=64))
    for token in (10, 11, 12):
        simulation.add(make_submit(str(token), (token,) * 20, 1))
        simulation.run(most=10)
    simulation.add(make_submit("new", (13,) * 20, 1))
    assert simulation.step().evicted == 1
    kept = [s.request.id for s in simulation.scheduler.cached.values()]
    assert kept == ["11", "12", "new"]


def test_no_more_finished_sequences_are_kept_than_allowed() -> None:
    simulation = Simulation(make_scheduler(cached_sequences=2))
    for token in range(4):
        simulation.add(make_submit(str(token), (token,) * 5, 1))
        simulation.run(most=10)
    assert [s.request.id for s in simulation.scheduler.cached.values()] == ["2", "3"]


# Room


def test_youngest_is_preempted_and_resumes_with_its_tokens() -> None:
    simulation = Simulation(make_scheduler(n_cells=40))
    (old,) = simulation.add(make_submit("old", (1,) * 10, 20))
    (young,) = simulation.add(make_submit("young", (2,) * 10, 20))
    preempted = 0
    while young.state is not State.FINISHED:
        preempted += simulation.step().preempted
        if preempted and young.state is State.WAITING:
            assert young.generated > 0
            assert old.state is not State.WAITING
    assert preempted >= 1
    assert old.tokens == answer_to((1,) * 10, 20)
    assert young.tokens == answer_to((2,) * 10, 20)


def test_urgent_prompt_takes_cells_from_one_that_decodes_in_the_same_step() -> None:
    simulation = Simulation(make_scheduler(n_cells=40, step_tokens=16, prefill_tokens=8))
    (later,) = simulation.add(make_submit("later", (1,) * 8, 30, priority=1))
    simulation.step()
    (urgent,) = simulation.add(make_submit("urgent", (2,) * 30, 2))
    plan = simulation.step()
    while not plan.preempted:
        plan = simulation.step()
    assert [chunk.sequence for chunk in plan.chunks] == [urgent]
    assert later.state is State.WAITING
    simulation.run(most=60)
    assert later.tokens == answer_to((1,) * 8, 30)


def test_newcomer_displaces_nothing_that_runs_nor_the_prefix_it_reuses() -> None:
    simulation = Simulation(make_scheduler(n_cells=64))
    simulation.add(make_submit("cached", (1,) * 30, 1))
    simulation.run(most=5)
    simulation.add(make_submit("running", (2,) * 29, 5))
    simulation.step()
    simulation.add(make_submit("new", (1,) * 15 + (3,) * 25, 1))
    while simulation.scheduler.running or simulation.scheduler.waiting:
        assert simulation.step().preempted == 0
    assert [s.request.id for s in simulation.finished] == ["cached", "running", "new"]


def test_small_requests_do_not_overtake_a_big_one_for_ever() -> None:
    simulation = Simulation(make_scheduler(n_cells=64))
    simulation.add(make_submit("running", (1,) * 10, 5))
    simulation.step()
    simulation.add(make_submit("big", (2,) * 60, 1))
    simulation.add(make_submit("small", (3,) * 4, 1))
    simulation.run(most=20)
    assert [s.request.id for s in simulation.finished] == ["running", "big", "small"]


def test_request_that_needs_the_whole_pool_gets_it() -> None:
    simulation = Simulation(make_scheduler(n_cells=64))
    simulation.add(make_submit("before", (1,) * 20, 2))
    simulation.run(most=10)
    (big,) = simulation.add(make_submit("big", (2,) * 63, 1))
    simulation.run(most=10)
    assert big.generated == 1


def test_aborted_sequences_free_their_place_whatever_they_did() -> None:
    simulation = Simulation(make_scheduler(n_cells=40, max_sequences=2, step_tokens=16))
    (decoding,) = simulation.add(make_submit("decoding", (1,) * 4, 20))
    simulation.step()
    (prefilling,) = simulation.add(make_submit("prefilling", (2,) * 30, 2))
    simulation.step()
    (waiting,) = simulation.add(make_submit("waiting", (3,) * 4, 2))
    assert [s.state for s in (decoding, prefilling, waiting)] == [
        State.DECODE,
        State.PREFILL,
        State.WAITING,
    ]
    for sequence in (decoding, prefilling, waiting):
        simulation.scheduler.finish(sequence)
        simulation.scheduler.finish(sequence)  # twice does no harm
        simulation.scheduler.check()
    simulation.step()
    assert simulation.scheduler.pool.pinned == 0
    assert not simulation.scheduler.running


# Drafts


def test_failing_draft_is_rewound() -> None:
    simulation = Simulation(make_scheduler(draft_tokens=4))
    simulation.add(make_submit(prompt=[0, 1, 2] * 8, max_tokens=60))
    failed = 0
    while simulation.scheduler.running or simulation.scheduler.waiting:
        plan = simulation.step()
        for chunk in plan.chunks:
            if chunk.draft and chunk.sequence.state is State.DECODE:
                end = chunk.start + len(chunk.tokens)
                failed += chunk.sequence.computed < end
                assert chunk.sequence.pending == 1
    assert failed > 0


def test_drafts_never_exceed_max_tokens() -> None:
    simulation = Simulation(make_scheduler(draft_tokens=8))
    (sequence,) = simulation.add(make_submit(prompt=[0, 1, 2] * 8, max_tokens=5))
    while sequence.state is not State.FINISHED:
        plan = simulation.step()
        assert all(len(c.draft) <= 4 for c in plan.chunks)
    assert sequence.generated == 5


def test_drafts_leave_room_for_prompts() -> None:
    simulation = Simulation(make_scheduler(step_tokens=8, prefill_tokens=8, draft_tokens=8))
    for place in range(3):
        simulation.add(make_submit(f"r{place}", [1, 2] * 3, 60))
    while any(s.state is not State.DECODE for s in simulation.scheduler.running) or not (
        simulation.scheduler.running
    ):
        simulation.step()
    (late,) = simulation.add(make_submit("late", range(3, 23), 4))
    for _ in range(5):
        simulation.step()
    assert late.state is State.DECODE, "20 prompt tokens, at least 4 a step"


def test_drafts_displace_nothing() -> None:
    simulation = Simulation(make_scheduler(n_cells=30, draft_tokens=8))
    simulation.add(make_submit("cached", (9,) * 4, 1))
    simulation.run(most=5)
    (sequence,) = simulation.add(make_submit(prompt=[0, 1, 2] * 7, max_tokens=9))
    while sequence.state is not State.FINISHED and simulation.scheduler.pool.free:
        plan = simulation.step()
        drafted = any(chunk.draft for chunk in plan.chunks)
        assert not (drafted and (plan.evicted or plan.preempted))


def test_sequences_note_how_many_shared_a_step() -> None:
    simulation = Simulation(make_scheduler())
    sequences = [simulation.add(make_submit(name, (ord(name),), 3))[0] for name in "abc"]
    simulation.run(most=10)
    assert [s.parallel for s in sequences] == [3, 3, 3]
