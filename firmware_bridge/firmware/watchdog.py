"""Cuts the host's power when it stops proving progress. Times are milliseconds of the board.

Only the echo of the last challenge feeds it, so a buffer that is replayed by a stuck thread does
not. First comes the pre-timeout, then the power cycle, then a long wait for the host to boot. Three
cycles without ten minutes of health in between latch it: the host stays on until a human presses
the button. Armed with NOWAYOUT it can be neither stopped nor shortened.
"""

from firmware_bridge import messages as m

POWER_OFF_MS = 8_000
BOOT_MS = 300_000
MAX_CYCLES = 3
HEALTHY_MS = 600_000

NOTHING = 0
WARN = 1
CUT_POWER = 2
RESTORE_POWER = 3
LATCH = 4
"""What poll() wants done."""


class Watchdog:
    def __init__(self, challenge: int, power_off_ms: int = POWER_OFF_MS) -> None:
        self.state = m.OFF
        self.challenge = challenge
        self.cycles = 0
        """Power cycles since it was last healthy for long."""
        self.timeout_ms = 30_000
        self.pre_ms = 22_500
        self.action = m.ACTION_CYCLE
        self.flags = 0
        self._power_off_ms = power_off_ms
        self._since = 0
        """When it was last fed, or entered the state that runs out."""
        self._healthy_since = 0
        self._inhibited_until = 0
        self._may_inhibit = True

    def configure(self, timeout_ms: int, pre_ms: int, action: int, flags: int, now: int) -> int:
        """Arm it. An error code, 0 if it obeyed."""
        if not (m.MIN_TIMEOUT_MS <= timeout_ms <= m.MAX_TIMEOUT_MS and 0 < pre_ms < timeout_ms):
            return m.BAD_ARGUMENT
        if action > m.ACTION_CYCLE or flags > (m.NOWAYOUT | m.PULSE_BUTTON):
            return m.BAD_ARGUMENT
        if self.state in (m.CUT, m.LATCHED):
            return m.DENIED
        if self.flags & m.NOWAYOUT and not self._as_strict(timeout_ms, action, flags):
            return m.DENIED
        self.timeout_ms = timeout_ms
        self.pre_ms = pre_ms
        self.action = action
        self.flags = flags
        if self.state not in (m.ARMED, m.PRETIMEOUT):  # to configure is not to feed
            self._arm(now)
        return 0

    def stop(self, word: int, challenge: int) -> int:
        if word != m.STOP_WORD or challenge != self.challenge:
            return m.BAD_ARGUMENT
        if self.flags & m.NOWAYOUT or self.state in (m.CUT, m.LATCHED):
            return m.DENIED
        self.state = m.OFF
        return 0

    def feed(self, challenge: int, next_challenge: int, now: int) -> bool:
        """Whether it was the right challenge. A wrong one changes nothing."""
        if challenge != self.challenge:
            return False
        self.challenge = next_challenge
        self._may_inhibit = True
        if self.state == m.PRETIMEOUT:
            self._healthy_since = now
        if self.state in (m.ARMED, m.PRETIMEOUT):
            self.state = m.ARMED
            self._since = now
        return True

    def inhibit(self, seconds: int, now: int) -> int:
        """No action for so long, once between two feedings; 0 ends it, and the timeout begins. A
        shorter one does not shorten one that was granted before."""
        if seconds > m.MAX_INHIBIT_S:
            return m.BAD_ARGUMENT
        if not seconds:
            self._inhibited_until = min(self._inhibited_until, now)
            return 0
        if not self._may_inhibit:
            return m.DENIED
        self._may_inhibit = False
        self._inhibited_until = max(self._inhibited_until, now + seconds * 1000)
        return 0

    def greeted(self, now: int) -> None:
        """The host is up: the wait for its boot is over, and it has a whole timeout again."""
        if self.state == m.BOOTING:
            self._arm(now)

    def unlatch(self) -> None:
        if self.state == m.LATCHED:
            self.state = m.OFF
        self.cycles = 0

    def shown_state(self, now: int) -> int:
        inhibited = now < self._inhibited_until and self.state in (m.ARMED, m.PRETIMEOUT, m.BOOTING)
        return m.INHIBITED if inhibited else self.state

    def left_ms(self, now: int) -> int:
        """Until it acts, 0 if it will not."""
        if self.state in (m.OFF, m.LATCHED):
            return 0
        limit = {m.CUT: self._power_off_ms, m.BOOTING: BOOT_MS}.get(self.state, self.timeout_ms)
        return max(0, max(self._since, self._inhibited_until) + limit - now)

    def poll(self, now: int) -> int:
        """What is to be done now; call it often."""
        if self.state in (m.OFF, m.LATCHED):
            return NOTHING
        age = now - max(self._since, self._inhibited_until)
        if self.state == m.CUT:
            return self._restore(now) if now - self._since >= self._power_off_ms else NOTHING
        if self.state == m.BOOTING:
            return self._expire(now) if age >= BOOT_MS else NOTHING
        if age >= self.timeout_ms:
            return self._expire(now)
        if self.state == m.ARMED and age >= self.pre_ms:
            self.state = m.PRETIMEOUT
            return WARN
        if self.cycles and self.state == m.ARMED and now - self._healthy_since >= HEALTHY_MS:
            self.cycles = 0
        return NOTHING

    def dump(self) -> list[int]:
        """What must outlive a reset of the board."""
        armed = 0 if self.state in (m.OFF, m.LATCHED) else 1
        latched = 1 if self.state == m.LATCHED else 0
        config = [self.timeout_ms, self.pre_ms, self.action, self.flags]
        return [armed, latched, self.cycles] + config  # noqa: RUF005 - MicroPython knows no [*x]

    def load(self, saved: list[int], now: int) -> None:
        """After a reset: if it was armed, the host has the time of a boot to say HELLO."""
        armed, latched, self.cycles, self.timeout_ms, self.pre_ms, self.action, self.flags = saved
        if latched:
            self.state = m.LATCHED
        elif armed:
            self.state = m.BOOTING
            self._since = now

    def _as_strict(self, timeout_ms: int, action: int, flags: int) -> bool:
        return timeout_ms >= self.timeout_ms and action >= self.action and flags & m.NOWAYOUT != 0

    def _arm(self, now: int) -> None:
        self.state = m.ARMED
        self._since = now
        self._healthy_since = now

    def _expire(self, now: int) -> int:
        if self.action != m.ACTION_CYCLE:
            self._arm(now)
            return WARN
        if self.cycles >= MAX_CYCLES:
            self.state = m.LATCHED
            return LATCH
        self.cycles += 1
        self.state = m.CUT
        self._since = now
        return CUT_POWER

    def _restore(self, now: int) -> int:
        self.state = m.BOOTING
        self._since = now
        return RESTORE_POWER
