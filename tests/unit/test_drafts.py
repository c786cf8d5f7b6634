"""Drafts by prompt lookup: what is proposed, and when it pays."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.drafts import BUCKETS, Drafter, Lookup


def make_drafter(limit: int = 8, **step_ms: float) -> Drafter:
    """`n4=10.0`: a step of four tokens took 10 ms."""
    drafter = Drafter(limit)
    for name, ms in step_ms.items():
        drafter.observe_step(int(name.removeprefix("n")), ms)
    return drafter


# Lookup


def test_continuation_of_the_latest_repeat_is_proposed() -> None:
    assert Lookup([1, 2, 3, 4, 5, 1, 2, 3]).propose(2) == [4, 5]
    assert Lookup([1, 2, 8, 1, 2, 9, 1, 2]).propose(1) == [9]


def test_longer_match_wins_over_a_later_one() -> None:
    tokens = [1, 2, 3, 4, 50, 3, 4, 60, 1, 2, 3, 4]
    assert Lookup(tokens).propose(1) == [50]


def test_nothing_is_proposed_where_nothing_repeats() -> None:
    assert Lookup([1, 2, 3, 4, 5]).propose(4) == []
    assert Lookup([1]).propose(4) == []
    assert Lookup([]).propose(4) == []


def test_loop_is_continued_past_the_end_of_the_text() -> None:
    assert Lookup([7, 8, 9, 7, 8, 9, 7, 8]).propose(6) == [9, 7, 8, 9, 7, 8]
    assert Lookup([5, 5, 5]).propose(3) == [5, 5, 5]


def test_lookup_follows_the_sequence_as_it_grows() -> None:
    tokens = [1, 2, 3]
    lookup = Lookup(tokens)
    assert lookup.propose(2) == []
    tokens += [9, 1, 2]
    assert lookup.propose(2) == [3, 9]
    tokens += [4, 1, 2]
    assert lookup.propose(2) == [4, 1]


@given(st.lists(st.integers(0, 2), max_size=30), st.integers(1, 8))
def test_proposal_is_what_followed_the_same_tokens_before(tokens: list[int], limit: int) -> None:
    lookup = Lookup([])
    for token in tokens:  # grown one by one, as an answer grows
        lookup.tokens.append(token)
        proposal = lookup.propose(limit)
    proposal = lookup.propose(limit)
    assert proposal == Lookup(list(tokens)).propose(limit)
    assert len(proposal) in (0, limit)
    if proposal:
        seen = [tuple(tokens[i : i + 3]) for i in range(len(tokens) - 2)]
        assert (tokens[-2], tokens[-1], proposal[0]) in seen


# Worth


def test_drafts_that_cost_nothing_are_all_taken() -> None:
    assert make_drafter(n1=10.0, n16=10.0).worth(0, 8, base_tokens=1, yield_tokens=1.0) == 8


def test_drafts_that_cost_a_whole_step_each_are_not_taken() -> None:
    assert make_drafter(n1=10.0, n16=160.0).worth(0, 8, base_tokens=1, yield_tokens=1.0) == 0


def test_fewer_drafts_are_taken_in_company_whose_tokens_they_delay() -> None:
    drafter = make_drafter(n1=10.0, n32=20.0)
    alone = drafter.worth(0, 8, base_tokens=1, yield_tokens=1.0)
    crowded = drafter.worth(0, 8, base_tokens=16, yield_tokens=16.0)
    assert alone > crowded


def test_nothing_is_drafted_before_any_step_was_timed() -> None:
    assert make_drafter().worth(0, 8, base_tokens=1, yield_tokens=1.0) == 0


def test_acceptance_falls_when_proposals_fail_and_recovers_when_they_hold() -> None:
    drafter = make_drafter(n1=10.0, n16=30.0)
    hopeful = drafter.chance(0)
    assert drafter.worth(0, 4, base_tokens=1, yield_tokens=1.0) > 0
    for _ in range(100):
        drafter.observe_draft(0, proposed=4, accepted=0)
    assert drafter.chance(0) < 0.2 < hopeful
    assert drafter.chance(1) == hopeful, "the second token was never verified"
    assert drafter.worth(0, 4, base_tokens=1, yield_tokens=1.0) == 0
    for _ in range(100):
        drafter.observe_draft(0, proposed=4, accepted=4)
    assert drafter.chance(0) > 0.8


def test_acceptance_is_learned_by_how_long_the_repeat_has_held() -> None:
    drafter = make_drafter()
    for _ in range(50):
        drafter.observe_draft(0, proposed=3, accepted=1)
    assert drafter.chance(0) > 0.9
    assert drafter.chance(1) < 0.2
    assert drafter.chance(BUCKETS + 100) == drafter.chance(BUCKETS - 1)


def test_step_time_is_interpolated_between_what_was_seen() -> None:
    drafter = make_drafter(n2=10.0, n4=20.0)
    assert [drafter.step_ms(n) for n in (2, 3, 4)] == [10.0, 15.0, 20.0]
    assert drafter.step_ms(8) == 40.0
    assert drafter.step_ms(1) == 5.0


def test_step_time_follows_slowly() -> None:
    drafter = make_drafter(n1=8.0)
    drafter.observe_step(1, 16.0)
    assert drafter.step_ms(1) == 9.0


@given(
    st.integers(0, 12),
    st.integers(0, 8),
    st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1e4)), max_size=6),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 8), st.integers(0, 8)), max_size=20),
)
def test_decision_stays_within_bounds(
    run: int, proposed: int, steps: list[tuple[int, float]], drafts: list[tuple[int, int, int]]
) -> None:
    drafter = Drafter(8)
    for n_tokens, ms in steps:
        drafter.observe_step(n_tokens, ms)
    for before, asked, held in drafts:
        drafter.observe_draft(before, asked, min(asked, held))
    assert 0.0 <= drafter.chance(run) <= 1.0
    assert 0 <= drafter.worth(run, proposed, 4, 4.0) <= proposed
