"""When pool B computes in a step of pool A: never dearly, and never never."""

import pytest

from appliance.engine.drafts import Drafter
from appliance.engine.turns import HELD_STEPS, PIECE, QUIET_S, SHARE, Turns


def make_turns(token_ms: float = 10.0) -> Turns:
    """A step takes 10 ms, and `token_ms` for every token after the first."""
    drafter = Drafter(0)
    drafter.observe_step(1, 10.0)
    drafter.observe_step(101, 10.0 + 100 * token_ms)
    return Turns(drafter)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 7), (4, 4), (7, 1)])
def test_decoding_of_a_is_slowed_by_its_share_and_no_more(a: int, b: int) -> None:
    turns, steps, extra = make_turns(), 2000, 0.0
    for _ in range(steps):
        if turns.allows(a, False):
            turns.took(a, b)
            extra += 10.0 * b
    assert extra / (steps * 10.0 * a) == pytest.approx(SHARE, rel=0.05)


def test_tokens_that_cost_nothing_are_always_allowed() -> None:
    turns = make_turns(token_ms=0.0)
    for _ in range(50):
        assert turns.allows(4, False)
        turns.took(4, 4)


def test_nothing_known_of_costs_holds_nobody_up() -> None:
    turns = Turns(Drafter(0))
    for _ in range(5):
        assert turns.allows(1, False)
        turns.took(1, 8)


def test_prompts_of_a_hold_b_up_for_a_bounded_time() -> None:
    turns = make_turns()
    allowed = [turns.allows(200, True) for _ in range(4 * HELD_STEPS)]
    assert allowed.count(True) == 4
    assert allowed.index(True) == HELD_STEPS - 1


def test_nothing_is_saved_up() -> None:
    turns = make_turns()
    for _ in range(100):
        assert turns.allows(1, False)
    turns.took(1, 1)
    assert not turns.allows(1, False)


def test_prompts_of_b_come_in_pieces_while_somebody_of_a_was_here_lately() -> None:
    turns = make_turns()
    assert turns.piece(500, 3.0) == 500
    turns.seen(100.0)
    assert turns.piece(500, 101.0) == PIECE
    assert turns.piece(7, 101.0) == 7
    assert turns.piece(500, 100.0 + QUIET_S) == 500


@pytest.mark.parametrize(("places", "expected"), [(1, 1), (2, 1), (8, 7), (16, 14), (17, 14)])
def test_places_are_left_free_while_somebody_of_a_was_here_lately(
    places: int, expected: int
) -> None:
    turns = make_turns()
    assert turns.places(places, 3.0) == places
    turns.seen(100.0)
    assert turns.places(places, 101.0) == expected
    assert turns.places(places, 100.0 + QUIET_S) == places
