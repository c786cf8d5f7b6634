"""The control benchmark: its loads repeat, its box loses nothing, its placebo tells nothing."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import pytest

from bench.control_box import Arrival, Box, Ran, Size
from bench.control_cells import Cell, Setting, interval
from bench.control_curve import SHALLOW, Curve, StepCost, stored
from bench.control_figures import figures
from bench.control_load import BURST, arrivals, bursts, poisson, trace
from bench.control_policies import FCFS, OURS, POLICIES, RULES, Policy
from bench.control_report import lines
from bench.control_requests import Asked, Stock, Table, shuffled
from bench.control_simulate import BOXES, Simulator, settings

GRID = (8, 16, 32, 64, 128)
SMALL = Size(cells=400, sequences=4)
CURVE = Curve(
    decode=((1, 2.0), (2, 3.0), (8, 9.0)),
    prompt=((16, 4.0), (64, 10.0)),
    decode_cell=0.0,
    prompt_cell=0.0,
    state_cell=0.0,
)


def asked(length: int, prompt: int = 8) -> Asked:
    """Forecast about right."""
    return Asked(prompt, length, Table(GRID, tuple(0.5 ** (n / length) for n in GRID)), 128)


def make_stock(seed: int = 0) -> Stock:
    pick = random.Random(seed)
    made = tuple(asked(pick.choice((4, 12, 60, 120)), pick.randint(4, 20)) for _ in range(40))
    return Stock(made, Table(GRID, (0.8, 0.7, 0.5, 0.4, 0.0)), "made up")


def serve(load: Sequence[Arrival], policy: Policy = OURS, size: Size = SMALL) -> Ran:
    return Box(size, StepCost(CURVE), policy, make_stock().everywhere).run(load)


def load_of(count: int, rate: float, seed: int) -> list[Arrival]:
    drawn = make_stock().draw(count, seed)
    return [Arrival(at, one) for at, one in zip(poisson(count, rate, seed), drawn, strict=True)]


def times_of(ran: Ran) -> list[tuple[float, float]]:
    return [(one.first, one.ended) for one in ran.served]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_same_seed_gives_the_same_times_under_every_policy(policy: Policy) -> None:
    once, again = (serve(load_of(30, 20.0, 1), policy) for _ in range(2))
    assert times_of(once) == times_of(again)
    assert times_of(once) != times_of(serve(load_of(30, 20.0, 2), policy))


@pytest.mark.parametrize("policy", [*POLICIES, *RULES], ids=lambda policy: policy.name)
def test_every_answer_ends_whole_and_no_token_is_lost_or_made_up(policy: Policy) -> None:
    ran = serve([Arrival(0.0, one) for one in make_stock().draw(40, 3)], policy, Size(200, 8))
    assert all(0 < one.first <= one.ended for one in ran.served)
    assert ran.all.tokens == sum(one.arrival.asked.length for one in ran.served)
    assert all(one.wasted >= 0 or one.evicted for one in ran.served)


def test_a_box_that_never_evicts_computes_each_token_once() -> None:
    ran = serve(load_of(30, 5.0, 1), FCFS, Size(4000, 4))
    assert all(one.computed == one.needed for one in ran.served)
    assert ran.all.evictions == 0


def test_littles_law_holds() -> None:
    """Requests in the box, on average over time, are their rate times how long they stay."""
    ran = serve(load_of(200, 12.0, 5), FCFS)
    ends = max(one.ended for one in ran.served)
    moments = sorted(
        [(one.arrival.at, 1) for one in ran.served] + [(one.ended, -1) for one in ran.served]
    )
    area = present = 0.0
    before = 0.0
    for at, change in moments:
        area += present * (at - before)
        present, before = present + change, at
    stay = fmean(one.e2e for one in ran.served)
    assert area / ends == pytest.approx(len(ran.served) / ends * stay)


def test_a_lone_request_takes_what_its_steps_cost() -> None:
    (one,) = serve([Arrival(1.0, asked(5, prompt=16))]).served
    assert one.ttft == pytest.approx(0.004)
    assert one.e2e == pytest.approx(0.004 + 4 * 0.002)


def test_the_cost_of_a_step_is_linear_between_what_was_measured() -> None:
    cost = StepCost(CURVE)
    assert cost.of(5, 5 * SHALLOW, 0, 0) == pytest.approx(0.006)
    assert cost.of(0, 0, 40, 0) == pytest.approx(0.007)
    assert cost.of(1, SHALLOW, 16, 0) == pytest.approx(0.002 + 0.002)
    assert cost.of(16, 0, 0, 0) == pytest.approx(0.017)


def test_the_curve_that_is_checked_in_rises() -> None:
    cost = StepCost(stored())
    decode = [cost.of(count, 0, 0, 0) for count in range(1, 40)]
    prompt = [cost.of(0, 0, count, 0) for count in range(1, 600)]
    assert decode == sorted(decode)
    assert prompt == sorted(prompt)
    assert cost.of(4, 4000, 100, 5000) > cost.of(4, 400, 100, 0)


def test_the_placebo_gives_each_request_anothers_forecast_and_nothing_else() -> None:
    before = make_stock().draw(40, 1)
    after = shuffled(before, 1)
    assert [one.length for one in after] == [one.length for one in before]
    assert Counter(one.table for one in after) == Counter(one.table for one in before)
    assert [one.table for one in after] != [one.table for one in before]
    assert after == shuffled(before, 1)


def test_an_oracle_is_told_the_length() -> None:
    table = asked(60).foreseen().table
    assert table == Table((59, 60), (1.0, 0.0))


def test_arrivals_come_at_the_rate_that_is_asked_for() -> None:
    for times in (poisson(4000, 5.0, 1), bursts(4800, 5.0, 1)):
        assert times == sorted(times)
        assert len(times) / times[-1] == pytest.approx(5.0, rel=0.15)
    assert Counter(bursts(480, 5.0, 1)).most_common(1)[0][1] == BURST


def test_a_trace_keeps_its_shape_when_it_is_stretched() -> None:
    recorded = [float(n * n) for n in range(100)]
    found = trace(recorded, 20, 2.0, 1)
    assert found[0] == 0.0
    assert found[-1] == pytest.approx(19 / 2.0)
    gaps = [b - a for a, b in pairwise(found)]
    assert gaps == sorted(gaps)


def test_traces_without_their_files_are_not_made_up() -> None:
    with pytest.raises(AssertionError):
        arrivals("azure-conv", 10, 1.0, 1, None)
    assert not any("azure" in one.arrivals for one in settings(["order"], (0.9,), ()))


def test_a_mix_holds_what_it_says() -> None:
    stock = make_stock()
    whole = Stock((*stock.asked, Asked(8, 512, None)), stock.everywhere, "")
    assert all(one.length == 512 for one in whole.mix("long").asked)
    assert all(one.length < 512 for one in whole.mix("ended").asked)
    assert {one.length for one in whole.mix("equal").asked} == {256}


def test_the_interval_of_equal_policies_is_one() -> None:
    values = [float(1 + n % 7) for n in range(400)]
    assert interval([(values, values)]) == (1.0, 1.0)
    low, high = interval([([2 * one for one in values], values)])
    assert low == high == pytest.approx(2.0)


def simulator() -> Simulator:
    return Simulator(StepCost(stored()), make_stock(), None, 60, (1, 2))


@pytest.mark.parametrize("part", ["order", "pools", "admission", "odd"])
def test_each_part_reports_every_policy_and_its_goals(part: str) -> None:
    setting = next(one for one in settings([part], (0.9,), ()) if one.mix in ("all", "ended"))
    cell = simulator().cell(setting)
    text = "\n".join(lines(cell))
    assert str(setting) in text
    assert all(name in text for name in cell.found)
    assert bool(cell.goals()) is (part != "odd")
    document = cell.document()
    assert set(document["ratios"]) == set(cell.found)


def test_a_goal_is_missed_when_the_tail_pays_for_the_mean() -> None:
    base = {"e2e_mean": 1.0, "e2e_p99": 2.0}
    ours = {"e2e_mean": 0.8, "e2e_p99": 3.0}
    cell = Cell(
        Setting("order", "default", "all", "poisson", 0.9), {"fcfs": (base,), "ours": (ours,)}
    )
    assert cell.goals() == {"e2e_mean": True, "e2e_p99": False}


def test_edges_of_a_load_are_not_counted() -> None:
    ran = serve(load_of(40, 10.0, 1))
    ran.served[0].ended += 1e6
    assert figures(ran, StepCost(CURVE))["e2e_mean"] < 1e3


def test_no_request_waits_for_ever_in_a_tiny_box() -> None:
    size = BOXES["tiny"]
    load = [Arrival(0.0, asked(60, prompt=600), key=str(n % 3)) for n in range(12)]
    assert all(one.ended for one in serve(load, OURS, size).served)
