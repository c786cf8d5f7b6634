"""When an answer with a budget ends: the window, and which of its endings is taken."""

import pytest

from appliance.engine.commands import Budget
from appliance.engine.landing import (
    CUT_CHANCE,
    ENOUGH,
    FLOOR,
    TRIES,
    Ending,
    Tries,
    Window,
    outcome,
)


def ending(chance: float, kind: str = "steered", *, at_once: bool = False) -> Ending:
    return Ending(kind, chance, (1,), at_once=at_once)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "most", "first", "last", "fork"),
    [(100, 400, 97, 103, 76), (100, 100, 97, 100, 76), (20, 400, 17, 23, 0), (1, 400, 1, 4, 0)],
)
def test_the_window_is_three_tokens_to_either_side_within_the_limit(
    tokens: int, most: int, first: int, last: int, fork: int
) -> None:
    window = Window.of(Budget(tokens), most)
    assert (window.first, window.last, window.fork) == (first, last, fork)
    assert window.holds(first)
    assert window.holds(last)
    assert not window.holds(last + 1)


def test_every_try_has_its_measure() -> None:
    assert len(ENOUGH) == TRIES
    assert min(ENOUGH) >= FLOOR > CUT_CHANCE


def test_the_likeliest_ending_of_all_tries_is_kept() -> None:
    tries = Tries(strict=False)
    for chance in (0.001, 0.02, 0.004):
        tries.offer(ending(chance))
        assert not tries.end_try()
    assert tries.chosen == ending(0.02)


def test_an_ending_of_the_models_own_settles_it() -> None:
    tries = Tries(strict=False)
    tries.offer(ending(0.9))
    tries.offer(ending(0.02, at_once=True))
    assert tries.settled
    assert tries.chosen == ending(0.02, at_once=True)


def test_the_last_try_decides_whatever_it_found() -> None:
    tries = Tries(strict=True)
    tries.offer(ending(CUT_CHANCE, "cut"))
    assert [tries.end_try() for _ in range(TRIES)] == [False] * (TRIES - 1) + [True]


def test_only_a_strict_answer_takes_what_is_no_boundary() -> None:
    for strict in (True, False):
        tries = Tries(strict)
        tries.offer(ending(CUT_CHANCE, "cut"))
        assert (tries.chosen is not None) == strict


def test_every_other_later_try_lets_no_sentence_end_right_before_the_window() -> None:
    stretched = [Tries(strict=False, made=made).stretches(8) for made in range(6)]
    assert stretched == [False, False, True, False, True, False]
    assert not Tries(strict=False, made=4).stretches(9)


def test_how_it_ended_is_named() -> None:
    first, later = Tries(strict=False), Tries(strict=False, made=1)
    own = ending(1.0, "natural", at_once=True)
    assert first.landing(own, held_back=False) == "natural"
    assert first.landing(own, held_back=True) == "steered"
    assert later.landing(own, held_back=False) == "steered"
    assert first.landing(ending(0.1, "closed"), held_back=False) == "closed"
    assert first.landing(ending(0.0, "cut"), held_back=False) == "forced"


def test_a_rule_that_goes_before_the_budget_makes_it_give_way_outside_the_window() -> None:
    window = Window.of(Budget(50), 400)
    assert outcome(window, 50) == "natural"
    assert outcome(window, 46) == outcome(window, 54) == "gave_way"
