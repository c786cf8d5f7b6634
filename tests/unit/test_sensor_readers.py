"""The readers of /sys and of the graphics driver: what is not known is never made up."""

from pathlib import Path
from typing import Any

import pytest

from appliance.observe.hwmon import Hwmon
from appliance.observe.nvml import Library, Nvml, NvmlError
from appliance.observe.rapl import DENIED, Rapl
from appliance.observe.readings import EnergyCounter, Found, Reading, grown
from tests.unit.sensor_parts import denied, hwmon, rapl, write

CPU = {"name": "coretemp", "temp1_label": "Package id 0", "temp1_input": "61000"}


def by_name(found: Found) -> dict[str, Reading]:
    return {one.name: one for one in found.readings}


# -- hwmon ---------------------------------------------------------------------------------------


def test_every_kind_of_hwmon_sensor_is_read_in_its_unit(tmp_path: Path) -> None:
    hwmon(tmp_path, 0, **CPU, temp1_max="80000", temp1_crit="100000")
    hwmon(
        tmp_path, 1, name="nct6775", in0_input="1100", in0_min="900", in0_max="1300",
        fan1_input="1450", fan1_label="CPU fan", curr1_input="2500", power1_input="41300000",
    )  # fmt: skip
    found = by_name(Hwmon(tmp_path).read(1.0))
    told = {name: (one.value, one.unit, one.lo, one.hi) for name, one in found.items()}
    assert told == {
        "coretemp Package id 0": (61.0, "C", None, 80.0),
        "nct6775 in0": (1.1, "V", 0.9, 1.3),
        "nct6775 curr1": (2.5, "A", None, None),
        "nct6775 power1": (41.3, "W", None, None),
        "nct6775 CPU fan": (1450.0, "rpm", None, None),
    }
    cpu = found["coretemp Package id 0"]
    assert (cpu.source, cpu.quality, cpu.crit, cpu.at, cpu.sigma) == (
        "hwmon",
        "ok",
        100.0,
        1.0,
        None,
    )
    assert cpu.chip
    assert not found["nct6775 in0"].chip


def test_a_machine_without_sensors_has_none(tmp_path: Path) -> None:
    for reader in (Hwmon(tmp_path), Rapl(tmp_path), Hwmon(tmp_path / "no"), Rapl(tmp_path / "no")):
        assert reader.read(0.0) == Found()


@pytest.mark.parametrize("text", ["", "garbage", "12.5", "0x10", "\ufeff3", "9" * 300])
def test_garbage_is_unknown_and_never_a_number(tmp_path: Path, text: str) -> None:
    hwmon(tmp_path, **{**CPU, "temp1_input": text})
    rapl(tmp_path, "intel-rapl:0", "package-0", 1)
    write(tmp_path / "class/powercap/intel-rapl:0", {"energy_uj": text})
    readings = (*Hwmon(tmp_path).read(0.0).readings, *Rapl(tmp_path).read(0.0).readings)
    assert [(one.quality, one.value) for one in readings] == [("unknown", None)] * 2
    assert all(one.why for one in readings)


@pytest.mark.parametrize("raw", ["127000", "-128000", "-61000", "300000"])
def test_an_open_temperature_input_is_unknown(tmp_path: Path, raw: str) -> None:
    hwmon(tmp_path, **{**CPU, "temp1_input": raw})
    (one,) = Hwmon(tmp_path).read(0.0).readings
    assert (one.quality, one.value) == ("unknown", None)
    assert "no temperature" in one.why


def test_limits_that_were_never_set_are_no_limits(tmp_path: Path) -> None:
    hwmon(tmp_path, **CPU, temp1_max="0", temp1_crit="65261850", temp1_min="0")
    (one,) = Hwmon(tmp_path).read(0.0).readings
    assert (one.lo, one.hi, one.crit) == (None, None, None)


def test_sensors_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        hwmon(tmp_path, number, name="nvme", temp1_input=f"{30 + number}000")
    found = by_name(Hwmon(tmp_path).read(0.0))
    values = {name: one.value for name, one in found.items()}
    assert values == {"nvme temp1": 30.0, "nvme temp1 #2": 32.0, "nvme temp1 #3": 40.0}


def test_a_label_cannot_carry_control_characters(tmp_path: Path) -> None:
    hwmon(tmp_path, **{**CPU, "temp1_label": "a\x1b[31mb\nc"})
    (one,) = Hwmon(tmp_path).read(0.0).readings
    assert one.name.isprintable()


