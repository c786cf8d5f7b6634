"""The hardware: a Raspberry Pi Pico. The wiring is in docs/board.md. NOT YET RUN ON HARDWARE.

Analog channels come through a CD74HC4067 multiplexer into one ADC pin; fans have PWM and a
tachometer; a normally closed relay cuts the host's supply. The line is the USB serial port.
The flash is littlefs, where a file that is renamed replaces another whole; slots.py needs no more.
"""

import json
import os
import select
import sys
import time

import machine
import micropython

from firmware_bridge import messages as m
from firmware_bridge.firmware import schema
from firmware_bridge.firmware.slots import Flash
from firmware_bridge.firmware.watchdog import POWER_OFF_MS

STATE = "board.json"
CHUNK = 256
PACKET = 64
OWN_WATCHDOG_MS = 1000
PULSE_MS = 200
FAN_HZ = 25_000
VREF = 3.3
REFERENCE_VOLTS = 1.0
# Multiplexer input → channel, and what raw steps one volt at the ADC means there.
INPUTS = (
    (0, 0, None),
    (1, 1, None),
    (2, 2, None),
    (3, 4, 4000.0),
    (4, 5, 2000.0),
    (5, 6, 2000.0),
    (6, 7, 5000.0),
    (7, 8, 5000.0),
    (8, 13, 10_000.0),
)
BETA = 3950.0
COLD_K = 298.15
TABLE_SHIFT = 8
TRIAL_MS = 60_000
LOWEST = -3000
HIGHEST = 13_000
"""Hundredths of °C: a thermistor that is broken or missing reads one of the ends."""


def thermistor_table() -> list[int]:
    """Hundredths of °C by the upper byte of the ADC: 10 kΩ NTC to ground, 10 kΩ to 3.3 V."""
    import math

    table = []
    for step in range(256):
        ratio = (step + 0.5) / 256
        kelvin = 1 / (1 / COLD_K + math.log(ratio / (1 - ratio)) / BETA)
        table.append(max(-5000, min(15_000, int((kelvin - 273.15) * 100))))
    return table


