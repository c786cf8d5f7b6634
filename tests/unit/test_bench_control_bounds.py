"""The bench of other rules of order: a box of places serves all, in the order that a rule says."""

from statistics import fmean

import pytest

from bench.control_bounds import RULES, Job, Places, Rule
from bench.control_curve import StepCost
from bench.control_known import GRAIN, LEVEL, Known, exact, had
from tests.unit.test_bench_control import CURVE

KNOWN = ("first", "second", "refined", "exact")


def asked(length: int, prompt: int = 8) -> Known:
    """Its length is known, or nothing is."""
    levels = tuple(had(at * GRAIN) for at in range(64))
    return Known(prompt, length, {**dict.fromkeys(KNOWN, exact(length)), "had": levels})


def serve(lengths: list[int], rule: Rule, places: int = 1, apart_s: float = 0.001) -> list[Job]:
    load = [Job(apart_s * number, asked(length)) for number, length in enumerate(lengths)]
    Places(places, StepCost(CURVE), rule).run(load)
    return load


def order(load: list[Job]) -> list[int]:
    return [job.asked.length for job in sorted(load, key=lambda job: job.ended)]


def test_each_level_is_twice_as_long_as_the_one_before() -> None:
    tokens = (0, LEVEL - 1, LEVEL, 3 * LEVEL - 1, 3 * LEVEL, 7 * LEVEL)
    assert [had(one) / LEVEL for one in tokens] == [0, 0, 1, 1, 3, 7]


def test_known_length_leaves_what_is_not_generated_yet_and_one_token_at_least() -> None:
    assert exact(20)[:5] == (20, 12, 4, 1, 1)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_all_are_served_under_every_rule(rule: Rule) -> None:
    lengths = [5, 300, 40, 7, 510, 90, 1, 200] * 3
    load = serve(lengths, rule, places=3)
    assert all(job.generated == job.asked.length for job in load)
    assert all(job.at < job.first <= job.ended for job in load)
    assert all(job.gave <= rule.gives for job in load)


def test_arrival_is_the_order_of_arrival() -> None:
    assert order(serve([30, 200, 10], Rule("", None))) == [30, 200, 10]


def test_cheapest_of_those_that_wait_is_next() -> None:
    assert order(serve([30, 200, 10], Rule("", "first"))) == [30, 10, 200]


def test_one_that_runs_gives_its_place_to_a_cheaper_one_as_often_as_it_may() -> None:
    lengths = [400, 10, 20]
    assert order(serve(lengths, Rule("", "exact", gives=9, margin=0.0))) == [10, 20, 400]
    late = [Job(0.0, asked(400)), Job(0.1, asked(10)), Job(0.3, asked(20))]
    Places(1, StepCost(CURVE), Rule("", "exact", gives=1, margin=0.0)).run(late)
    assert order(late) == [10, 400, 20]


def test_place_is_not_given_for_a_gain_below_the_margin() -> None:
    assert order(serve([60, 10], Rule("", "exact", gives=1, margin=100.0))) == [60, 10]


def test_feedback_lets_a_new_one_go_before_one_that_had_much() -> None:
    early, late = Job(0.0, asked(500)), Job(0.6, asked(100))
    Places(1, StepCost(CURVE), Rule("", "had", gives=9, margin=0.0)).run([early, late])
    assert late.ended < early.ended


def test_knowing_lengths_helps_where_some_wait() -> None:
    lengths = [300, 10, 10, 10, 300, 10]
    by_cost, by_arrival = (serve(lengths, rule, apart_s=0.0) for rule in (RULES[1], RULES[0]))
    assert fmean(job.ended for job in by_cost) < 0.6 * fmean(job.ended for job in by_arrival)
