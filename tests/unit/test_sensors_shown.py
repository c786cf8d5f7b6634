"""What is measured reaches consoles, metrics and alarms, with where it comes from."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from appliance.api.box import Box
from appliance.api.watch import Watch
from appliance.observe.hostsensors import HostSensors
from appliance.observe.metrics import Metrics
from appliance.observe.readings import EnergyCounter, Found, Reading
from tests.unit.api_box import make_box

WALL = 1_800_000_000.0


def reading(name: str, unit: str, value: float | None, at: float, **more: Any) -> Reading:
    quality: Any = "unknown" if value is None else "ok"
    return Reading(
        name=name, unit=unit, source="hwmon", quality=quality, at=at, value=value, **more
    )


def measured(now: float, temperature: float = 61.0) -> HostSensors:
    """A machine that draws 40 W, 30 of 60 J for computing, one sensor of which cannot be read."""
    sensors = HostSensors()
    for at, uj, busy_ns in ((now - 2, 0, 0), (now - 1.5, 20_000_000, 0), (now, 80_000_000, 10**9)):
        readings = (
            reading("cpu", "C", temperature, at, chip=True, hi=90.0, crit=100.0),
            reading("psu", "W", None, at, why="permission denied"),
        )
        counter = EnergyCounter(name="package-0", source="RAPL", uj=uj, at=at)
        found = Found(readings=readings, counters=(counter,))
        sensors.take(found, lambda busy_ns=busy_ns: (busy_ns, False), at)  # type: ignore[misc]
    return sensors


def watched(tmp_path: Path, sensors: HostSensors) -> tuple[Box, Watch]:
    box = replace(make_box(tmp_path), sensors=sensors)
    return box, Watch(box)


def test_a_box_without_sensors_shows_unknown_and_never_a_number(tmp_path: Path) -> None:
    _, watch = watched(tmp_path, HostSensors())
    live, state = watch.live(10.0, WALL), watch.state(10.0, WALL)
    assert (live.power_w, live.temp_c, live.j_per_tok) == (None, None, None)
    assert state.sensors == ()
    (board,) = (step for step in state.setup if step.step == "board")
    assert board.detail == "none; energy not measured: no sensor for it"


def test_readings_are_told_with_their_unit_source_and_quality(tmp_path: Path) -> None:
    _, watch = watched(tmp_path, measured(10.0))
    live, state = watch.live(10.0, WALL), watch.state(10.0, WALL)
    assert (live.power_w, live.temp_c) == (40.0, 61.0)
    cpu, psu = state.sensors
    assert (cpu.name, cpu.unit, cpu.source, cpu.quality) == ("cpu", "C", "hwmon", "ok")
    assert (cpu.value, cpu.lo, cpu.hi, cpu.sigma) == (61.0, None, 90.0, None)
    assert (psu.quality, psu.value, psu.why) == ("unknown", None, "permission denied")
    (board,) = (step for step in state.setup if step.step == "board")
    assert board.detail == "none; energy from RAPL"


def test_numbers_that_are_not_renewed_are_told_no_more(tmp_path: Path) -> None:
    _, watch = watched(tmp_path, measured(10.0))
    live, state = watch.live(60.0, WALL), watch.state(60.0, WALL)
    assert (live.power_w, live.temp_c) == (None, None)
    assert [one.quality for one in state.sensors] == ["stale", "unknown"]


def test_energy_per_token_is_of_the_last_minute(tmp_path: Path) -> None:
    box, watch = watched(tmp_path, measured(10.0))
    supervisor: Any = box.supervisor
    assert watch.live(10.0, WALL).j_per_tok is None
    box.sensors.meter.computing_uj += 30_000_000
    stats = msgspec.structs.replace(supervisor.snapshot.stats, predicted_tokens=120)
    supervisor.snapshot = msgspec.structs.replace(supervisor.snapshot, stats=stats)
    assert watch.live(11.0, WALL).j_per_tok == 0.25
    assert watch.live(20.0, WALL).j_per_tok is None, "the sensors have gone silent"


def test_only_a_sensor_at_its_own_limit_is_an_alarm(tmp_path: Path) -> None:
    for temperature, codes in ((99.0, []), (101.0, ["too_hot"])):
        _, watch = watched(tmp_path, measured(10.0, temperature))
        for now in (10.0, 11.0, 12.5):
            watch.look(now, WALL + now)
        assert [alarm.code for alarm in watch.state(12.5, WALL).alarms] == codes


def samples(sensors: HostSensors) -> dict[str, str]:
    metrics = Metrics(version="0", llama_commit="c", model="tiny", sensors=sensors)
    lines = metrics.text().decode().splitlines()
    found = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    named = ("steelyard:power", "steelyard:temp", "steelyard:energy")
    return {name: value for name, value in found if name.startswith(named)}


def test_metrics_name_source_sensor_and_kind() -> None:
    sensors = measured(time.monotonic())
    assert sensors.meter.claim(device_ns=10**9, started=0.0, now=time.monotonic())[1] == "RAPL"
    assert samples(sensors) == {
        "steelyard:power_watts": "40.0",
        'steelyard:temperature_celsius{sensor="cpu",source="hwmon"}': "61.0",
        'steelyard:energy_joules_total{kind="attributed",source="RAPL"}': "40.0",
        'steelyard:energy_joules_total{kind="idle",source="RAPL"}': "40.0",
        "steelyard:energy_pending_joules": "0.0",
    }


def test_what_is_unknown_has_no_sample() -> None:
    assert samples(HostSensors()) == {}
