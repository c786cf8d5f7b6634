"""The board: one loop that samples, listens, watches the host, and keeps the fans right.

It needs nothing from the host to keep the box safe. `hal` is the hardware, hal_rp2040.py or the
simulation hal_unix.py; all times come from it.
"""

import struct

from firmware_bridge import messages as m
from firmware_bridge.firmware import watchdog as wd
from firmware_bridge.firmware.button import Button
from firmware_bridge.firmware.conversation import Conversation
from firmware_bridge.firmware.eventlog import EventLog
from firmware_bridge.firmware.line import MAX_TELEMETRY, Line
from firmware_bridge.firmware.outputs import FULL, Outputs
from firmware_bridge.firmware.sampler import PERIOD_US, Sampler
from firmware_bridge.firmware.schema import FAN0, LED, OUTPUTS, VERSION
from firmware_bridge.firmware.update import Updater
from firmware_bridge.wire import URGENT

try:  # noqa: SIM105 - MicroPython does not know contextlib
    from typing import Any
except ImportError:  # nor typing
    pass

SLOW_US = 10_000
STATS_MS = 1000
SILENT_MS = 1000
"""The host is silent: amber light."""
TOO_HOT = 9500
COOL_AGAIN = 8500
"""Hundredths of °C."""
FAN_DUTY = 300
FAN_SPEED = 300
FAN_GRACE_MS = 5000
"""A fan at 30 % or more that turns slower than this for so long has failed."""
GREEN = 1
RED = 2
AMBER = GREEN | RED
SELF_CHECK_MS = 2000
"""A firmware on trial watches itself for so long before it lets itself be confirmed."""
GOODBYE_MS = 200
"""The answer to the command leaves before the board boots anew."""


