"""What drafts add to a step: within its cells, its room and its request's limits, and no more."""

from typing import Any

import pytest

from appliance.engine.drafting import Drafting
from appliance.engine.drafts import Drafter
from appliance.engine.kv import KvPool
from appliance.engine.plan import Chunk
from appliance.engine.sequence import Sequence
from tests.unit.engine_parts import make_sequence

REPEATS = (1, 2, 3, 4) * 3


def make_drafting(
    cells: int = 100, limit: int = 8, token_ms: float = 0.01
) -> tuple[Drafting, KvPool]:
    """A token more costs `token_ms`, a step 10."""
    drafter = Drafter(limit)
    drafter.observe_step(1, 10.0)
    drafter.observe_step(101, 10.0 + 100 * token_ms)
    pool = KvPool(cells)
    return Drafting(drafter, pool), pool


def decoding(pool: KvPool, **fields: Any) -> Sequence:
    """All but its last token are computed."""
    sequence = make_sequence(**{"prompt": REPEATS, "max_tokens": 50, **fields})
    sequence.seq_id = 3
    sequence.cells = pool.take(len(sequence.tokens))
    sequence.computed = len(sequence.tokens) - 1
    return sequence


def drafts(drafting: Drafting, sequence: Sequence, most: int = 100) -> tuple[int, ...]:
    """What is added to the one token of the sequence's chunk."""
    chunks = [Chunk(sequence, sequence.computed, (sequence.tokens[-1],), 1)]
    drafting.add(chunks, most)
    (chunk,) = chunks
    assert chunk.tokens == (sequence.tokens[-1], *chunk.draft)
    assert chunk.outputs == len(chunk.tokens)
    return chunk.draft


def test_draft_is_what_followed_before_and_has_its_cells() -> None:
    drafting, pool = make_drafting()
    sequence = decoding(pool)
    assert drafts(drafting, sequence) == (1, 2, 3, 4, 1, 2, 3, 4)
    assert len(sequence.cells) == len(REPEATS) + 8
    assert pool.used == len(REPEATS) + 8


def test_drafted_step_is_not_an_exclusive_one() -> None:
    drafting, pool = make_drafting()
    sequence = decoding(pool)
    sequence.exclusive = True
    drafts(drafting, sequence)
    assert not sequence.exclusive


@pytest.mark.parametrize(
    ("fields", "most", "expected"),
    [
        ({}, 4, 3),
        ({}, 1, 0),
        ({"max_tokens": 3}, 100, 2),
        ({"max_tokens": 1}, 100, 0),
        ({"exclusive": True}, 100, 0),
        ({"forced": (5,) * 50}, 100, 0),
        ({"prompt": (1, 2, 3, 4, 5)}, 100, 0),
    ],
    ids=["room", "no-room", "max-tokens", "last-token", "exclusive", "forced", "no-repeat"],
)
def test_draft_keeps_within_the_step_and_the_request(
    fields: dict[str, Any], most: int, expected: int
) -> None:
    drafting, pool = make_drafting()
    sequence = decoding(pool, **fields)
    assert len(drafts(drafting, sequence, most)) == expected
    assert pool.used == len(sequence.tokens) + expected


@pytest.mark.parametrize(("cells", "expected"), [(12, 0), (15, 3), (40, 8)])
def test_draft_takes_free_cells_only(cells: int, expected: int) -> None:
    drafting, pool = make_drafting(cells)
    assert len(drafts(drafting, decoding(pool))) == expected


def test_token_that_costs_too_much_is_not_drafted() -> None:
    drafting, pool = make_drafting(token_ms=9.0)
    sequence = decoding(pool)
    assert drafts(drafting, sequence) == ()
    assert pool.used == len(REPEATS)


def test_drafts_that_fail_are_given_up_and_those_that_hold_are_not() -> None:
    for accepted, expected in ((0, 0), (8, 8)):
        drafting, pool = make_drafting(token_ms=2.0)
        sequence = decoding(pool)
        for _ in range(50):
            added = len(drafts(drafting, sequence))
            pool.release(sequence.cells[len(REPEATS) :])
            del sequence.cells[len(REPEATS) :]
            if added:
                drafting.observe(sequence, added, min(accepted, added))
        assert len(drafts(drafting, sequence)) == expected


def test_forgotten_sequence_starts_afresh() -> None:
    drafting, pool = make_drafting()
    first = decoding(pool)
    drafts(drafting, first)
    drafting.forget(first)
    other = decoding(pool, prompt=(7, 8, 9) * 3)
    assert drafts(drafting, other)[:3] == (7, 8, 9)
