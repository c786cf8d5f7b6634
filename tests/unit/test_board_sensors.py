"""The board's channels, with unit, sigma and quality."""

import math

import pytest

from firmware_bridge.events import BoardInfo, Description, Reference, Samples
from firmware_bridge.messages import UNREAD
from firmware_bridge.sensors import STALE_S, Sensors

CHANNELS = (
    Description(0, "cpu_temperature", "°C", 0.01, 0.0, 0.15),
    Description(0, "rail_12v", "V", 0.001, 0.0, 0.002),
    Description(0, "current_12v", "A", 0.002, 0.0, 0.005),
    Description(0, "fan0_duty", "1", 0.001, 0.0, 0.0),
    Description(0, "reference", "V", 0.0001, 0.0, 0.0004),
)


def board(uid: str = "one", boot_id: int = 1) -> BoardInfo:
    return BoardInfo(1, 0, boot_id, 1000, 7, len(CHANNELS), 5, "1.0.0", 1, 0, uid, CHANNELS)


def rows(*raw: int, count: int = 5) -> tuple[tuple[int, ...], ...]:
    return (raw,) * count


def told(sensors: Sensors, first: int, *raw: int, at: float = 0.0, count: int = 5) -> None:
    sensors.take(Samples(first, rows(*raw, count=count), (), 0), at)


def greeted() -> Sensors:
    sensors = Sensors()
    sensors.greet(board())
    return sensors


def test_a_channel_that_was_never_sampled_is_unknown_and_says_so() -> None:
    reading = greeted().readings(0.0)[0]
    assert (reading.quality, reading.value, reading.unit) == ("unknown", None, "°C")
    assert "no sample" in reading.why


def test_a_value_is_in_its_unit_with_its_sigma() -> None:
    sensors = greeted()
    told(sensors, 0, 4512, 12_034, 3000, 700, 10_000)
    readings = {one.name: one for one in sensors.readings(0.0)}
    assert readings["cpu_temperature"].value == pytest.approx(45.12)
    assert readings["rail_12v"].value == pytest.approx(12.034)
    assert readings["cpu_temperature"].sigma == 0.15
    assert readings["fan0_duty"].value == pytest.approx(0.7)


def test_a_sensor_that_cannot_be_read_is_unknown_and_never_a_number() -> None:
    sensors = greeted()
    told(sensors, 0, 4512, 12_000, 3000, 700, 10_000)
    told(sensors, 5, UNREAD, 12_000, 3000, 700, 10_000)
    reading = sensors.readings(0.0)[0]
    assert (reading.quality, reading.value, reading.raw) == ("unknown", None, None)
    assert "wiring" in reading.why
    told(sensors, 10, 4600, 12_000, 3000, 700, 10_000)
    assert sensors.readings(0.0)[0].value == pytest.approx(46.0)


def test_without_samples_for_a_while_a_reading_is_stale() -> None:
    sensors = greeted()
    told(sensors, 0, 4512, 12_000, 3000, 700, 10_000, at=1.0)
    assert sensors.readings(1.0 + STALE_S)[0].quality == "ok"
    assert sensors.readings(1.1 + STALE_S)[0].quality == "stale"


def test_references_correct_their_own_channel_alone() -> None:
    sensors = greeted()
    for first in range(0, 100, 5):
        references = tuple(Reference(first + i, 4, 10_000) for i in range(5))
        sensors.take(Samples(first, rows(4512, 12_000, 3000, 700, 10_030), references, 0), 0.0)
    readings = {one.name: one for one in sensors.readings(0.0)}
    reference = readings["reference"]
    assert reference.raw == pytest.approx(1.0030)
    assert reference.value == pytest.approx(1.0, abs=1e-9)
    assert (reference.drift.quality, reference.drift.references) == ("ok", 64)
    assert reference.residuals[-1] == pytest.approx(0.003)
    assert readings["rail_12v"].drift.quality == "none"
    assert readings["rail_12v"].residuals == ()


def test_a_reading_across_a_step_is_taken_off_what_was_true_of_each_of_its_samples() -> None:
    sensors = greeted()
    for first in range(0, 105, 5):
        raw = 10_000 if first < 100 else 10_100  # the newest 5 of the 10 that a reading is of
        references = tuple(Reference(first + i, 4, 10_000) for i in range(5))
        sensors.take(Samples(first, rows(4512, 12_000, 3000, 700, raw), references, 0), 0.0)
    reference = {one.name: one for one in sensors.readings(0.0)}["reference"]
    assert reference.drift.stepped
    assert reference.raw == pytest.approx(1.005)
    assert reference.value == pytest.approx(1.0, abs=1e-9)


def test_a_rail_s_energy_is_its_power_times_time() -> None:
    sensors = greeted()
    for first in range(0, 1000, 5):
        told(sensors, first, 4512, 12_000, 2500, 700, 10_000)
    (rail,) = sensors.energies()
    assert rail.name == "12v"
    assert rail.watts == pytest.approx(60.0)
    assert rail.uj == pytest.approx(60e6 * 0.999, rel=1e-6)


def test_lost_samples_are_bridged_and_a_long_gap_is_not_measured() -> None:
    sensors = greeted()
    told(sensors, 0, 0, 12_000, 2500, 0, 0, count=1)
    told(sensors, 500, 0, 12_000, 2500, 0, 0, count=1)
    assert sensors.energies()[0].uj == pytest.approx(30e6)
    told(sensors, 5000, 0, 12_000, 2500, 0, 0, count=1)
    assert sensors.energies()[0].uj == pytest.approx(30e6)


def test_a_current_that_cannot_be_read_makes_no_energy() -> None:
    sensors = greeted()
    told(sensors, 0, 0, 12_000, UNREAD, 0, 0)
    assert sensors.energies() == ()


def test_a_board_that_boots_again_keeps_its_energy() -> None:
    sensors = greeted()
    told(sensors, 0, 0, 12_000, 2500, 0, 0, count=11)
    before = sensors.energies()[0].uj
    sensors.greet(board(boot_id=2))
    told(sensors, 0, 0, 12_000, 2500, 0, 0, count=11)
    assert sensors.energies()[0].uj == 2 * before


def test_another_board_begins_anew() -> None:
    sensors = greeted()
    told(sensors, 0, 4512, 12_000, 2500, 0, 0)
    sensors.greet(board(uid="two"))
    assert sensors.readings(0.0)[0].quality == "unknown"
    assert sensors.energies() == ()


def test_rows_of_another_width_are_not_ours() -> None:
    sensors = greeted()
    sensors.take(Samples(0, ((1, 2, 3),), (), 0), 0.0)
    assert sensors.readings(0.0)[0].quality == "unknown"


def test_a_sigma_that_is_no_number_is_taken_for_none() -> None:
    channel = Description(0, "odd", "V", 1.0, 0.0, math.nan)
    sensors = Sensors()
    sensors.greet(BoardInfo(1, 0, 1, 1000, 7, 1, 1, "1.0.0", 1, 0, "one", (channel,)))
    sensors.take(Samples(0, ((5,),), (Reference(0, 0, 4),), 0), 0.0)
    assert sensors.readings(0.0)[0].value == 5.0
