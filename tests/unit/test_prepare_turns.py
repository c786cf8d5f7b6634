"""Whose job is prepared next, and who gives way where no more may wait."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.prepare.turns import Turns


def make_turns(*jobs: str) -> Turns[str]:
    """Jobs such as `a1`: of the key `a`."""
    turns: Turns[str] = Turns()
    for job in jobs:
        turns.join(job[0], job)
    return turns


def drained(turns: Turns[str]) -> list[str]:
    return [turns.next() for _ in range(len(turns))]


def test_keys_are_served_in_turn_and_each_in_order_of_arrival() -> None:
    turns = make_turns("a1", "a2", "a3", "b1", "c1", "c2")
    assert drained(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert len(turns) == 0


def test_who_was_just_served_goes_behind_those_that_wait() -> None:
    turns = make_turns("a1", "b1")
    assert turns.next() == "a1"
    turns.join("a", "a2")
    assert drained(turns) == ["b1", "a2"]


def test_what_is_tried_again_comes_before_all() -> None:
    turns = make_turns("a1", "a2", "b1")
    again = turns.next()
    turns.again("a", again)
    assert drained(turns) == ["a1", "b1", "a2"]
    turns.again("c", "c1")
    assert drained(turns) == ["c1"]


def test_who_leaves_is_not_served_and_may_have_left_already() -> None:
    turns = make_turns("a1", "a2", "b1")
    turns.leave("b", "b1")
    turns.leave("b", "b1")
    turns.leave("a", "b1")
    assert drained(turns) == ["a1", "a2"]


def test_newest_job_of_the_key_with_most_gives_way() -> None:
    turns = make_turns("a1", "b1", "b2", "b3", "a2")
    assert turns.give_way("c") == "b3"
    assert drained(turns) == ["a1", "b1", "a2", "b2"]


def test_nobody_gives_way_to_a_key_that_would_then_have_as_many() -> None:
    turns = make_turns("a1", "a2", "b1")
    assert turns.give_way("a") is None
    assert turns.give_way("b") is None
    assert turns.give_way("c") == "a2"
    assert turns.give_way("c") is None, "one job is what everybody may have"
    assert len(turns) == 2


@given(st.lists(st.sampled_from("aaabc"), max_size=40))
def test_nobody_waits_for_more_than_one_job_of_each_other_key(keys: list[str]) -> None:
    turns: Turns[tuple[str, int]] = Turns()
    for number, key in enumerate(keys):
        turns.join(key, (key, number))
    served = [turns.next() for _ in range(len(keys))]
    assert sorted(number for _, number in served) == list(range(len(keys)))
    for key in set(keys):
        places = [place for place, (whose, _) in enumerate(served) if whose == key]
        for before, after in zip([-1, *places], places, strict=False):
            between = [whose for whose, _ in served[before + 1 : after]]
            assert len(between) == len(set(between))