class Hal:
    power_off_ms = POWER_OFF_MS
    trial_ms = TRIAL_MS

    def __init__(self, root: str = "") -> None:
        self.alive = True
        self.flash = Flash(root)
        self.uid = machine.unique_id()[:8]
        cause = machine.reset_cause()
        self.reset_cause = m.RESET_WATCHDOG if cause == machine.WDT_RESET else m.RESET_POWER
        micropython.kbd_intr(-1)  # a byte 3 in a frame is not Ctrl-C
        self._poll = select.poll()
        self._poll.register(sys.stdin, select.POLLIN)
        self._room = select.poll()
        self._room.register(sys.stdout, select.POLLOUT)
        self._adc = machine.ADC(26)
        self._select = [machine.Pin(pin, machine.Pin.OUT) for pin in (2, 3, 4, 5)]
        self._fans = [machine.PWM(machine.Pin(pin)) for pin in (6, 7)]
        for fan in self._fans:
            fan.freq(FAN_HZ)
        self._tachometers = [
            machine.Pin(pin, machine.Pin.IN, machine.Pin.PULL_UP) for pin in (8, 9)
        ]
        self._pulses = [0, 0]
        self._speeds = [0, 0]
        self._counted_us = 0
        for fan, pin in enumerate(self._tachometers):
            pin.irq(self._counter(fan), machine.Pin.IRQ_FALLING)
        self._relay = machine.Pin(10, machine.Pin.OUT, value=0)
        self._pulse = machine.Pin(11, machine.Pin.OUT, value=0)
        self._button = machine.Pin(12, machine.Pin.IN, machine.Pin.PULL_UP)
        self._aux = machine.Pin(13, machine.Pin.OUT, value=0)
        self._lights = [machine.Pin(pin, machine.Pin.OUT) for pin in (14, 15)]
        self._temperatures = thermistor_table()
        self._duty = [0, 0]
        self._cpu = None
        self._last = time.ticks_us()
        self._elapsed = 0
        self._timer = machine.Timer()
        self._own = machine.WDT(timeout=OWN_WATCHDOG_MS)

    def _counter(self, fan: int):
        def count(_pin) -> None:
            self._pulses[fan] += 1

        return count

    def now_us(self) -> int:
        ticks = time.ticks_us()
        self._elapsed += time.ticks_diff(ticks, self._last)
        self._last = ticks
        return self._elapsed

    def wait(self, us: int) -> None:
        if us > 0:
            time.sleep_us(min(1000, us))

    def read(self) -> bytes:
        data = b""
        while len(data) < CHUNK and self._poll.poll(0):
            data += sys.stdin.buffer.read(1)
        return data

    def write(self, data: bytes) -> int:
        """A packet at a time and only when there is room: a full USB buffer blocks for long."""
        if not self._room.poll(0):
            return 0
        return sys.stdout.buffer.write(data[:PACKET]) or 0

    def sample(self, rows, offset: int) -> None:
        for position, channel, steps in INPUTS:
            for bit, pin in enumerate(self._select):
                pin.value(position >> bit & 1)
            raw = self._adc.read_u16()
            if steps is None:
                celsius = self._temperatures[raw >> TABLE_SHIFT]
                rows[offset + channel] = celsius if LOWEST < celsius < HIGHEST else m.UNREAD
            else:
                rows[offset + channel] = min(32_767, int(raw * VREF * steps / 65_535))
        self._cpu = rows[offset]
        rows[offset + 3] = m.UNREAD  # no sensor is wired to it
        rows[offset + 9] = self._speeds[0]
        rows[offset + 10] = self._speeds[1]
        rows[offset + 11] = self._duty[0]
        rows[offset + 12] = self._duty[1]
        rows[offset + 14] = 1 - self._relay.value()
        rows[offset + 15] = 1 - self._button.value()

    def reference(self) -> tuple[int, int] | None:
        return schema.REFERENCE, int(REFERENCE_VOLTS * 10_000)

    def temperature(self) -> int | None:
        return None if self._cpu in (None, m.UNREAD) else self._cpu

    def fan_speed(self, fan: int) -> int | None:
        now = self.now_us()
        if now - self._counted_us >= 1_000_000:
            share = 30_000_000 / (now - self._counted_us)  # two pulses a turn
            self._speeds = [int(pulses * share) for pulses in self._pulses]
            self._pulses[0] = self._pulses[1] = 0
            self._counted_us = now
        return self._speeds[fan]

    def drive(self, output: int, value: int) -> None:
        if output in (schema.FAN0, schema.FAN1):
            self._duty[output] = value
            self._fans[output].duty_u16(value * 65_535 // 1000)
        elif output == schema.LED:
            self._lights[0].value(value & 1)  # green
            self._lights[1].value(value >> 1)  # red; both are amber
        else:
            self._aux.value(value)

    def relay(self, on: bool) -> None:
        """The relay is normally closed: a board without power leaves the host on."""
        self._relay.value(0 if on else 1)

    def pulse_power_button(self) -> None:
        self._pulse.value(1)
        self._timer.init(
            mode=machine.Timer.ONE_SHOT,
            period=PULSE_MS,
            callback=lambda _timer: self._pulse.value(0),
        )

    def button(self) -> bool:
        return not self._button.value()

    def feed(self) -> None:
        """The chip's own watchdog resets the board when the main loop stops for a second."""
        self._own.feed()

    def reset(self) -> None:
        """USB goes with it: the host sees the board being unplugged and plugged in."""
        machine.reset()

    def random32(self) -> int:
        return int.from_bytes(os.urandom(4), "little")

    def load(self) -> dict:
        try:
            with open(STATE) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def save(self, kept: dict) -> None:
        try:
            with open(STATE + ".new", "w") as file:
                json.dump(kept, file)
            os.rename(STATE + ".new", STATE)
        except OSError:
            return  # a full or worn-out flash must not stop the board