class Board:
    period_us = PERIOD_US

    def __init__(self, hal, slot: str = "", how: int = 0) -> None:  # type: ignore[no-untyped-def]
        """`slot` and `how` are what the loader chose."""
        self.hal = hal
        self.boot_id = hal.random32() or 1
        self.line = Line(hal)
        self.outputs = Outputs()
        try:
            self._restore(hal.load())
        except (AttributeError, KeyError, TypeError, ValueError):
            self._restore({})  # what the flash holds is not ours, or damaged
        self.conversation = Conversation(self)
        self.sampler = Sampler(hal.now_us())
        self._button = Button()
        self._slow_us = 0
        self._stats_ms = 0
        self._longest_us = 0
        self._hot = False
        self._turning_ms = [0, 0]
        self._reset_ms = -1
        self.updater = Updater(hal.flash, slot, how)
        self.happen(m.EV_BOOT, hal.reset_cause)
        if self.updater.reverted:
            self.happen(m.EV_REVERTED, self.updater.failed_version)
        self.conversation.announce()

    def _restore(self, saved: dict[str, Any]) -> None:
        self.power_cycles = int(saved.get("power_cycles", 0))
        self.events = EventLog(saved.get("events", []), int(saved.get("number", 0)))
        self.watchdog = wd.Watchdog(self.hal.random32(), self.hal.power_off_ms)
        if "watchdog" in saved:
            self.watchdog.load([int(value) for value in saved["watchdog"]], self._now())

    def turn(self) -> None:
        """One pass of the main loop. It never waits longer than to the next sample."""
        began = self.hal.now_us()
        self._sample(began)
        for frame in self.line.receive():
            self.conversation.hear(frame, self._now())
        if began >= self._slow_us:
            self._slow_us = began + SLOW_US
            self._watch(self._now())
        self.updater.step()
        self.line.flush()
        self.hal.feed()
        ended = self.hal.now_us()
        self._longest_us = max(self._longest_us, ended - began)
        self.hal.wait(self.sampler.next_us - ended)

    def happen(self, kind: int, argument: int) -> None:
        self.events.add(kind, argument, self.hal.now_us())
        self.save()

    def save(self) -> None:
        """What must outlive a power cut of the board itself."""
        kept = {
            "power_cycles": self.power_cycles,
            "events": self.events.dump(),
            "number": self.events.number,
            "watchdog": self.watchdog.dump(),
        }
        self.hal.save(kept)

    def confirm(self, version: bytes, now: int) -> int:
        """The host is content with the firmware on trial, of this version. Is the board?"""
        if version != bytes(VERSION):
            return m.BAD_ARGUMENT
        if self.updater.trial and not self._sound(now):
            return m.NOT_YET
        was = self.updater.trial
        code = self.updater.confirm()
        if was and not code:
            self.happen(m.EV_UPDATED, VERSION[0] << 16 | VERSION[1] << 8 | VERSION[2])
        return code

    def boot_soon(self, now: int) -> None:
        self._reset_ms = now + GOODBYE_MS

    def trial_left_ms(self, now: int) -> int:
        return max(0, self.hal.trial_ms - now) if self.updater.trial else 0

    def _sound(self, now: int) -> bool:
        """It was greeted, and has sampled as it should for a while."""
        sampled = self.sampler.index - self.sampler.skipped
        return self.conversation.greeted and now >= SELF_CHECK_MS and 2 * sampled > now

    def _now(self) -> int:
        now: int = self.hal.now_us() // 1000
        return now

    def _sample(self, now_us: int) -> None:
        for _ in range(self.sampler.due(now_us)):
            payload = self.sampler.take(self.hal.sample, self.hal.reference)
            if payload is not None and self.conversation.streaming:
                self.line.send(0, m.TELEMETRY, 0, payload, MAX_TELEMETRY)

    def _watch(self, now: int) -> None:
        temperature = self.hal.temperature()
        self._heed_reset(now)
        self._heed_watchdog(now)
        self._heed_temperature(temperature)
        self._heed_button(now)
        for output in self.outputs.expire(now):
            self.happen(m.EV_DEADMAN, output)
        self._drive(temperature, now)
        for event in self.events.to_send(now):
            self.line.send(URGENT, m.EVENT, 0, event)
        if now >= self._stats_ms:
            self._stats_ms = now + STATS_MS
            self._tell_stats()

    def _heed_reset(self, now: int) -> None:
        """After a command to; and a trial that nobody confirmed is over."""
        asked = 0 <= self._reset_ms <= now
        if asked or (self.updater.trial and not self.trial_left_ms(now)):
            self.hal.reset()

    def _heed_watchdog(self, now: int) -> None:
        todo = self.watchdog.poll(now)
        if todo == wd.WARN:
            if self.watchdog.flags & m.PULSE_BUTTON:
                self.hal.pulse_power_button()
            self.happen(m.EV_PRETIMEOUT, self.watchdog.left_ms(now))
        elif todo == wd.CUT_POWER:
            self.power_cycles += 1
            self.hal.relay(False)
            self.happen(m.EV_CYCLE, self.watchdog.cycles)
        elif todo == wd.RESTORE_POWER:
            self.hal.relay(True)
        elif todo == wd.LATCH:
            self.happen(m.EV_LATCHED, self.watchdog.cycles)

    def _heed_temperature(self, temperature: int | None) -> None:
        if temperature is None:
            return
        if temperature >= TOO_HOT and not self._hot:
            self._hot = True
            self.happen(m.EV_OVERTEMPERATURE, temperature)
        elif temperature < COOL_AGAIN:
            self._hot = False

    def _heed_button(self, now: int) -> None:
        kind = self._button.poll(self.hal.button(), now)
        if kind == m.BUTTON and self.watchdog.state == m.LATCHED:
            self.watchdog.unlatch()
        if kind:
            self.happen(kind, 0)

    def _drive(self, temperature: int | None, now: int) -> None:
        latched = self.watchdog.state == m.LATCHED
        full = self._hot or latched
        for output in range(len(OUTPUTS)):
            value = self.outputs.value(output, temperature, full)
            if output == LED:
                value = self._light(value, latched, now)
            self.hal.drive(output, value)
        for fan in (0, 1):
            duty = FULL if full else self.outputs.value(FAN0 + fan, temperature, full)
            self._heed_fan(fan, duty, now)

    def _heed_fan(self, fan: int, duty: int, now: int) -> None:
        speed = self.hal.fan_speed(fan)
        if speed is None or duty < FAN_DUTY or speed >= FAN_SPEED:
            self._turning_ms[fan] = now
        elif self._turning_ms[fan] >= 0 and now - self._turning_ms[fan] > FAN_GRACE_MS:
            self._turning_ms[fan] = -1  # told once, until it turns again
            self.happen(m.EV_FAN, fan)

    def _light(self, asked: int, latched: bool, now: int) -> int:
        if self._hot or latched:
            return RED
        heard = self.conversation.heard_ms
        if heard is None or now - heard > SILENT_MS or self.watchdog.state == m.PRETIMEOUT:
            return AMBER
        return asked or GREEN

    def _tell_stats(self) -> None:
        stats = struct.pack(
            m.STATS_TELL,
            self.boot_id,
            self.line.accepted,
            self.line.refused,
            self.line.unsent,
            self.sampler.late,
            self.sampler.skipped,
            self._longest_us,
        )
        self._longest_us = 0
        self.line.send(0, m.STATS, 0, stats)