def test_a_chip_that_is_plugged_in_and_out_comes_and_goes(tmp_path: Path) -> None:
    reader = Hwmon(tmp_path)
    assert reader.read(0.0).readings == ()
    folder = hwmon(tmp_path, **CPU)
    assert [one.value for one in reader.read(1.0).readings] == [61.0]
    for file in folder.iterdir():
        file.unlink()
    (one,) = (one for one in reader.read(2.0).readings or (None,))
    assert one is None or (one.quality, one.value) == ("unknown", None)
    folder.rmdir()
    assert reader.read(3.0).readings == ()


def test_a_file_that_vanishes_is_unknown_and_says_so(tmp_path: Path) -> None:
    folder = hwmon(tmp_path, **CPU)
    reader = Hwmon(tmp_path)
    reader.read(0.0)
    (folder / "temp1_input").unlink()
    (one,) = reader.read(1.0).readings
    assert (one.quality, one.value, one.why) == ("unknown", None, "it is gone")


def test_the_meter_of_the_whole_machine_goes_before_a_gpu(tmp_path: Path) -> None:
    hwmon(tmp_path, 0, name="amdgpu", power1_average="30000000", power1_input="31000000")
    hwmon(tmp_path, 1, name="bq25700", power1_input="9000000")
    assert [draw.watts for draw in Hwmon(tmp_path).read(0.0).draws] == [30.0]
    hwmon(tmp_path, 2, name="power_meter", power1_average="88000000")
    assert [draw.watts for draw in Hwmon(tmp_path).read(0.0).draws] == [88.0]


# -- RAPL ----------------------------------------------------------------------------------------


def test_only_packages_are_counted(tmp_path: Path) -> None:
    rapl(tmp_path, "intel-rapl:0", "package-0", 1000)
    rapl(tmp_path, "intel-rapl:0:0", "core", 700)
    rapl(tmp_path, "intel-rapl:0:1", "dram", 200)
    rapl(tmp_path, "intel-rapl:1", "package-1", 2000)
    rapl(tmp_path, "intel-rapl:2", "psys", 9000)
    rapl(tmp_path, "intel-rapl-mmio:0", "package-0", 1001)
    counters = Rapl(tmp_path).read(0.0).counters
    assert [(one.name, one.uj) for one in counters] == [("package-0", 1000), ("package-1", 2000)]


def test_power_is_the_growth_of_the_counter_even_when_it_wraps(tmp_path: Path) -> None:
    reader = Rapl(tmp_path)
    rapl(tmp_path, "intel-rapl:0", "package-0", 900_000, wraps=1_000_000)
    (first,) = reader.read(10.0).readings
    assert (first.quality, first.value) == ("unknown", None)
    rapl(tmp_path, "intel-rapl:0", "package-0", 400_000, wraps=1_000_000)
    (second,) = reader.read(10.5).readings
    assert (second.quality, second.value, second.unit) == ("ok", 1.0, "W")


def test_a_counter_that_may_not_be_read_is_unknown_and_says_what_to_do(tmp_path: Path) -> None:
    rapl(tmp_path, "intel-rapl:0", "package-0", 1)
    found = Rapl(tmp_path, denied).read(0.0)
    (one,) = found.readings
    assert (one.quality, one.value, one.why) == ("unknown", None, DENIED)
    assert found.counters == ()


def test_a_package_that_goes_and_comes_back_is_not_reckoned_over_the_gap(tmp_path: Path) -> None:
    reader = Rapl(tmp_path)
    folder = rapl(tmp_path, "intel-rapl:0", "package-0", 1000)
    reader.read(0.0)
    (folder / "energy_uj").unlink()
    assert reader.read(1.0).readings[0].value is None
    rapl(tmp_path, "intel-rapl:0", "package-0", 5000)
    assert reader.read(2.0).readings[0].value is None


@pytest.mark.parametrize(
    ("uj", "at", "gain"),
    [(700, 2.0, 200), (100, 2.0, 600), (500, 1.0, None), (700, 99.0, None), (10**15, 2.0, None)],
)
def test_growth_is_told_only_where_it_can_be(uj: int, at: float, gain: int | None) -> None:
    before = EnergyCounter(name="p", source="RAPL", uj=500, wraps_uj=1000, at=1.0)
    assert (
        grown(before, EnergyCounter(name="p", source="RAPL", uj=uj, wraps_uj=1000, at=at)) == gain
    )


