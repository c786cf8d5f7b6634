"""States of sequences kept in memory: only where it pays, never too much, never lost track of."""

import pytest

from appliance.engine import keeping
from appliance.engine.keeping import LEAST, Costs, Keeping
from appliance.engine.sequence import Sequence
from tests.unit.engine_parts import (
    Simulation,
    answer_to,
    make_scheduler,
    make_sequence,
    make_submit,
)

CHEAP = Costs(bytes_per_token=1000, copy_ms=0.01, compute_ms=1.0)


def computed(tokens: int = 100) -> Sequence:
    sequence = make_sequence(range(tokens + 1))
    sequence.seq_id, sequence.computed = 3, tokens
    return sequence


def make_keeping(costs: Costs | None = CHEAP) -> Keeping:
    kept = Keeping()
    kept.costs = costs
    return kept


def test_state_is_saved_and_put_back() -> None:
    kept, sequence = make_keeping(), computed(100)
    save = kept.save(sequence)
    assert save is not None
    assert (save.seq_id, save.state.tokens, kept.reserved) == (3, 100, 100_000)
    save.state.data = bytearray(1)
    sequence.seq_id = 5
    restore = kept.restore(sequence)
    assert restore is not None
    assert (restore.seq_id, restore.state) == (5, save.state)
    restore.state.restored = True
    assert kept.settle(sequence)
    assert (kept.reserved, kept.saved, kept.restored, sequence.saved) == (0, 1, 1, None)


@pytest.mark.parametrize(
    ("costs", "tokens"),
    [(None, 100), (CHEAP, LEAST - 1), (Costs(1000, 1.0, 1.0), 100)],
    ids=["unknown", "short", "dear"],
)
def test_state_is_not_saved_where_that_does_not_pay(costs: Costs | None, tokens: int) -> None:
    assert make_keeping(costs).save(computed(tokens)) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST_BYTES", 150_000)
    kept, first, second = make_keeping(), computed(100), computed(100)
    assert kept.save(first) is not None
    assert kept.save(second) is None
    kept.drop(first)
    assert kept.save(second) is not None
    assert kept.reserved == 100_000


def test_state_that_could_not_be_read_is_forgotten() -> None:
    kept, sequence = make_keeping(), computed()
    assert kept.save(sequence) is not None
    assert kept.restore(sequence) is None
    assert (kept.reserved, sequence.saved) == (0, None)


@pytest.mark.parametrize("refuses", [False, True])
def test_evicted_answer_goes_on_where_it_was_whether_or_not_its_state_can_be_put_back(
    refuses: bool,
) -> None:
    simulation = Simulation(make_scheduler(n_cells=120, cached_sequences=0))
    simulation.scheduler.cache.keeping.costs = CHEAP
    simulation.mirror.refuses = refuses
    for number in range(3):
        simulation.add(make_submit(f"{number}", [number + 50] * 30, 40))
    simulation.run(most=1000)
    kept = simulation.scheduler.cache.keeping
    assert kept.saved > 0
    assert (kept.restored > 0) is not refuses
    assert kept.reserved == 0
    for sequence in simulation.finished:
        assert sequence.tokens == answer_to(sequence.request.prompt, 40)


def test_restored_tokens_are_not_computed_again() -> None:
    simulation = Simulation(make_scheduler(n_cells=120, cached_sequences=0))
    simulation.scheduler.cache.keeping.costs = CHEAP
    for number in range(3):
        simulation.add(make_submit(f"{number}", [number + 50] * 30, 40))
    tokens = 0
    while simulation.scheduler.running or simulation.scheduler.waiting:
        tokens += simulation.step().n_tokens
    assert simulation.scheduler.cache.keeping.restored > 0
    assert tokens == 3 * (30 + 39)


def test_state_of_a_cancelled_request_is_dropped() -> None:
    simulation = Simulation(make_scheduler(n_cells=120, cached_sequences=0))
    simulation.scheduler.cache.keeping.costs = CHEAP
    for number in range(3):
        simulation.add(make_submit(f"{number}", [number + 50] * 30, 40))
    kept = simulation.scheduler.cache.keeping
    while not kept.reserved:
        simulation.step()
    for sequence in list(simulation.scheduler.waiting):
        simulation.scheduler.finish(sequence)
    assert kept.reserved == 0
