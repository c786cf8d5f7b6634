"""Quotas against a naive count of every event."""

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts.fitting import Exhausted, TooLargeForMinute
from appliance.accounts.limits import Limits
from appliance.accounts.quotas import DAY_S, Visit
from appliance.accounts.tally import Used
from appliance.accounts.window import Window
from appliance.errors import Overloaded
from tests.unit.quotas_parts import NOON, Asking


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 9)), max_size=60), st.integers(1, 60))
def test_window_is_what_was_added_within_the_last_minute(
    steps: list[tuple[float, int]], wanted: int
) -> None:
    window, now, added = Window(), 500.0, []
    for pause, amount in steps:
        now += pause
        window.add(amount, now)
        added.append((int(now / 0.1), amount))
        used = sum(size for tick, size in added if tick > int(now / 0.1) - 600)
        assert window.used(now) == used
        if wanted <= used:
            wait = window.wait(wanted, now)
            assert 0 <= wait <= 60.1
            later = now + wait + 0.001
            left = sum(size for tick, size in added if tick > int(later / 0.1) - 600)
            assert used - left >= wanted
    assert window.used(now + window.empty_in(now) + 0.001) == 0


@dataclass
class Naive:
    """Keeps every event and counts them all each time."""

    requests: list[tuple[int, str]] = field(default_factory=list)
    tokens: list[tuple[int, int, str, int]] = field(default_factory=list)
    """(tick, day, key, amount)"""
    running: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    costs: list[tuple[str, int]] = field(default_factory=list)

    def used(self, keys: set[str], tick: int, day: int) -> Used:
        return Used(
            sum(1 for at, key in self.requests if key in keys and at > tick - 600),
            sum(n for at, _, key, n in self.tokens if key in keys and at > tick - 600),
            sum(n for _, of, key, n in self.tokens if key in keys and of == day),
            sum(cost for key, cost in self.costs if key in keys),
            sum(self.running[key] for key in keys),
        )

    def fits(self, keys: set[str], limits: Limits, prompt: int, tick: int, day: int) -> bool:
        used, need = self.used(keys, tick, day), max(1, prompt)
        return not (
            (limits.tokens_per_min and used.tokens_per_min + need > limits.tokens_per_min)
            or (limits.tokens_per_day and used.tokens_per_day + need > limits.tokens_per_day)
            or (limits.cost_per_month and used.cost_per_month >= limits.cost_per_month)
            or (limits.concurrent and used.concurrent >= limits.concurrent)
        )


KEYS = ("k_1", "k_2")
some_limits = st.builds(
    Limits,
    requests_per_min=st.none() | st.integers(1, 6),
    tokens_per_min=st.none() | st.integers(1, 80),
    tokens_per_day=st.none() | st.integers(1, 300),
    cost_per_month=st.none() | st.integers(1, 50),
    concurrent=st.none() | st.integers(1, 3),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(KEYS), st.integers(0, 40)),
        st.tuples(st.just("charge"), st.integers(0, 5), st.integers(0, 30)),
        st.tuples(st.just("release"), st.integers(0, 5), st.integers(0, 9)),
        st.tuples(st.just("abandon"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("go"), st.just(0), st.integers(0, 40)),
        st.tuples(st.just("night"), st.just(0), st.just(0)),
        st.tuples(st.just("limits"), some_limits, some_limits),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=300)
@given(first=some_limits, tenant=some_limits, steps=steps)
def test_quotas_do_what_a_naive_count_of_every_event_does(
    first: Limits, tenant: Limits, steps: list[tuple[Any, ...]]
) -> None:
    asking, naive = Asking(first, tenant), Naive()
    clock, ids = asking.clock, itertools.count()
    running: dict[int, tuple[Visit, str, bool]] = {}
    carried: dict[int, list[tuple[int, int, str, int]]] = {}

    def at() -> tuple[int, int]:
        return int(clock.now / 0.1), int(clock.wall // DAY_S)

    def count(number: int, key: str, amount: int) -> None:
        """The request's tokens move to the day of the newest of them."""
        tick, day = at()
        older = carried.pop(number, [])
        for entry in older:
            naive.tokens.remove(entry)
        new = [(entry[0], day, key, entry[3]) for entry in older] + [(tick, day, key, amount)]
        naive.tokens += new
        carried[number] = new

    for kind, which, amount in steps:
        tick, day = at()
        if kind == "go":
            clock.go(amount)
        elif kind == "night":
            clock.go(DAY_S)
        elif kind == "limits":
            asking.limits, asking.tenant = which, amount
        elif kind == "ask":
            held = (({which}, asking.limits), (set(KEYS), asking.tenant))
            too_many = any(
                limits.requests_per_min is not None
                and naive.used(keys, tick, day).requests_per_min >= limits.requests_per_min
                for keys, limits in held
            )
            fits = all(naive.fits(keys, limits, amount, tick, day) for keys, limits in held)
            try:
                visit = asking.admit(amount, key_id=which)
            except (Overloaded, Exhausted, TooLargeForMinute):
                assert too_many or not fits
                continue
            assert fits
            assert not too_many
            number = next(ids)
            naive.requests.append((tick, which))
            naive.running[which] += 1
            count(number, which, amount)
            running[number] = (visit, which, False)
        elif running:
            number = list(running)[which % len(running)]
            visit, key, charged = running[number]
            if kind == "charge":
                asking.charge(visit, amount)
                count(number, key, amount)
                running[number] = (visit, key, True)
                continue
            if kind == "abandon" and charged:
                continue
            del running[number]
            naive.running[key] -= 1
            if kind == "release":
                asking.charge(visit, 0, amount)
                asking.quotas.release(visit)
                count(number, key, 0)
                naive.costs.append((key, amount))
            else:
                asking.abandon(visit)
                for entry in carried.pop(number):
                    naive.tokens.remove(entry)
        tick, day = at()
        if day - int(NOON // DAY_S) > 13:
            return  # Another month, which the naive count does not know.
        for name in KEYS:
            assert asking.used(name) == naive.used({name}, tick, day)
        found = asking.quotas.tenant_used("sales", clock.now, clock.wall)
        assert found == naive.used(set(KEYS), tick, day)