def test_a_counter_that_does_not_wrap_and_falls_was_reset() -> None:
    before = EnergyCounter(name="g", source="NVML", uj=500, at=1.0)
    assert grown(before, EnergyCounter(name="g", source="NVML", uj=100, at=2.0)) is None
    assert grown(None, before) is None


# -- NVML ----------------------------------------------------------------------------------------


class FakeDriver:
    """Two GPUs; `failing` are the functions that refuse."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.starts = 0

    def _told(self, what: str, value: int) -> int:
        if what in self.failing:
            raise NvmlError(f"{what}: not supported")
        return value

    def start(self) -> int:
        self.starts += 1
        return self._told("start", 2)

    def name(self, gpu: int) -> str:
        return "Test"

    def milliwatts(self, gpu: int) -> int:
        return self._told("power", 70_000 + gpu)

    def millijoules(self, gpu: int) -> int:
        return self._told("energy", 5_000_000)

    def celsius(self, gpu: int) -> int:
        return self._told("temperature", 45)

    def slowdown_celsius(self, gpu: int) -> int:
        return self._told("limit", 93)


def test_gpus_tell_power_energy_and_temperature() -> None:
    found = Nvml(FakeDriver()).read(3.0)
    told = [(one.name, one.value, one.unit, one.source, one.hi) for one in found.readings[:2]]
    assert told == [
        ("gpu0 Test power", 70.0, "W", "NVML", None),
        ("gpu0 Test temperature", 45.0, "C", "NVML", 93.0),
    ]
    assert [one.uj for one in found.counters] == [5_000_000_000] * 2
    assert found.draws == ()


def test_a_gpu_without_an_energy_counter_gives_its_power() -> None:
    found = Nvml(FakeDriver("energy", "limit")).read(3.0)
    assert [one.watts for one in found.draws] == [70.0, 70.001]
    assert found.counters == ()
    assert found.readings[1].hi is None


def test_what_a_gpu_refuses_is_unknown_and_the_rest_stays() -> None:
    found = Nvml(FakeDriver("power", "energy")).read(3.0)
    assert [(one.quality, one.value) for one in found.readings[:2]] == [
        ("unknown", None),
        ("ok", 45.0),
    ]
    assert found.readings[0].why == "power: not supported"
    assert found.draws == found.counters == ()


def test_a_lost_driver_is_tried_again_but_not_at_every_look() -> None:
    driver = FakeDriver("start")
    nvml = Nvml(driver)
    assert [nvml.read(now) for now in (0.0, 1.0, 29.0)] == [Found()] * 3
    driver.failing.clear()
    assert nvml.read(31.0).readings
    driver.failing |= {"power", "energy", "temperature"}
    assert {one.quality for one in nvml.read(32.0).readings} == {"unknown"}
    driver.failing.clear()
    assert nvml.read(33.0) == Found()
    assert nvml.read(63.0).counters
    assert driver.starts == 3


def test_a_machine_without_the_library_has_no_gpus() -> None:
    assert Nvml(Library("libno-such-library.so.1")).read(0.0) == Found()


class FakeLibrary:
    """The driver's functions as ctypes calls them: status back, numbers by reference."""

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, gpu: Any, handle: Any) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:  # noqa: N802
        text.value = b"Test \xff"
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, into: Any) -> int:  # noqa: N802
        into._obj.value = 70_500
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, into: Any) -> int:  # noqa: N802
        into._obj.value = 2**40
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, kind: Any, into: Any) -> int:  # noqa: N802
        return 3

    class _Words:
        def __call__(self, status: int) -> bytes:
            return b"Not Supported"

    nvmlErrorString = _Words()  # noqa: N815


def test_the_drivers_library_is_called_as_it_wants_to_be() -> None:
    library = Library()
    library._lib = FakeLibrary()
    found = Nvml(library).read(1.0)
    power, heat = found.readings
    assert (power.name, power.value) == ("gpu0 Test \ufffd power", 70.5)
    assert (heat.quality, heat.value, heat.why) == ("unknown", None, "not supported")
    assert heat.hi is None, "a driver without that function has no limit"
    assert [one.uj for one in found.counters] == [2**40 * 1000]
