"""Alarms: raised late enough not to flicker, folded under their cause, seen and snoozed by id."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from appliance.observe.alarms import FLOOD, MANY, OFF_S, ON_S, Alarms, Condition
from appliance.observe.conditions import Facts, conditions

MINUTE_MS = 60_000


class Clock:
    """Time that a test lets pass, in steps in which the same is so."""

    def __init__(self) -> None:
        self.alarms = Alarms()
        self.now = 1000.0

    def hold(self, found: Sequence[Condition], seconds: float) -> list[str]:
        """The ids of the alarms after so long."""
        end = self.now + seconds
        while True:
            shown = self.alarms.update(found, self.now, self.wall_ms)
            if self.now >= end:
                return [alarm.id for alarm in shown]
            self.now = min(end, self.now + 1.0)

    @property
    def wall_ms(self) -> int:
        return int(self.now * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def condition(id: str = "disk_low", prio: int = 2, under: tuple[str, ...] = ()) -> Condition:
    return Condition(id, 5, prio, f"{id}: do something", (), under)


def test_what_is_over_within_two_seconds_is_no_alarm(clock: Clock) -> None:
    assert clock.hold([condition()], ON_S - 0.5) == []
    assert clock.hold([], 1.0) == []
    assert clock.hold([condition()], ON_S - 0.5) == [], "the two seconds begin again"
    assert clock.hold([condition()], 0.5) == ["disk_low"]


def test_an_alarm_is_over_when_its_condition_has_been_gone_for_ten_seconds(clock: Clock) -> None:
    clock.hold([condition()], ON_S)
    began = clock.alarms.active()[0].since_ms
    assert clock.hold([], OFF_S - 1) == ["disk_low"]
    assert clock.hold([condition()], 1.0) == ["disk_low"]
    assert clock.alarms.active()[0].since_ms == began, "it is still the same alarm"
    assert clock.hold([], OFF_S) == []
    (over,) = clock.alarms.past
    assert (over.alarm.id, over.ended_ms) == ("disk_low", clock.wall_ms)


def test_the_worst_is_first_and_among_equals_the_oldest(clock: Clock) -> None:
    clock.hold([condition("a", 2)], 3)
    shown = clock.hold([condition("a", 2), condition("b", 2), condition("c", 1)], 3)
    assert shown == ["c", "a", "b"]


def test_effects_are_hidden_while_their_cause_is_an_alarm(clock: Clock) -> None:
    cause, effect = condition("engine_down", 1), condition("overload", 2, ("engine_down",))
    assert clock.hold([cause, effect], 3) == ["engine_down"]
    assert clock.hold([effect], OFF_S + 1) == ["overload"]


def test_seen_lasts_until_the_alarm_is_over(clock: Clock) -> None:
    clock.hold([condition()], 3)
    alarm = clock.alarms.see("disk_low")
    assert alarm is not None
    assert alarm.seen
    clock.hold([], OFF_S + 1)
    clock.hold([condition()], 3)
    assert not clock.alarms.active()[0].seen


def test_a_snooze_holds_until_its_time_even_if_the_alarm_comes_back(clock: Clock) -> None:
    clock.hold([condition()], 3)
    until = clock.wall_ms + MINUTE_MS
    assert clock.alarms.snooze("disk_low", until) is not None
    clock.hold([], OFF_S + 1)
    clock.hold([condition()], 3)
    assert clock.alarms.active()[0].snooze_ms == until
    clock.hold([condition()], 60)
    assert clock.alarms.active()[0].snooze_ms == 0


def test_only_alarms_can_be_seen_or_snoozed(clock: Clock) -> None:
    clock.hold([condition()], 1)
    assert clock.alarms.see("disk_low") is None
    assert clock.alarms.snooze("nothing", clock.wall_ms + MINUTE_MS) is None


def test_many_at_once_of_one_kind_are_one_alarm(clock: Clock) -> None:
    keys = [condition(f"key_expires:k_{n}", 3) for n in range(FLOOD + 1)]
    assert clock.hold([*keys, condition()], 3) == ["disk_low", f"key_expires{MANY}"]
    many = clock.alarms.active()[1]
    assert (many.args[0], many.code) == (str(FLOOD + 1), "key_expires")
    assert clock.hold(keys[:2], OFF_S + 1) == ["key_expires:k_0", "key_expires:k_1"]


def test_one_that_comes_and_goes_all_the_time_becomes_one_that_stays(clock: Clock) -> None:
    for _ in range(FLOOD + 1):
        clock.hold([condition()], 3)
        clock.hold([], OFF_S + 1)
    assert clock.hold([], 3) == [f"disk_low{MANY}"]
    assert clock.hold([], 700) == []


def test_alarms_that_were_are_kept_up_to_a_bound(clock: Clock) -> None:
    for number in range(250):
        clock.hold([condition(f"c{number}")], 3)
        clock.hold([], OFF_S + 1)
    assert len(clock.alarms.past) == 200
    assert clock.alarms.past[-1].alarm.id == "c249"


# -- rules ---------------------------------------------------------------------------------------


def codes(**facts: object) -> set[str]:
    return {found.code for found in conditions(Facts(**facts))}  # type: ignore[arg-type]


def test_a_healthy_box_raises_nothing() -> None:
    assert codes(step_age_s=0.1, disk_free=50 << 30, disk_total=100 << 30, tls_days=60) == set()


def test_a_box_that_knows_nothing_raises_nothing() -> None:
    assert conditions(Facts()) == []


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"engine_state": "backoff"}, "engine_down"),
        ({"engine_state": "failed"}, "engine_down"),
        ({"engine_state": "starting", "restarts": 1}, "engine_down"),
        ({"restarts_5min": 2}, "engine_failing"),
        ({"step_age_s": 31.0}, "engine_stuck"),
        ({"ledger_problem": "the disk is full"}, "ledger_failing"),
        ({"chain_broken": True, "bad_row": 7}, "chain_broken"),
        ({"disk_free": 9, "disk_total": 100}, "disk_low"),
        ({"waiting": 129}, "overload"),
        ({"queue_full_min": 1}, "overload"),
        ({"tls_days": 6.9}, "tls_expires"),
        ({"tls_days": -3.0}, "tls_expires"),
        ({"keys": (("k_1", "wiki", 13),)}, "key_expires"),
        ({"keys": (("k_1", "wiki", 0),)}, "key_expires"),
        ({"export_age_days": 7.0}, "export_overdue"),
        ({"ledger_age_days": 30.0}, "export_overdue"),
        ({"too_hot": (("coretemp Package id 0", 100.4, 100.0),)}, "too_hot"),
        ({"degraded": ("gpu: no device",)}, "gpu_lost"),
        ({"degraded": ("encoder: not installed",)}, "degraded"),
        ({"degraded": ("control: a forecast was no distribution",)}, "degraded"),
        ({"overrun_pct": 1.0}, "ticks_overrun"),
    ],
)
def test_each_rule_raises_its_alarm(facts: dict[str, object], code: str) -> None:
    assert codes(**facts) == {code}


@pytest.mark.parametrize(
    "facts",
    [
        {"engine_state": "starting"},
        {"engine_state": "stopping"},
        {"restarts_5min": 1},
        {"waiting": 128},
        {"waiting": 5, "waiting_most": 0},
        {"tls_days": 7.0},
        {"keys": (("k_1", "wiki", 14),)},
        {"keys": (("k_1", "wiki", -1),)},
        {"export_age_days": 6.9, "ledger_age_days": 400.0},
        {"ledger_age_days": 29.0},
        {"disk_free": 10, "disk_total": 100},
        {"overrun_pct": 0.99},
    ],
)
def test_what_is_still_in_order_raises_nothing(facts: dict[str, object]) -> None:
    assert codes(**facts) == set()


def test_a_dead_engine_hides_the_queue_that_it_fills(clock: Clock) -> None:
    dead = Facts(engine_state="backoff", engine_failure="crashed", waiting=200, restarts_5min=3)
    assert clock.hold(conditions(dead), 3) == ["engine_down"]


def test_a_full_disk_hides_what_it_stops() -> None:
    clock = Clock()
    full = Facts(disk_free=1, disk_total=100, disk_least=10, ledger_problem="full", waiting=200)
    assert clock.hold(conditions(full), 3) == ["disk_full"]


def test_a_full_disk_is_named_by_what_is_on_it() -> None:
    room = Facts(disk="/var/lib/steelyard", disk_free=56_000_000, disk_total=60_000_000)
    low, full = replace(room, disk_free=4_000_000), replace(room, disk_least=64 << 20)
    assert [(one.text, one.args) for one in (*conditions(low), *conditions(full))] == [
        (
            "DISK LOW: 7 % left in /var/lib/steelyard, 0.0 GB. Free some space",
            ("7", "0.0", "/var/lib/steelyard"),
        ),
        (
            "DISK FULL: 56 MB left in /var/lib/steelyard, the box serves nothing. Free some space",
            ("56", "/var/lib/steelyard"),
        ),
    ]


def test_overload_tells_of_those_who_were_turned_away() -> None:
    (many,) = conditions(Facts(waiting=129, top_key="crm-bot", top_share_pct=90.0))
    assert many.text == (
        "OVERLOAD: 129 of 256 waiting, crm-bot holds 90 %. 2 shows them, T throttles"
    )
    (away,) = conditions(Facts(waiting=0, queue_full_min=3))
    assert away.text == (
        "OVERLOAD: 3 turned away in a minute, 0 of 256 waiting. 2 shows them, T throttles"
    )
    assert away.args == ("0", "256", "", "0", "3")


def test_every_text_says_what_to_do_and_fits_a_screen_with_its_arguments_beside() -> None:
    facts = Facts(engine_state="backoff", engine_failure="crashed (signal 11)", retry_s=4.0)
    (found,) = conditions(facts)
    assert found.text == (
        "ENGINE DOWN: it crashed (signal 11); next start in 4 s. 7 shows it, R restarts"
    )
    assert found.args == ("crashed (signal 11)", "4")
    assert found.screen == 7
