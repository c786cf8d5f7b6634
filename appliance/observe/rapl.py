"""RAPL: what the processors' packages have drawn, counted by the processor itself.

Only packages (`intel-rapl:N` with a name that begins with `package`; AMD's have the same names):
cores and graphics are inside them, and the platform domain (`psys`) and the memory-mapped twins
(`intel-rapl-mmio`) count the same energy again. Memory, where it is a domain of its own, is not in.
Since 2020 only root may read the counters (CVE-2020-8694): else they are `unknown`.
"""

from pathlib import Path

from appliance.observe.hwmon import SYS
from appliance.observe.readings import MOST, EnergyCounter, Found, Reading, grown
from appliance.observe.sysfiles import Read, listed, number, read_file, reason, word

SOURCE = "RAPL"
DENIED = "only root may read it: let the daemon's group read energy_uj (docs/operating.md, Energy)"


class Rapl:
    """Reads all packages. Their power is the growth of their counters since the last look."""

    def __init__(self, root: Path = SYS, read: Read = read_file) -> None:
        self._folder = root / "class" / "powercap"
        self._read = read
        self._last: dict[str, EnergyCounter] = {}

    def read(self, now: float) -> Found:
        found, last = Found(), {}
        for name, path in self._packages():
            counter, why = self._counter(name, path, now)
            found += Found(readings=(self._power(name, counter, why, now),))
            if counter is not None:
                found += Found(counters=(counter,))
                last[name] = counter
        self._last = last
        return found

    def _packages(self) -> list[tuple[str, Path]]:
        named = [
            (word(path / "name", self._read, ""), path)
            for path in listed(self._folder, "intel-rapl:*")
            if path.name.count(":") == 1
        ]
        packages = {name: path for name, path in named if name.startswith("package")}
        return list(packages.items())[:MOST]

    def _counter(self, name: str, path: Path, now: float) -> tuple[EnergyCounter | None, str]:
        try:
            uj = int(self._read(path / "energy_uj"))
        except PermissionError:
            return None, DENIED
        except (OSError, ValueError) as error:
            return None, reason(error)
        wraps = number(path / "max_energy_range_uj", self._read) or 0
        if uj < 0 or wraps < 0:
            return None, reason(ValueError())
        return EnergyCounter(name=name, source=SOURCE, uj=uj, wraps_uj=wraps, at=now), ""

    def _power(self, name: str, counter: EnergyCounter | None, why: str, now: float) -> Reading:
        before = self._last.get(name)
        gain = grown(before, counter) if counter is not None else None
        watts = round(gain / 1e6 / (now - before.at), 3) if gain is not None and before else None
        return Reading(
            name=f"{name} power",
            unit="W",
            source=SOURCE,
            quality="unknown" if watts is None else "ok",
            at=now,
            value=watts,
            why=why or ("" if watts is not None else "needs two looks at its counter"),
        )
