"""What the firmware decides, run by CPython with times of the test's own."""

from typing import Any

import pytest

from firmware_bridge import messages as m
from firmware_bridge.commands import ConfigureWatchdog
from firmware_bridge.events import Happened
from firmware_bridge.firmware import watchdog as wd
from firmware_bridge.firmware.button import Button
from firmware_bridge.firmware.eventlog import KEPT, EventLog
from firmware_bridge.firmware.outputs import FULL, Outputs, curve
from firmware_bridge.firmware.schema import FAN0, LED
from tests.unit.board_parts import Pair, only


def armed(timeout: int = 1000, flags: int = 0) -> wd.Watchdog:
    dog = wd.Watchdog(1)
    assert dog.configure(timeout, timeout * 3 // 4, m.ACTION_CYCLE, flags, 0) == 0
    return dog


def hang(dog: wd.Watchdog, now: int) -> int:
    """Let the host hang until the watchdog does its last; returns when that was."""
    while True:
        now += 10
        if dog.poll(now) in (wd.CUT_POWER, wd.LATCH):
            return now


def boot(dog: wd.Watchdog, now: int) -> int:
    while dog.poll(now) != wd.RESTORE_POWER:
        now += 10
    dog.greeted(now)
    return now


def test_warning_comes_before_the_cut() -> None:
    dog = armed()
    done = [(now, did) for now in range(0, 1010, 10) if (did := dog.poll(now))]
    assert done == [(750, wd.WARN), (1000, wd.CUT_POWER)]


def test_only_the_last_challenge_feeds() -> None:
    dog = armed()
    assert not dog.feed(2, 3, 500)
    assert dog.feed(1, 2, 500)
    assert not dog.feed(1, 3, 900)
    assert dog.poll(1499) == wd.WARN
    assert dog.poll(1500) == wd.CUT_POWER


def test_feeding_after_the_warning_saves_the_host() -> None:
    dog = armed()
    assert dog.poll(800) == wd.WARN
    dog.feed(1, 2, 900)
    assert dog.poll(1500) == wd.NOTHING
    assert dog.state == m.ARMED


def test_third_cycle_without_health_is_the_last() -> None:
    dog, now = armed(), 0
    for cycle in range(1, wd.MAX_CYCLES + 1):
        now = hang(dog, now)
        assert (dog.state, dog.cycles) == (m.CUT, cycle)
        now = boot(dog, now)
    hang(dog, now)
    assert dog.state == m.LATCHED
    dog.unlatch()
    assert (dog.state, dog.cycles) == (m.OFF, 0)


def test_ten_healthy_minutes_forgive_the_cycles() -> None:
    dog = armed(30_000)
    now = boot(dog, hang(dog, 0))
    for _ in range(61):
        now += 10_000
        dog.feed(dog.challenge, dog.challenge + 1, now)
        dog.poll(now)
    assert dog.cycles == 0


def test_host_that_never_boots_is_cycled_again() -> None:
    dog = armed()
    now = hang(dog, 0)
    while dog.poll(now) != wd.RESTORE_POWER:
        now += 10
    assert hang(dog, now) - now == wd.BOOT_MS
    assert dog.cycles == 2


def test_neither_configuring_nor_inhibiting_again_and_again_feeds() -> None:
    dog = armed()
    for now in range(0, 1000, 100):
        dog.configure(1000, 750, m.ACTION_CYCLE, 0, now)
    assert dog.poll(1000) == wd.CUT_POWER
    dog = armed()
    codes = [dog.inhibit(1, now) for now in range(0, 900, 300)]
    assert codes == [0, m.DENIED, m.DENIED]
    assert hang(dog, 0) == 2000


def test_inhibit_ends_by_itself_or_when_told() -> None:
    dog = armed()
    dog.inhibit(900, 0)
    assert dog.shown_state(10) == m.INHIBITED
    assert dog.poll(899_000) == wd.NOTHING
    dog.inhibit(0, 899_000)
    assert dog.shown_state(899_000) == m.ARMED
    assert hang(dog, 899_000) == 900_000


def test_a_shorter_inhibit_does_not_shorten_a_longer_one() -> None:
    """The engine is replaced while an operator works on the box."""
    dog = armed()
    assert dog.inhibit(900, 0) == 0
    assert dog.feed(1, 2, 100)
    assert dog.inhibit(60, 200) == 0
    assert hang(dog, 200) == 901_000


def test_nowayout_can_be_lengthened_but_neither_shortened_nor_stopped() -> None:
    dog = armed(1000, m.NOWAYOUT)
    assert dog.stop(m.STOP_WORD, dog.challenge) == m.DENIED
    assert dog.configure(900, 500, m.ACTION_CYCLE, m.NOWAYOUT, 0) == m.DENIED
    assert dog.configure(2000, 500, m.ACTION_NONE, m.NOWAYOUT, 0) == m.DENIED
    assert dog.configure(2000, 500, m.ACTION_CYCLE, 0, 0) == m.DENIED
    assert dog.configure(2000, 500, m.ACTION_CYCLE, m.NOWAYOUT, 0) == 0


def test_stopping_takes_the_word_and_the_challenge() -> None:
    dog = armed()
    assert dog.stop(m.STOP_WORD, 99) == m.BAD_ARGUMENT
    assert dog.stop(0, 1) == m.BAD_ARGUMENT
    assert dog.stop(m.STOP_WORD, 1) == 0
    assert dog.poll(10_000) == wd.NOTHING


def test_armed_watchdog_outlives_a_reset_of_the_board() -> None:
    dog = armed(1000, m.NOWAYOUT)
    hang(dog, 0)
    again = wd.Watchdog(5)
    again.load(dog.dump(), 0)
    assert (again.state, again.cycles, again.flags) == (m.BOOTING, 1, m.NOWAYOUT)
    assert hang(again, 0) == wd.BOOT_MS


@pytest.mark.parametrize(
    ("temperature", "duty"),
    [(None, FULL), (-1000, 250), (4000, 250), (4750, 325), (7000, 700), (7500, 850), (9999, FULL)],
)
def test_fan_curve(temperature: int | None, duty: int) -> None:
    assert curve(temperature) == duty


def test_fan_never_turns_slower_than_the_curve() -> None:
    outputs = Outputs()
    outputs.ask(FAN0, 100, 1000, 0)
    assert outputs.value(FAN0, 7000, full=False) == 700
    outputs.ask(FAN0, 900, 1000, 0)
    assert outputs.value(FAN0, 7000, full=False) == 900


def test_every_output_goes_back_to_safe() -> None:
    outputs = Outputs()
    assert outputs.ask(FAN0, 1000, 500, 0) == 0
    assert outputs.ask(LED, 1, 600, 0) == 0
    assert outputs.expire(499) == []
    assert outputs.expire(500) == [FAN0]
    assert outputs.expire(600) == [LED]
    assert outputs.expire(700) == []
    assert (outputs.value(FAN0, 3000, False), outputs.value(LED, 3000, False)) == (700, 0)


@pytest.mark.parametrize("wish", [(9, 1, 100), (FAN0, 1001, 100), (FAN0, 1, 0)])
def test_impossible_wishes_are_refused(wish: tuple[int, int, int]) -> None:
    assert Outputs().ask(*wish, 0) == m.BAD_ARGUMENT


def test_button_knows_bounce_press_and_long_press() -> None:
    button = Button()
    assert [button.poll(True, 0), button.poll(False, 20)] == [0, 0]
    assert [button.poll(True, 100), button.poll(False, 200)] == [0, m.BUTTON]
    assert [button.poll(True, 1000), button.poll(True, 4000)] == [0, m.BUTTON_LONG]
    assert [button.poll(True, 9000), button.poll(False, 9100)] == [0, 0]


def test_oldest_event_goes_when_too_many_wait() -> None:
    log = EventLog([], 0)
    for number in range(KEPT + 3):
        log.add(m.BUTTON, number, 0)
    assert log.dropped == 3
    assert len(log.dump()) == KEPT
    assert log.acknowledge(4)
    assert not log.acknowledge(1)


def test_events_are_repeated_until_acknowledged() -> None:
    log = EventLog([], 0)
    log.add(m.BUTTON, 0, 0)
    sent = [now for now in range(0, 1000, 10) if log.to_send(now)]
    assert sent == [0, 200, 400, 600, 800]
    log.acknowledge(1)
    assert log.to_send(2000) == []


def test_hung_host_is_cut_off_at_the_configured_time_and_latched_after_three() -> None:
    pair = Pair()
    pair.board.watchdog.configure(1000, 750, m.ACTION_CYCLE, m.PULSE_BUTTON, 0)
    pair.session.disconnected()
    while len(pair.hal.relays) < 1:
        pair.board.turn()
    assert abs(pair.now - 1.0) < 0.02
    assert pair.hal.pulses == 1
    while pair.board.watchdog.state != m.LATCHED:
        pair.hal.us += 5000
        pair.board.turn()
    assert pair.hal.relays == [False, True] * 3
    assert pair.hal.driven[FAN0] == FULL
    assert pair.hal.driven[LED] == 2
    pair.hal.down = True
    for _ in range(100):
        pair.board.turn()
    pair.hal.down = False
    for _ in range(100):
        pair.board.turn()
    assert pair.board.watchdog.state == m.OFF


def test_fan_that_stands_still_is_told_once() -> None:
    pair = Pair()
    pair.hal.celsius, pair.hal.speed = 6000, 0
    pair.run(12)
    numbers = [e.argument for e in only(pair.events, Happened) if e.kind == m.EV_FAN]
    assert numbers == [0, 1]


def test_board_that_was_held_up_skips_samples_and_says_so() -> None:
    pair = Pair()
    pair.run(0.2)
    before = pair.board.sampler.index
    pair.hal.us += 500_000
    pair.run(0.1)
    sampler = pair.board.sampler
    assert sampler.skipped >= 450
    assert abs(sampler.index - before - 600) < 10


@pytest.mark.parametrize(
    "flash",
    [
        {"watchdog": [1, 2]},
        {"watchdog": 3},
        {"events": ["xyz"]},
        {"events": ["00"]},
        {"power_cycles": None},
        [],
    ],
    ids=str,
)
def test_damaged_flash_does_not_stop_the_board(flash: Any) -> None:
    pair = Pair()
    pair.hal.load = lambda: flash  # type: ignore[method-assign]
    pair.reboot()
    assert pair.board.watchdog.state == m.OFF
    assert len(pair.board.events.dump()) == 1


def test_power_cycles_and_the_armed_watchdog_survive_a_reset_of_the_board() -> None:
    pair = Pair()
    pair.run(0.2)
    pair.session.send(ConfigureWatchdog(1000, 700), pair.now)
    pair.run(1.5)
    assert pair.board.power_cycles == 1
    pair.reboot()
    assert pair.board.power_cycles == 1
    assert pair.board.watchdog.state == m.BOOTING
    pair.run(3.0)
    assert pair.board.watchdog.state == m.ARMED or pair.board.power_cycles > 1
    assert pair.session.board is not None
    assert pair.session.board.power_cycles == 1
