"""Linux hwmon: temperatures, voltages, currents, power and fans, as the kernel's drivers tell them.

Rules
1. Names are `chip label`; two of the same are told apart by `#2`.
2. Limits are the chip's own (`*_min`, `*_max`, `*_crit`). Boards leave many unset: a limit of 0, or
   one that is not above the lower one, is none.
3. A temperature that no living machine has is an open input: `unknown`.
4. Only a meter of the whole machine (`power_meter`) or of an AMD GPU counts as power of computing.
   What other power sensors cover cannot be told: they are shown, and nothing is reckoned on them.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from appliance.observe.readings import MOST, Draw, Found, Reading
from appliance.observe.sysfiles import Read, listed, number, read_file, reason, word

SYS = Path("/sys")
SOURCE = "hwmon"
COLDEST_C, HOTTEST_C = -40.0, 125.0
"""Open inputs read 127, -128 or -61; silicon is dead beyond 125."""
COMPUTING = ("coretemp", "k10temp", "zenpower", "amdgpu", "cpu", "gpu", "soc_thermal", "bigcore")
"""How the names of chips begin whose temperature is that of what computes."""
WHOLE, GPU = "power_meter", "amdgpu"
_RENEW = 60
"""Looks after which labels and limits are read again: a chip may have been swapped."""


@dataclass(frozen=True, slots=True)
class _Kind:
    prefix: str
    input: str
    unit: str
    scale: float


_KINDS = (
    _Kind("temp", "input", "C", 1e-3),
    _Kind("in", "input", "V", 1e-3),
    _Kind("curr", "input", "A", 1e-3),
    _Kind("power", "average", "W", 1e-6),
    _Kind("power", "input", "W", 1e-6),
    _Kind("fan", "input", "rpm", 1.0),
)


@dataclass(frozen=True, slots=True)
class _Sensor:
    """What does not change of a sensor."""

    path: Path
    chip: str
    name: str
    kind: _Kind
    lo: float | None
    hi: float | None
    crit: float | None


class Hwmon:
    """Reads all chips. `root` is /sys, or a test's."""

    def __init__(self, root: Path = SYS, read: Read = read_file) -> None:
        self._folder = root / "class" / "hwmon"
        self._read = read
        self._chips: tuple[tuple[Path, str], ...] = ()
        self._sensors: list[_Sensor] = []
        self._looks = 0

    def read(self, now: float) -> Found:
        chips = tuple((p, word(p / "name", self._read, p.name)) for p in listed(self._folder, "*"))
        if chips != self._chips or self._looks % _RENEW == 0:
            self._chips, self._sensors = chips, self._find(chips)
        self._looks += 1
        readings = tuple(self._reading(sensor, now) for sensor in self._sensors)
        return Found(readings=readings, draws=_draws(self._sensors, readings))

    def _find(self, chips: tuple[tuple[Path, str], ...]) -> list[_Sensor]:
        found: list[_Sensor] = []
        used: Counter[str] = Counter()
        for folder, chip in chips:
            for kind in _KINDS:
                for path in listed(folder, f"{kind.prefix}[0-9]*_{kind.input}"):
                    stem = path.name.removesuffix(f"_{kind.input}")
                    if kind.input == "input" and (folder / f"{stem}_average").exists():
                        continue  # the same power, told twice
                    name = f"{chip} {word(folder / f'{stem}_label', self._read, stem)}"
                    used[name] += 1
                    name = name if used[name] == 1 else f"{name} #{used[name]}"
                    found.append(self._sensor(folder, stem, chip, name, kind, path))
        return found[:MOST]

    def _sensor(
        self, folder: Path, stem: str, chip: str, name: str, kind: _Kind, path: Path
    ) -> _Sensor:
        def limit(ending: str) -> float | None:
            raw = number(folder / f"{stem}_{ending}", self._read)
            return raw * kind.scale if raw else None

        lo, hi, crit = limit("min"), limit("max"), limit("crit")
        if kind.unit == "C":
            hi, crit = (x if x is not None and 0 < x <= 2 * HOTTEST_C else None for x in (hi, crit))
        if hi is None:
            hi = crit
        if lo is not None and hi is not None and lo >= hi:
            lo = None
        return _Sensor(path, chip, name, kind, lo, hi, crit if kind.unit == "C" else None)

    def _reading(self, sensor: _Sensor, now: float) -> Reading:
        value, why = self._value(sensor)
        return Reading(
            name=sensor.name,
            unit=sensor.kind.unit,
            source=SOURCE,
            quality="unknown" if value is None else "ok",
            at=now,
            value=value,
            lo=sensor.lo,
            hi=sensor.hi,
            crit=sensor.crit,
            chip=sensor.kind.unit == "C" and sensor.chip.startswith(COMPUTING),
            why=why,
        )

    def _value(self, sensor: _Sensor) -> tuple[float | None, str]:
        try:
            value = round(int(self._read(sensor.path)) * sensor.kind.scale, 6)
        except (OSError, ValueError) as error:
            return None, reason(error)
        if sensor.kind.unit == "C" and not COLDEST_C < value < HOTTEST_C:
            return None, f"{value:g} C is no temperature: most likely nothing is connected to it"
        return value, ""


def _draws(sensors: list[_Sensor], readings: tuple[Reading, ...]) -> tuple[Draw, ...]:
    """The whole machine's meter; without one the GPUs."""
    found = [
        (sensor.chip, Draw(name=one.name, source=SOURCE, watts=one.value, at=one.at))
        for sensor, one in zip(sensors, readings, strict=True)
        if one.unit == "W" and one.value is not None and sensor.chip in (WHOLE, GPU)
    ]
    whole = tuple(draw for chip, draw in found if chip == WHOLE)
    return whole or tuple(draw for _, draw in found)
