"""The machine's own sensors while it serves: hwmon, RAPL and NVML, read once or twice a second.

Reading can block (a driver may wait for a chip, NVML for a GPU that hangs), so a thread of its own
does it and hands what it found to the event loop, which owns everything else here. The thread is
a daemon: one that never comes back holds up no stop, and its readings become `stale`.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from appliance.observe.energy import EnergyMeter
from appliance.observe.hwmon import SOURCE as HWMON
from appliance.observe.hwmon import Hwmon
from appliance.observe.nvml import Nvml
from appliance.observe.rapl import Rapl
from appliance.observe.readings import BOARD, MOST, Found, Reader, Reading, lost

log = logging.getLogger(__name__)

STALE_POLLS, STALE_S = 3, 3.0
"""A reading is stale when it is older than both."""
GONE = "it was there before, and is gone"

Load = Callable[[], tuple[int, bool]]
"""Device time ever told (ns), and whether requests run now."""


def readers_of_machine() -> tuple[Reader, ...]:
    """All three sources."""
    return Hwmon(), Rapl(), Nvml()


class HostSensors:
    """Belongs to the event loop, but for `look`."""

    def __init__(self, readers: Sequence[Reader] = (), *, poll_s: float = 1.0) -> None:
        """Without readers there are no sensors, and nothing is measured."""
        self.meter = EnergyMeter()
        self._readers = list(readers)
        self._poll_s = poll_s
        self._known: dict[tuple[str, str], Reading] = {}
        self._stop = threading.Event()

    # -- sampling --------------------------------------------------------------------------------

    def start(self, load: Load) -> None:
        """Looks from now on, from a running event loop."""
        loop = asyncio.get_running_loop()
        if self._readers:
            run = threading.Thread(target=self._run, args=(loop, load), name="sensors", daemon=True)
            run.start()

    def stop(self) -> None:
        """No more looks; one that is under way may still end, and is not heard."""
        self._stop.set()

    def _run(self, loop: asyncio.AbstractEventLoop, load: Load) -> None:
        """The thread: looks at fixed times; a late one is not made up for."""
        due = time.monotonic()
        while not self._stop.is_set():
            at = time.monotonic()
            found = self.look(at)
            try:
                loop.call_soon_threadsafe(self._hear, found, load, at)
            except RuntimeError:
                return  # the loop is closed
            now = time.monotonic()
            due = max(due + self._poll_s, now)
            self._stop.wait(due - now)

    def look(self, now: float) -> Found:
        """One look at everything. A reader that fails is not asked again: it raises nothing, so
        that is a bug of ours, and it must not end the others."""
        found = Found()
        for reader in list(self._readers):
            try:
                found += reader.read(now)
            except Exception:
                log.exception("%s is not read any more", type(reader).__name__)
                self._readers.remove(reader)
        return _counted_once(found)

    def _hear(self, found: Found, load: Load, at: float) -> None:
        if not self._stop.is_set():
            self.take(found, load, at)

    def take(self, found: Found, load: Load, now: float) -> None:
        """What a look at `now` came to."""
        seen = {(one.source, one.name): one for one in found.readings}
        gone = {
            key: one if one.why == GONE else lost(one, now, GONE)
            for key, one in self._known.items()
            if key not in seen
        }
        self._known = {**seen, **dict(list(gone.items())[:MOST])}
        device_ns, running = load()
        self.meter.tick(found, device_ns=device_ns, running=running, now=now)

    # -- what is known ---------------------------------------------------------------------------

    def readings(self, now: float) -> tuple[Reading, ...]:
        """All sensors that ever were, as far as they are still current."""
        old = now - max(STALE_S, STALE_POLLS * self._poll_s)
        return tuple(
            replace(one, quality="stale") if one.quality == "ok" and one.at < old else one
            for one in self._known.values()
        )

    def power_w(self, now: float) -> float | None:
        """What all that is measured for energy draws now."""
        current = any(one.quality == "ok" for one in self.readings(now))
        return self.meter.watts if current else None

    def temp_c(self, now: float) -> float | None:
        """Of the hottest of what computes; None where that is not known."""
        chips = (_current(one) for one in self.readings(now) if one.chip)
        return max((value for value in chips if value is not None), default=None)

    def too_hot(self, now: float) -> tuple[tuple[str, float, float], ...]:
        """Name, temperature and limit of each sensor that is at its own critical limit."""
        return tuple(
            (one.name, value, one.crit)
            for one in self.readings(now)
            if one.crit is not None and (value := _current(one)) is not None and value >= one.crit
        )

    def energy_from(self) -> str:
        """In words, for the list of what the box has: where energy comes from, or why not."""
        if self.meter.source:
            return f"energy from {self.meter.source}"
        why = next((one.why for one in self._known.values() if one.unit == "W" and one.why), "")
        return f"energy not measured: {why or 'no sensor for it'}"


def _current(reading: Reading) -> float | None:
    return reading.value if reading.quality == "ok" else None


def _counted_once(found: Found) -> Found:
    """The board measures the whole box at its supply, RAPL and NVML parts of it, and hwmon's power
    may cover what those count: each stands in only where none before it is."""
    whole = tuple(one for one in found.counters if one.source == BOARD)
    if whole:
        return replace(found, counters=whole, draws=())
    others = tuple(draw for draw in found.draws if draw.source != HWMON)
    return replace(found, draws=others) if found.counters or others else found
