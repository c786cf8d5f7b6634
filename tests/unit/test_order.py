"""In which order those that wait are tried."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.commands import Expect, Steer
from appliance.engine.expectations import Expectations
from appliance.engine.fair import BAND
from appliance.engine.order import ARRANGE_S, Order, ageing
from appliance.engine.sequence import Sequence, State
from tests.unit.engine_parts import make_submit


class Queue:
    """An order and those that wait for it, named by what they were submitted as."""

    def __init__(self, **steer: Any) -> None:
        expectations = Expectations()
        steered = Steer(**{"policy": "expected-cost", "forecast": True, **steer})
        expectations.steer(steered)
        self.order = Order(expectations)
        self.order.steer(steered, [])
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.now = 0.0

    def add(self, name: str, length: int = 50, **fields: Any) -> Sequence:
        request = make_submit(name, (1,) * 10, 1000, **fields)
        sequence = Sequence(request, 0, len(self.waiting), list(request.prompt))
        sequence.times.arrived = self.now
        sequence.told = certain(length)
        self.order.arrives(sequence)
        self.order.place(sequence, self.now)
        self.waiting.append(sequence)
        return sequence

    def names(self, seconds: float = 1.0) -> str:
        self.now += seconds
        self.order.arrange(self.waiting, self.running, self.now)
        return " ".join(sequence.request.id for sequence in self.waiting)


def certain(length: int) -> Expect:
    return Expect("", (length - 1, length), (1.0, 0.0))


def test_cheapest_goes_first() -> None:
    queue = Queue()
    for name, length in (("long", 300), ("short", 10), ("middle", 80)):
        queue.add(name, length)
    assert queue.names() == "short middle long"


@pytest.mark.parametrize("steer", [{"policy": "fcfs"}, {"forecast": False}])
def test_order_of_arrival_where_asked_for_or_nothing_can_be_forecast(steer: dict[str, Any]) -> None:
    queue = Queue(**steer)
    for name, length in (("long", 300), ("short", 10), ("middle", 80)):
        queue.add(name, length)
    assert queue.names() == "long short middle"


def test_long_one_that_has_waited_goes_before_a_short_one_that_comes() -> None:
    queue = Queue(ageing=0.5)
    queue.add("long", 300)
    queue.order.turns = 400
    queue.add("early", 50)
    queue.order.turns = 900
    queue.add("late", 50)
    assert queue.names() == "early long late"


@pytest.mark.parametrize(("others", "expected"), [(0, "long late"), (60, "late long")])
def test_in_a_long_queue_a_step_waited_counts_for_less(others: int, expected: str) -> None:
    queue = Queue(ageing=0.5)
    queue.running.append(queue.add("running"))
    queue.waiting.clear()
    queue.add("long", 300)
    for number in range(others):
        queue.add(f"{number}", 900)
    queue.order.turns = 900
    queue.add("late", 50)
    assert queue.names().startswith(expected)


def test_queue_of_pool_b_does_not_change_what_those_of_a_are_forgiven() -> None:
    queue = Queue(ageing=0.5)
    queue.add("long", 300)
    for number in range(60):
        queue.add(f"{number}", 900, pool="b")
    queue.order.turns = 900
    queue.add("late", 50)
    assert queue.names().startswith("long late")


@given(
    most=st.floats(0.001, 100),
    queued=st.integers(0, 5000),
    served=st.integers(0, 64),
    cost=st.floats(1, 8192),
)
def test_nobody_is_overtaken_for_longer_than_such_a_queue_takes(
    most: float, queued: int, served: int, cost: float
) -> None:
    """If each of it cost as much as the dearest."""
    steps = max(cost * max(queued, 1) / max(served, 1), cost / most)
    assert ageing(most, queued, served) * steps >= cost * (1 - 1e-9)
    assert ageing(most, queued, served) * queued <= max(served, 1) * (1 + 1e-9)


def test_prompt_is_part_of_the_cost() -> None:
    queue = Queue()
    dear = queue.add("dear", 50)
    dear.tokens += [1] * 500
    queue.order.place(dear, 0.0)
    queue.add("cheap", 60)
    assert queue.names() == "cheap dear"


def test_new_forecast_changes_the_place() -> None:
    queue = Queue()
    first = queue.add("a", 20)
    queue.add("b", 40)
    assert queue.names() == "a b"
    first.told = certain(90)
    queue.order.place(first, queue.now)
    assert queue.names() == "b a"


def test_pool_then_priority_go_before_cost() -> None:
    queue = Queue()
    queue.add("batch", 1 + 1, pool="b", priority=-1)
    queue.add("late", 2, priority=1)
    queue.add("urgent", 500, priority=-1)
    queue.add("usual", 300)
    assert queue.names() == "urgent usual late batch"


def test_key_that_was_served_more_goes_after_the_other() -> None:
    queue = Queue()
    queue.add("flood", 2, scope="busy")
    queue.add("other", 300, scope="quiet")
    assert queue.names() == "flood other"
    running = queue.add("running", int(2 * BAND), scope="busy")
    queue.waiting.remove(running)
    queue.order.starts(running)
    assert queue.names() == "other flood"


def test_fairness_can_be_turned_off() -> None:
    queue = Queue(fairness=False)
    queue.order.starts(queue.add("busy", 5 * int(BAND), scope="busy"))
    queue.waiting.clear()
    queue.add("flood", 2, scope="busy")
    queue.add("other", 300, scope="quiet")
    assert queue.names() == "flood other"


def test_whoever_waits_too_long_goes_first_and_counts_as_interactive() -> None:
    queue = Queue(max_wait_s=30.0)
    old = queue.add("old", 900, pool="b", priority=1)
    queue.now = 20.0
    queue.add("new", 5)
    assert queue.names(5.0) == "new old"
    assert queue.names(10.0) == "old new"
    assert not old.batch
    assert old.pool == "b"


def test_pool_that_is_served_needs_no_promotion() -> None:
    queue = Queue(max_wait_s=30.0)
    queue.running.append(queue.add("served", pool="b"))
    queue.waiting.clear()
    queue.add("old", pool="b")
    queue.now = 100.0
    queue.add("new")
    assert queue.names() == "new old"
    queue.running.clear()
    assert queue.names() == "old new"


def test_only_one_at_a_time_is_promoted() -> None:
    queue = Queue(max_wait_s=30.0)
    first = queue.add("first", 900, priority=1)
    queue.add("second", 800, priority=1)
    queue.now = 100.0
    queue.add("new", 5)
    assert queue.names() == "first new second"
    first.state = State.FINISHED
    queue.waiting.remove(first)
    assert queue.names() == "second new"


def test_next_of_pool_b_is_promoted_only_when_the_last_is_as_long_ago() -> None:
    queue = Queue(max_wait_s=30.0)
    first = queue.add("first", pool="b")
    queue.add("second", pool="b")
    queue.now = 100.0
    queue.add("new")
    assert queue.names() == "first new second"
    first.state = State.FINISHED
    queue.waiting.remove(first)
    assert queue.names(10.0) == "new second"
    assert queue.names(30.0) == "second new"


def test_late_ones_of_a_kind_go_in_order_of_arrival() -> None:
    queue = Queue(max_wait_s=30.0)
    for name, length in (("a", 900), ("b", 700), ("c", 500)):
        queue.add(name, length)
    queue.now = 100.0
    queue.add("new", 5)
    assert queue.names() == "a b c new"


def test_placebo_is_an_order_that_costs_do_not_explain_but_the_same_every_time() -> None:
    orders = set()
    for _ in range(2):
        queue = Queue(policy="shuffled")
        for number in range(30):
            queue.add(f"{number}", 10 * (number % 7) + 2)
        orders.add(queue.names())
    assert len(orders) == 1
    sorted_by_cost = Queue()
    for number in range(30):
        sorted_by_cost.add(f"{number}", 10 * (number % 7) + 2)
    assert orders != {sorted_by_cost.names()}


def test_queue_is_not_sorted_again_at_once() -> None:
    queue = Queue()
    queue.add("a", 100)
    queue.names()
    queue.add("b", 10)
    assert queue.names(ARRANGE_S / 10) == "a b"
    assert queue.names(ARRANGE_S) == "b a"


def test_moved_request_has_its_new_place() -> None:
    queue = Queue()
    queue.add("a", 100)
    moved = queue.add("b", 10)
    queue.order.moves(moved, 0, "b")
    assert queue.names() == "a b"
    queue.order.moves(moved, -1, "a")
    assert queue.names() == "b a"


def test_nobody_is_late_where_waiting_has_no_limit() -> None:
    queue = Queue(max_wait_s=inf)
    queue.add("long", 500)
    queue.now = 1e9
    queue.add("short", 5)
    assert queue.names() == "short long"


def test_key_is_charged_for_a_request_that_is_moved_while_it_runs() -> None:
    queue = Queue()
    queue.add("flood", 2, scope="busy")
    queue.add("other", 300, scope="quiet")
    running = queue.add("running", 4 * int(BAND), scope="busy", pool="b")
    queue.waiting.remove(running)
    queue.order.starts(running)
    assert queue.names() == "flood other"
    queue.order.moves(running, 0, "a")
    assert queue.names() == "other flood"
    queue.order.leaves(running)  # after no token at all: what was charged too much is given back
    assert queue.names() == "flood other"
