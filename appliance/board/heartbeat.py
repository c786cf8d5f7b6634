"""When the board is told that the box is well. Pure.

A heartbeat needs proof: the engine's loop has turned since the last one (it answers only between
two steps, so a step that does not end stops it; an idle engine answers too). No timer alone ever
feeds. While the engine is replaced after a death, the board is asked once to wait for it; a second
time only after progress was proven in between.
"""

from dataclasses import dataclass
from typing import Literal

from appliance.snapshot import EngineSnapshot

Reason = Literal["restart", "stop", "operator"]
REASONS: dict[Reason, int] = {"restart": 1, "stop": 2, "operator": 3}
MOST_INHIBIT_S = 900
"""The board grants no more."""
PER_TIMEOUT = 6
"""Heartbeats within a timeout: five may be lost."""
LEAST_S = 0.1


@dataclass(frozen=True, slots=True)
class Beat:
    """Feed the board."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask the board not to act for so long."""

    seconds: int
    reason: Reason


class Rule:
    """`timeout_s`: the watchdog's. `restart_s`: what an engine may take to start."""

    def __init__(self, timeout_s: float, restart_s: float) -> None:
        self.every_s = max(LEAST_S, timeout_s / PER_TIMEOUT)
        self._restart_s = restart_s
        self._sent = -1e9
        self._proven = 0.0
        self._waiting = False

    def due(self, now: float, engine: EngineSnapshot) -> Beat | Wait | None:
        """What to tell the board now, if anything."""
        if engine.state in ("backoff", "starting"):
            return self._ask_for_time()
        proven = engine.state == "ready" and engine.last_progress > self._proven
        if not proven or now - self._sent < self.every_s:
            return None
        self._sent, self._proven, self._waiting = now, engine.last_progress, False
        return Beat()

    def waits(self) -> None:
        """The board was asked to wait already, or to wait no longer: not once more for that."""
        self._waiting = True

    def _ask_for_time(self) -> Wait | None:
        if self._waiting:
            return None
        self._waiting = True
        return Wait(min(MOST_INHIBIT_S, round(self._restart_s)), "restart")
