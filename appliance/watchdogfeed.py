"""What systemd's watchdog is told (WatchdogSec= of the unit): that the box helps itself.

Rules: it is fed from the daemon's event loop, so a loop that stands still feeds nobody, and it is
never fed by the clock alone. The engine must have proven progress within the time after which the
supervisor replaces it, and a margin: a silence beyond that means that the supervisor does not do
its work either. While there is no engine, the supervisor must come a step further within the time
that a step may take. A full disk is waited out: a restart would make no room.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from appliance.config import Config
from appliance.sdnotify import notify
from appliance.snapshot import EngineSnapshot
from appliance.supervisor import NO_ROOM

MARGIN_S = 30.0
"""What is granted beyond the time in which the box should have helped itself."""
PER_TIMEOUT = 4
"""Feeds within a timeout."""
_LOOK_S = 0.5


class Rule:
    """Whether to feed. Pure: `now` (monotonic seconds) and the engine's state are given."""

    def __init__(self, every_s: float, silence_s: float, patience_s: float) -> None:
        """`every_s`: between two feeds. `silence_s`: for how long the engine may prove nothing.
        `patience_s`: what one step of replacing or exchanging it may take."""
        self._every_s = every_s
        self._silence_s = silence_s
        self._patience_s = patience_s
        self._fed = float("-inf")
        self._step: tuple[str, int, int] = ("", 0, 0)
        """Where the supervisor stood, and since when."""
        self._since = 0.0

    def due(self, now: float, engine: EngineSnapshot) -> bool:
        """Whether systemd is to be told now that all is well."""
        step = (engine.state, engine.pid, engine.restarts)
        if step != self._step:
            self._step, self._since = step, now
        if now - self._fed < self._every_s or not self._well(now, engine):
            return False
        self._fed = now
        return True

    def _well(self, now: float, engine: EngineSnapshot) -> bool:
        if engine.state == "ready":
            return now - engine.last_progress <= self._silence_s
        return now - self._since <= self._patience_s or engine.last_failure == NO_ROOM


class WatchdogFeed:
    """Feeds systemd from the daemon's event loop. Without a watchdog it does nothing."""

    def __init__(
        self,
        config: Config,
        engine: Callable[[], EngineSnapshot],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`engine`: asked anew each time, as a switch of the model exchanges it."""
        self._timeout_s = asked_for(environment)
        self._engine = engine
        self._rule = Rule(
            self._timeout_s / PER_TIMEOUT,
            config.engine.step_timeout_s + MARGIN_S,
            config.engine.start_timeout_s + config.server.drain_s + MARGIN_S,
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Before READY=1: systemd counts from there. In the event loop that is watched."""
        if self._timeout_s and self._task is None:
            self._task = asyncio.create_task(self._run(), name="watchdog")

    async def stop(self) -> None:
        """May be called twice, and without a start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            if self._rule.due(time.monotonic(), self._engine()):
                notify("WATCHDOG=1")
            await asyncio.sleep(min(_LOOK_S, self._timeout_s / PER_TIMEOUT))


def asked_for(environment: Mapping[str, str]) -> float:
    """The watchdog's timeout in seconds, as systemd tells it; 0 where it watches nobody, or
    another process."""
    pid = environment.get("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return 0.0
    told = environment.get("WATCHDOG_USEC", "")
    return int(told) / 1e6 if told.isdecimal() else 0.0


def ask_for_start(config: Config) -> None:
    """Told as the first thing: a large model may load for longer than the unit allows."""
    notify(f"EXTEND_TIMEOUT_USEC={round((config.engine.start_timeout_s + MARGIN_S) * 1e6)}")
