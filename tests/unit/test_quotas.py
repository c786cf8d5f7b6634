"""Limits: what is let in, what is refused and how, and that nothing is counted wrongly."""

from datetime import UTC, datetime
from typing import Any

import pytest

from appliance.accounts.fitting import Exhausted, TooLargeForMinute, duration, rate_headers
from appliance.accounts.limits import NANO, Limits
from appliance.accounts.quotas import DAY_S, MONTH_S, Past
from appliance.accounts.tally import Used
from appliance.errors import Forbidden
from tests.unit.quotas_parts import NOON, Asking

MIDNIGHT = datetime(2030, 5, 18, tzinfo=UTC).timestamp()


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
