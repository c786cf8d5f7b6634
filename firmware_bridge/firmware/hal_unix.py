"""The hardware, simulated under MicroPython's unix port: the line is stdin and stdout, which must
be a raw terminal with O_NONBLOCK set (firmware_bridge/simulation.py makes one).

STEELYARD_SIMULATED_TEMPERATURE   the CPU's temperature over time: `0:45,5:85` (seconds, °C)
STEELYARD_SIMULATED_BUTTON        when the button is pressed and for how long: `1.0:0.1` (seconds)
STEELYARD_SIMULATED_BROKEN        channels whose sensors cannot be read: `0,7`
STEELYARD_SIMULATED_REFERENCE     file of what the reference channel reads and what is true
STEELYARD_SIMULATED_STATE         file that stands for the flash; without it a reset forgets all
STEELYARD_SIMULATED_SPEED         the board's seconds per second of the host
STEELYARD_SIMULATED_OFF_MS        how long a power cycle keeps the host off
STEELYARD_SIMULATED_FED           file that is touched while the main loop turns: the simulation
                                  resets a board that stops doing it, as its own watchdog would
STEELYARD_SIMULATED_RESET         why it boots: power, watchdog or other
STEELYARD_SIMULATED_TRIAL_MS      how long new firmware may take to be confirmed
STEELYARD_SIMULATED_CUT           the power fails just before the flash changes for the nth time
"""

import json
import os
import select
import sys
import time

from firmware_bridge import messages as m
from firmware_bridge.firmware.plant import Plant, parse_script
from firmware_bridge.firmware.schema import CPU_TEMPERATURE, FAN0, FAN1, REFERENCE
from firmware_bridge.firmware.slots import NOWHERE, RESET, Flash
from firmware_bridge.firmware.watchdog import POWER_OFF_MS

CHUNK = 512
FED_EVERY_US = 100_000
TRIAL_MS = 60_000
CAUSES = {"power": m.RESET_POWER, "watchdog": m.RESET_WATCHDOG, "other": m.RESET_OTHER}


def whole(path: str | None) -> bytes:
    if not path:
        return b""
    with open(path, "rb") as file:
        return file.read()


class CutFlash(Flash):
    """The power fails when it has changed so many times."""

    def __init__(self, root: str, changes: int) -> None:
        super().__init__(root)
        self.left = changes

    def step(self) -> None:
        self.left -= 1
        if not self.left:
            os.system("kill -9 $PPID")


class Hal:
    uid = b"simulate"

    def __init__(self, root: str = "") -> None:
        """`root`: the folder that is the flash; empty: there are no slots."""
        self.alive = True
        cut = int(os.getenv("STEELYARD_SIMULATED_CUT") or 0)
        self.flash = CutFlash(root, cut) if cut else Flash(root or NOWHERE)
        self.trial_ms = int(os.getenv("STEELYARD_SIMULATED_TRIAL_MS") or TRIAL_MS)
        self._fed = os.getenv("STEELYARD_SIMULATED_FED")
        self._fed_us = 0
        self.power_off_ms = int(os.getenv("STEELYARD_SIMULATED_OFF_MS") or POWER_OFF_MS)
        self._speed = float(os.getenv("STEELYARD_SIMULATED_SPEED") or 1)
        self._state = os.getenv("STEELYARD_SIMULATED_STATE") or (
            root + "/board.json" if root else ""
        )
        self._presses = parse_script(os.getenv("STEELYARD_SIMULATED_BUTTON") or "-1:0")
        script = parse_script(os.getenv("STEELYARD_SIMULATED_TEMPERATURE") or "0:45")
        broken = os.getenv("STEELYARD_SIMULATED_BROKEN") or ""
        self._broken = [int(channel) for channel in broken.split(",") if channel]
        told = whole(os.getenv("STEELYARD_SIMULATED_REFERENCE"))
        self._plant = Plant(script, self.random32(), self._broken, told)
        self._last = time.ticks_us()
        self._elapsed = 0
        self._poll = select.poll()
        self._poll.register(sys.stdin, select.POLLIN)
        known = m.RESET_OTHER if self.load() else m.RESET_POWER
        self.reset_cause = CAUSES.get(os.getenv("STEELYARD_SIMULATED_RESET"), known)
        self._plant.update(0)

    def now_us(self) -> int:
        ticks = time.ticks_us()
        self._elapsed += time.ticks_diff(ticks, self._last)
        self._last = ticks
        return self._elapsed if self._speed == 1 else int(self._elapsed * self._speed)

    def wait(self, us: int) -> None:
        if us > 0:
            time.sleep_us(min(1000, int(us / self._speed)))

    def read(self) -> bytes:
        if not self._poll.poll(0):
            return b""
        try:
            data = sys.stdin.buffer.read(CHUNK)
        except OSError:
            data = b""
        self.alive = data != b""
        return data or b""

    def write(self, data: bytes) -> int:
        try:
            return sys.stdout.buffer.write(data) or 0
        except OSError:
            return 0

    def sample(self, rows, offset: int) -> None:
        self._plant.sample(rows, offset)

    def reference(self) -> tuple[int, int] | None:
        truth = self._plant.truth
        return None if truth == m.UNREAD else (REFERENCE, truth)

    def temperature(self) -> int | None:
        seconds = self.now_us() / 1e6
        self._plant.down = self.button()
        self._plant.update(seconds)
        return None if CPU_TEMPERATURE in self._broken else self._plant.temperature

    def fan_speed(self, fan: int) -> int | None:
        return int(self._plant.speed[fan])

    def drive(self, output: int, value: int) -> None:
        if output in (FAN0, FAN1):
            self._plant.duty[output] = value

    def relay(self, on: bool) -> None:
        self._plant.relay = on

    def pulse_power_button(self) -> None:
        pass

    def button(self) -> bool:
        seconds = self.now_us() / 1e6
        return any(begin <= seconds < begin + length for begin, length in self._presses)

    def feed(self) -> None:
        """The board's own watchdog, which is the simulation."""
        if self._fed and self._elapsed >= self._fed_us:
            self._fed_us = self._elapsed + FED_EVERY_US
            open(self._fed, "w").close()

    def reset(self) -> None:
        sys.exit(RESET)

    def random32(self) -> int:
        return int.from_bytes(os.urandom(4), "little")

    def load(self) -> dict:
        try:
            with open(self._state) as file:
                return json.load(file)
        except (OSError, ValueError, TypeError):
            return {}

    def save(self, kept: dict) -> None:
        if not self._state:
            return
        try:
            with open(self._state + ".new", "w") as file:
                json.dump(kept, file)
            os.rename(self._state + ".new", self._state)
        except OSError:
            return  # as a worn-out flash
