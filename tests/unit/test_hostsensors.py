"""The machine's sensors, from a /sys written for each test: what is not known is never made up."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.observe.hostsensors import GONE, HostSensors
from appliance.observe.rapl import DENIED, Rapl
from appliance.observe.readings import Draw, EnergyCounter, Found, Reading
from tests.unit.sensor_parts import denied, rapl, temperature


def idle_load() -> tuple[int, bool]:
    """Of a box without an engine."""
    return 0, False


def taken(*readings: Reading, now: float = 0.0) -> HostSensors:
    sensors = HostSensors()
    sensors.take(Found(readings=readings), idle_load, now)
    return sensors


def test_nothing_is_told_where_nothing_is_read() -> None:
    sensors = HostSensors()
    assert sensors.readings(0.0) == ()
    assert (sensors.power_w(0.0), sensors.temp_c(0.0), sensors.too_hot(0.0)) == (None, None, ())
    assert sensors.energy_from() == "energy not measured: no sensor for it"
    assert sensors.meter.claim(device_ns=10**9, started=0.0, now=1.0) == (None, "")


def test_the_temperature_of_the_box_is_that_of_its_hottest_chip() -> None:
    sensors = taken(
        temperature(50.0, "cpu", chip=True),
        temperature(61.5, "gpu", chip=True),
        temperature(80.0, "disk"),
        temperature(None, "other", chip=True),
    )
    assert sensors.temp_c(0.0) == 61.5


def test_a_box_that_knows_only_its_disks_temperature_has_none() -> None:
    assert taken(temperature(40.0, "disk")).temp_c(0.0) is None


def test_a_reading_that_is_not_renewed_is_stale_and_told_of_no_more() -> None:
    sensors = taken(temperature(99.0, chip=True, crit=90.0))
    assert sensors.too_hot(3.0) == (("cpu", 99.0, 90.0),)
    assert [one.quality for one in sensors.readings(3.1)] == ["stale"]
    assert (sensors.temp_c(3.1), sensors.too_hot(3.1)) == (None, ())


def test_only_a_sensors_own_limit_makes_it_too_hot() -> None:
    assert taken(temperature(120.0, chip=True)).too_hot(0.0) == ()
    assert taken(temperature(89.9, crit=90.0)).too_hot(0.0) == ()


def test_a_sensor_that_is_gone_stays_listed_as_unknown() -> None:
    sensors = taken(temperature(50.0))
    for now in (1.0, 2.0):
        sensors.take(Found(), idle_load, now)
    (one,) = sensors.readings(2.0)
    assert (one.name, one.quality, one.value, one.why) == ("cpu", "unknown", None, GONE)
    sensors.take(Found(readings=(temperature(51.0, at=3.0),)), idle_load, 3.0)
    assert [one.value for one in sensors.readings(3.0)] == [51.0]


def test_what_comes_and_goes_under_new_names_does_not_pile_up() -> None:
    sensors = HostSensors()
    for number in range(2000):
        one = temperature(50.0, f"cpu{number}", at=float(number))
        sensors.take(Found(readings=(one,)), idle_load, float(number))
    assert len(sensors.readings(2000.0)) <= 257


class Scripted:
    """A reader that does as told."""

    def __init__(self, act: Callable[[float], Found]) -> None:
        self.read = act


def test_a_reader_with_a_bug_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    def broken(now: float) -> Found:
        raise RuntimeError("a bug")

    fine = Found(readings=(temperature(50.0),))
    sensors = HostSensors([Scripted(broken), Scripted(lambda now: fine)])
    assert sensors.look(0.0) == sensors.look(1.0) == fine
    assert len(caplog.records) == 1


def test_hwmon_power_stands_in_only_where_nothing_else_counts() -> None:
    drawn = Found(draws=(Draw(name="meter", source="hwmon", watts=90.0, at=0.0),))
    counted = Found(counters=(EnergyCounter(name="p", source="RAPL", uj=1, at=0.0),))
    alone = HostSensors([Scripted(lambda now: drawn)])
    both = HostSensors([Scripted(lambda now: drawn), Scripted(lambda now: counted)])
    assert alone.look(0.0) == drawn
    assert both.look(0.0) == counted


def test_why_energy_is_not_measured_is_told(tmp_path: Path) -> None:
    rapl(tmp_path, "intel-rapl:0", "package-0", 1)
    sensors = HostSensors([Rapl(tmp_path, denied)])
    sensors.take(sensors.look(0.0), idle_load, 0.0)
    assert sensors.energy_from() == f"energy not measured: {DENIED}"


async def test_a_read_that_hangs_holds_up_neither_the_loop_nor_the_stop() -> None:
    entered, leave = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hangs(now: float) -> Found:
        loop.call_soon_threadsafe(entered.set)
        leave.wait(10)
        return Found(readings=(temperature(50.0),))

    sensors = HostSensors([Scripted(hangs)])
    sensors.start(idle_load)
    await asyncio.wait_for(entered.wait(), 10)
    sensors.stop()
    leave.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert sensors.readings(0.0) == ()


async def test_a_look_of_the_thread_reaches_the_loop() -> None:
    heard = asyncio.Event()

    def load() -> tuple[int, bool]:
        heard.set()
        return 0, False

    sensors = HostSensors([Scripted(lambda now: Found(readings=(temperature(50.0, at=now),)))])
    sensors.start(load)
    await asyncio.wait_for(heard.wait(), 10)
    sensors.stop()
    assert [one.value for one in sensors.readings(0.0)] == [50.0]
