"""Limits: what is let in, what is refused and how, and that nothing is counted wrongly."""

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts.fitting import Exhausted, TooLargeForMinute, duration, rate_headers
from appliance.accounts.limits import (
    NANO,
    NONE,
    Limits,
    LimitsRefused,
    limits_from,
    limits_from_text,
    money,
    shown,
)
from appliance.accounts.quotas import DAY_S, MONTH_S, Past, Quotas, Visit
from appliance.accounts.tally import Holder, Used
from appliance.accounts.window import Window
from appliance.errors import ApiError, Forbidden, Overloaded

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC).timestamp()
MIDNIGHT = datetime(2030, 5, 18, tzinfo=UTC).timestamp()


class Clock:
    """Both clocks, which go on together unless a test sets one of them."""

    def __init__(self, wall: float = NOON) -> None:
        self.now = 1000.0
        self.wall = wall

    def go(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


class Asking:
    """One key of one tenant, against quotas of its own."""

    def __init__(self, limits: Limits = NONE, tenant: Limits = NONE) -> None:
        self.quotas = Quotas()
        self.clock = Clock()
        self.limits, self.tenant = limits, tenant

    def holder(self, key_id: str = "k_1") -> Holder:
        return Holder(key_id, f"name of {key_id}", "sales", self.limits, self.tenant)

    def knock(self, key_id: str = "k_1") -> Visit:
        visit = self.quotas.visit(self.holder(key_id))
        self.quotas.knock(visit, self.clock.now)
        return visit

    def admit(self, prompt: int, tier: str | None = None, key_id: str = "k_1") -> Visit:
        visit = self.knock(key_id)
        self.quotas.admit(visit, prompt, tier, self.clock.now, self.clock.wall)
        return visit

    def charge(self, visit: Visit, tokens: int, cost: int = 0) -> None:
        self.quotas.charge(visit, tokens, cost, self.clock.now, self.clock.wall)

    def abandon(self, visit: Visit) -> None:
        """Its prompt never reached the engine."""
        self.quotas.give_back(visit, visit.tokens)
        self.quotas.release(visit)

    def whole(self, prompt: int, answer: int, cost: int = 0) -> None:
        """A request that is answered at once."""
        visit = self.admit(prompt)
        self.charge(visit, answer, cost)
        self.quotas.release(visit)

    def used(self, key_id: str = "k_1") -> Used:
        return self.quotas.key_used(key_id, self.clock.now, self.clock.wall)

    def refused(self, prompt: int = 1, tier: str | None = None) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.admit(prompt, tier)
        return caught.value


# -- by the minute ---------------------------------------------------------------------------------


def test_requests_beyond_the_limit_wait_until_the_oldest_is_a_minute_old() -> None:
    asking = Asking(Limits(requests_per_min=2))
    asking.knock()
    asking.clock.go(20)
    asking.knock()
    fault = asking.refused()
    assert (fault.status, fault.code) == (429, "rate_limit_exceeded")
    assert fault.type == "rate_limit_error"
    assert fault.headers == {"Retry-After": "40"}
    assert "name of k_1" in fault.message
    asking.clock.go(39.8)
    asking.refused()
    asking.clock.go(0.3)
    asking.knock()


def test_request_that_fails_counts_and_one_that_a_quota_refuses_does_not() -> None:
    asking = Asking(Limits(requests_per_min=2, tokens_per_min=10))
    asking.knock()
    assert asking.used().requests_per_min == 1
    asking.whole(4, 5)
    assert asking.used().requests_per_min == 2
    asking.clock.go(61)
    asking.whole(9, 1)
    for _ in range(5):
        asking.refused(3)
    assert asking.used().requests_per_min == 1
    asking.knock()
    assert asking.refused().headers["Retry-After"]
    assert asking.used().requests_per_min == 2


def test_prompt_is_let_in_while_it_fits_and_an_answer_may_go_over() -> None:
    asking = Asking(Limits(tokens_per_min=100))
    visit = asking.admit(60)
    asking.charge(visit, 70)
    assert asking.used().tokens_per_min == 130
    fault = asking.refused(1)
    assert "has used 130" in fault.message
    asking.clock.go(60)
    asking.admit(100)


def test_last_tokens_that_fit_are_let_in() -> None:
    asking = Asking(Limits(tokens_per_min=100))
    asking.whole(50, 20)
    asking.refused(31)
    asking.admit(30)
    asking.refused(1)


def test_waiting_as_long_as_retry_after_says_is_enough() -> None:
    asking = Asking(Limits(tokens_per_min=100))
    for _ in range(4):
        asking.whole(20, 5)
        asking.clock.go(7.3)
    asking.clock.go(int(asking.refused(40).headers["Retry-After"]))
    asking.admit(40)


def test_prompt_larger_than_a_whole_minute_is_not_to_be_tried_again() -> None:
    fault = Asking(Limits(tokens_per_min=100)).refused(101)
    assert isinstance(fault, TooLargeForMinute)
    assert (fault.status, fault.code) == (429, "rate_limit_exceeded")
    assert fault.headers == {"x-should-retry": "false"}


def test_running_requests_hold_their_places_until_they_end() -> None:
    asking = Asking(Limits(concurrent=2))
    first = asking.admit(5)
    asking.admit(5)
    fault = asking.refused()
    assert (fault.code, fault.headers) == ("rate_limit_exceeded", {"Retry-After": "1"})
    asking.quotas.release(first)
    asking.quotas.release(first)
    assert asking.used().concurrent == 1
    asking.admit(5)
    asking.refused()


def test_request_that_never_reached_the_engine_leaves_only_its_count() -> None:
    asking = Asking(Limits(requests_per_min=9, tokens_per_min=100, tokens_per_day=200))
    visit = asking.admit(80)
    asking.abandon(visit)
    assert asking.used() == Used(requests_per_min=1)
    asking.clock.go(61)
    old = asking.admit(80)
    asking.clock.go(61)
    asking.abandon(old)
    assert asking.used() == Used()


def test_the_tenant_is_counted_over_all_its_keys() -> None:
    asking = Asking(tenant=Limits(tokens_per_min=100))
    asking.admit(60, key_id="k_1")
    asking.admit(30, key_id="k_2")
    fault = asking.refused(11)
    assert "the tenant 'sales'" in fault.message
    used = asking.quotas.tenant_used("sales", asking.clock.now, asking.clock.wall)
    assert (used.tokens_per_min, used.concurrent) == (90, 2)
    assert asking.used("k_2").tokens_per_min == 30


def test_of_several_limits_the_one_that_holds_longest_is_told() -> None:
    asking = Asking(Limits(concurrent=1), Limits(tokens_per_min=10))
    asking.admit(10)
    assert asking.refused(5).headers["Retry-After"] == "60"


# -- by the day and the month ----------------------------------------------------------------------


def test_day_that_is_used_up_says_when_it_ends_and_is_not_to_be_tried_again() -> None:
    asking = Asking(Limits(tokens_per_day=100))
    asking.whole(50, 60)
    fault = asking.refused()
    assert isinstance(fault, Exhausted)
    assert (fault.status, fault.type, fault.code) == (
        429, "insufficient_quota", "insufficient_quota",
    )  # fmt: skip
    assert fault.headers == {"x-should-retry": "false"}
    assert "110 of 100 tokens today" in fault.message
    assert "2030-05-18 00:00 UTC" in fault.message
    asking.clock.go(DAY_S)
    asking.admit(100)


def test_month_that_is_used_up_says_how_much_in_the_box_s_money() -> None:
    asking = Asking(Limits(cost_per_month=2 * NANO))
    asking.whole(1, 1, cost=NANO + NANO // 2)
    asking.whole(1, 1, cost=NANO)
    fault = asking.refused()
    assert isinstance(fault, Exhausted)
    assert "2.50 of 2.00" in fault.message
    assert "2030-06-01 00:00 UTC" in fault.message
    asking.clock.go(14 * DAY_S)
    asking.refused()
    asking.clock.go(DAY_S)
    asking.admit(1)


def test_request_over_midnight_counts_wholly_on_the_day_it_ends() -> None:
    asking = Asking(Limits(tokens_per_day=1000))
    visit = asking.admit(100)
    asking.charge(visit, 10)
    asking.clock.go(DAY_S)
    assert asking.used().tokens_per_day == 0
    asking.charge(visit, 5)
    asking.quotas.release(visit)
    assert asking.used().tokens_per_day == 115


def test_prompt_that_was_given_back_does_not_come_back_at_midnight() -> None:
    asking = Asking(Limits(tokens_per_day=1000))
    visit = asking.admit(100)
    asking.quotas.give_back(visit, 60)
    assert asking.used().tokens_per_day == 40
    asking.clock.go(DAY_S)
    asking.charge(visit, 5)
    assert asking.used().tokens_per_day == 45


def test_clock_set_back_opens_no_new_day_and_forward_again_no_second_one() -> None:
    asking = Asking(Limits(tokens_per_day=100))
    asking.clock.wall = MIDNIGHT + 600
    asking.whole(50, 50)
    asking.clock.wall -= 3600
    asking.refused()
    assert asking.used().tokens_per_day == 100
    asking.clock.go(3600)
    asking.refused()
    asking.clock.wall = MIDNIGHT + DAY_S
    asking.admit(100)


def test_clock_set_back_opens_no_new_month() -> None:
    asking = Asking(Limits(cost_per_month=NANO))
    asking.clock.wall = datetime(2030, 6, 1, 0, 10, tzinfo=UTC).timestamp()
    asking.whole(1, 1, cost=NANO)
    asking.clock.wall -= 3600
    asking.refused()


def test_day_far_ahead_of_a_corrected_clock_lasts_no_longer_than_a_day() -> None:
    asking = Asking(Limits(tokens_per_day=100))
    asking.clock.wall += 1000 * DAY_S
    asking.whole(50, 50)
    asking.clock.wall -= 1000 * DAY_S
    asking.clock.go(DAY_S - 10)
    asking.refused()
    asking.clock.go(20)
    asking.admit(100)


def test_month_far_ahead_of_a_corrected_clock_lasts_no_longer_than_a_month() -> None:
    asking = Asking(Limits(cost_per_month=NANO))
    asking.clock.wall += 1000 * DAY_S
    asking.whole(1, 1, cost=NANO)
    asking.clock.wall -= 1000 * DAY_S
    for _ in range(31):
        asking.refused()
        asking.clock.go(DAY_S)
    assert asking.clock.now >= 1000 + MONTH_S
    asking.admit(1)


def test_what_the_ledger_tells_of_today_counts_from_the_start() -> None:
    asking = Asking(Limits(tokens_per_day=100), Limits(cost_per_month=NANO))
    today = int(NOON // DAY_S)
    past = [
        Past("k_1", "sales", today, 90, 5),
        Past("k_1", "sales", today - 1, 10**9, 0),
        Past("k_2", "sales", today - 9, 10**9, NANO - 6),
    ]
    asking.quotas.load(past, asking.clock.now, asking.clock.wall)
    asking.refused(11)
    assert "name of k_1" in asking.refused(11).message
    asking.whole(10, 0, cost=1)
    asking.clock.go(DAY_S)
    assert "the tenant 'sales' has used 1.00 of 1.00" in asking.refused(1).message


def test_day_that_a_clock_set_back_reaches_again_is_not_a_fresh_one_after_a_restart() -> None:
    asking = Asking(Limits(tokens_per_day=100, cost_per_month=NANO))
    today = int(NOON // DAY_S)
    past = [Past("k_1", "sales", today, 30, 0), Past("k_1", "sales", today + 1, 95, 7)]
    asking.quotas.load(past, asking.clock.now, asking.clock.wall)
    assert (asking.used().tokens_per_day, asking.used().cost_per_month) == (30, 7)
    asking.clock.go(DAY_S)
    assert (asking.used().tokens_per_day, asking.used().cost_per_month) == (95, 7)
    asking.refused(6)
    asking.clock.go(DAY_S)
    assert (asking.used().tokens_per_day, asking.used().cost_per_month) == (0, 7)


# -- changes, tiers, headers -----------------------------------------------------------------------


def test_limit_that_changes_while_a_request_runs_holds_for_the_next_one() -> None:
    asking = Asking(Limits(tokens_per_min=1000))
    running = asking.admit(500)
    asking.limits = Limits(tokens_per_min=400, concurrent=1)
    asking.charge(running, 300)
    assert asking.used().tokens_per_min == 800
    asking.refused(1)
    asking.quotas.release(running)
    asking.limits = Limits(tokens_per_min=801)
    asking.admit(1)


@pytest.mark.parametrize(
    ("ceiling", "asked", "gets"),
    [
        (None, None, "default"), (None, "auto", "default"), (None, "priority", "priority"),
        ("default", "default", "default"), ("default", "flex", "flex"),
        ("flex", None, "flex"), ("flex", "auto", "flex"), ("flex", "flex", "flex"),
        ("priority", None, "default"), ("priority", "priority", "priority"),
    ],
)  # fmt: skip
def test_tier_is_what_was_asked_for_within_the_limit(
    ceiling: Any, asked: str | None, gets: str
) -> None:
    assert Asking(Limits(priority=ceiling)).admit(1, asked).tier == gets
    assert Asking(tenant=Limits(priority=ceiling)).admit(1, asked).tier == gets


@pytest.mark.parametrize(("ceiling", "asked"), [("default", "priority"), ("flex", "default")])
def test_tier_above_the_limit_is_forbidden_in_clear_words(ceiling: Any, asked: str) -> None:
    fault = Asking(Limits(priority="priority"), Limits(priority=ceiling)).refused(1, asked)
    assert isinstance(fault, Forbidden)
    assert (fault.code, fault.param) == ("tier_not_allowed", "service_tier")
    assert ceiling in fault.message
    assert asked in fault.message


def test_headers_tell_of_key_and_tenant_the_one_with_less_left() -> None:
    asking = Asking(Limits(requests_per_min=10, tokens_per_min=1000), Limits(tokens_per_min=500))
    visit = asking.admit(100)
    asking.clock.go(2)
    asking.charge(visit, 50)
    assert rate_headers(visit.tallies, asking.clock.now) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "58s",
        "x-ratelimit-limit-tokens": "500",
        "x-ratelimit-remaining-tokens": "350",
        "x-ratelimit-reset-tokens": "1m0s",
    }
    asking.charge(visit, 500)
    assert rate_headers(visit.tallies, asking.clock.now)["x-ratelimit-remaining-tokens"] == "0"


def test_without_limits_there_are_no_headers() -> None:
    asking = Asking(Limits(tokens_per_day=5, concurrent=3))
    assert rate_headers(asking.admit(1).tallies, asking.clock.now) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (-1, "0s"), (0.0004, "1ms"), (0.12, "120ms"), (1, "1s"), (8.64, "8.64s"),
        (59.9999, "1m0s"), (60, "1m0s"), (360, "6m0s"), (61.5, "1m1.5s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# -- limits as they are written --------------------------------------------------------------------


def test_limits_are_read_from_the_command_line_and_from_json() -> None:
    pairs = ("tokens_per_min=20000", "cost_per_month=12.5", "priority=flex")
    wanted = Limits(tokens_per_min=20000, cost_per_month=12_500_000_000, priority="flex")
    assert limits_from_text(pairs) == wanted
    assert limits_from({"tokens_per_min": 20000, "cost_per_month": "12.50", "priority": "flex",
                        "concurrent": None}) == wanted  # fmt: skip
    assert limits_from({"cost_per_month": 0.1}).cost_per_month == 100_000_000
    assert shown(wanted)["cost_per_month"] == "12.50"
    assert limits_from(shown(wanted)) == wanted


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"requests": 5}, "there are requests_per_min"),
        ({"requests_per_min": 0}, "whole number from 1"),
        ({"concurrent": True}, "whole number from 1"),
        ({"tokens_per_day": 1.5}, "whole number from 1"),
        ({"tokens_per_day": "5"}, "whole number from 1"),
        ({"tokens_per_day": 2**53}, "whole number from 1"),
        ({"cost_per_month": "1e3"}, "such as 12.50"),
        ({"cost_per_month": "-1"}, "such as 12.50"),
        ({"cost_per_month": 0}, "such as 12.50"),
        ({"cost_per_month": "١٢"}, "such as 12.50"),
        ({"cost_per_month": float("nan")}, "such as 12.50"),
        ({"priority": "highest"}, "one of priority, default, flex"),
    ],
)
def test_limit_that_cannot_be_is_refused_by_name(given: dict[str, object], says: str) -> None:
    with pytest.raises(LimitsRefused, match=says) as caught:
        limits_from(given)
    assert caught.value.name == next(iter(given))


def test_limit_without_a_value_is_refused() -> None:
    with pytest.raises(LimitsRefused, match="write name=value"):
        limits_from_text(("concurrent",))


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "0.00"), (NANO, "1.00"), (1, "0.000000001"), (12_345_000_000, "12.345"), (-NANO, "-1.00")],
)
def test_money_is_shown_exactly(nano: int, text: str) -> None:
    assert money(nano) == text


# -- against a naive model -------------------------------------------------------------------------


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
