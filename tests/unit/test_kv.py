"""The account of KV cells: what is taken, shared, pinned and had back."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.kv import KvPool


def test_new_pool_is_free() -> None:
    pool = KvPool(4)
    assert (pool.free, pool.used, pool.pinned) == (4, 0, 0)
    pool.check([], [])


def test_taken_cells_are_distinct_and_pinned() -> None:
    pool = KvPool(4)
    first, second = pool.take(1), pool.take(2)
    assert len({*first, *second}) == 3
    assert (pool.free, pool.used, pool.pinned) == (1, 3, 3)
    pool.check([first, second], [])


def test_shared_cell_is_free_only_when_its_last_holder_lets_go() -> None:
    pool = KvPool(4)
    cells = pool.take(2)
    pool.share(cells)
    pool.release(cells)
    assert pool.free == 2
    pool.check([cells], [])
    pool.release(cells)
    assert pool.free == 4


def test_finished_sequences_cells_are_held_but_not_pinned() -> None:
    pool = KvPool(4)
    cells = pool.take(3)
    pool.unpin(cells)
    assert (pool.used, pool.pinned) == (3, 0)
    assert pool.unpinned(cells) == 3
    pool.check([], [cells])
    pool.share(cells[:1])
    assert pool.unpinned(cells) == 2
    pool.check([cells[:1]], [cells])
    pool.release(cells, pinned=False)
    assert (pool.used, pool.pinned) == (1, 1)


def test_resumed_holder_pins_its_cells_again() -> None:
    pool = KvPool(4)
    cells = pool.take(2)
    pool.unpin(cells)
    pool.pin(cells)
    assert pool.pinned == 2
    pool.check([cells], [])


@pytest.mark.parametrize(
    "misuse",
    [
        lambda pool: pool.take(5),
        lambda pool: pool.share([0]),
        lambda pool: pool.release([0]),
        lambda pool: pool.release([0], pinned=False),
        lambda pool: pool.unpin([0]),
        lambda pool: pool.check([[0]], []),
    ],
)
def test_misuse_is_noticed(misuse: Callable[[KvPool], object]) -> None:
    with pytest.raises(AssertionError):
        misuse(KvPool(4))


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "rest", "drop"]), st.integers(0, 9))))
def test_any_order_of_moves_keeps_every_cell_accounted_for(moves: list[tuple[str, int]]) -> None:
    pool = KvPool(12)
    running: list[list[int]] = []
    cached: list[list[int]] = []
    for move, number in moves:
        if move == "take" and number <= pool.free:
            running.append(pool.take(number))
        elif move == "share" and (holders := running + cached):
            cells = holders[number % len(holders)][: number + 1]
            pool.share(cells)
            running.append(list(cells))
        elif move == "rest" and running:
            cells = running.pop(number % len(running))
            pool.unpin(cells)
            cached.append(cells)
        elif move == "drop" and (pile := cached if number % 2 else running):
            pool.release(pile.pop(number % len(pile)), pinned=pile is running)
        pool.check(running, cached)
        assert pool.free + pool.used == pool.total
