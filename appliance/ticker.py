"""The control loop's beat: a thread with absolute deadlines, every 10 ms.

A deadline is the one before plus the period, never now plus the period, so that the beat does not
drift. A tick that would be a whole period late or more is not made up for: it is skipped and
counted. The clock is CLOCK_MONOTONIC, so setting the time of day changes nothing.
"""

import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from appliance.control.correction import Mode, TickerSnapshot
from appliance.spread import spread

log = logging.getLogger(__name__)

PERIOD_S = 0.010
MEMORY = 2048
"""Ticks over which lateness and cost are told."""
PUBLISH_EVERY = 100
"""Ticks between two snapshots."""
FAILURES = 10
"""In a row, after which a piece of work is shut off."""
PRIORITY = 1
"""Of SCHED_RR: the lowest is ahead of everything ordinary."""
SWITCH_S = 0.0005
"""How long another thread of the daemon may go on computing when the ticker wants to run."""

STILL_S = 5.0

Work = Callable[[float], None]
"""Told the tick's time (time.monotonic()) on the ticker's thread; must return within a millisecond
and never block. One that keeps failing is shut off, and `degraded` says so."""


class _Item:
    """A piece of work, and how often in a row it has failed."""

    __slots__ = ("failed", "name", "off", "work")

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self.work = work
        self.failed = 0
        self.off = False

    def do(self, now: float) -> None:
        if self.off:
            return
        try:
            self.work(now)
            self.failed = 0
        except Exception:  # a thread's top: the other work goes on
            self._note()

    def _note(self) -> None:
        self.failed += 1
        self.off = self.failed >= FAILURES
        if self.failed == 1:
            log.exception("the control loop failed at %s; it goes on", self.name)
        elif self.off:
            log.error("the control loop does without %s: it failed %d times", self.name, FAILURES)


class Beat:
    """The deadlines: pure, told the time."""

    def __init__(self, begun: float, period_s: float = PERIOD_S) -> None:
        self.period_s = period_s
        self.due = begun + period_s
        """When the next tick is."""
        self.ticks = self.overruns = self.skipped = 0
        self.late: deque[float] = deque(maxlen=MEMORY)
        self.cost: deque[float] = deque(maxlen=MEMORY)

    def begins(self, now: float) -> None:
        """A tick begins. Those that it is too late for are given up."""
        late = max(0.0, now - self.due)
        missed = math.floor(late / self.period_s)
        self.late.append(late)
        self.skipped += missed
        self.due += missed * self.period_s

    def ends(self, begun: float, now: float) -> None:
        self.ticks += 1
        self.cost.append(now - begun)
        self.due += self.period_s
        self.overruns += now > self.due

    def snapshot(self, now: float, mode: Mode, degraded: str) -> TickerSnapshot:
        late_p50, late_p99, late_max = spread(self.late)
        cost_p50, cost_p99, _ = spread(self.cost)
        return TickerSnapshot(
            mode=mode,
            period_s=self.period_s,
            ticks=self.ticks,
            overruns=self.overruns,
            skipped=self.skipped,
            late_p50_s=late_p50,
            late_p99_s=late_p99,
            late_max_s=late_max,
            cost_p50_s=cost_p50,
            cost_p99_s=cost_p99,
            at=now,
            degraded=degraded,
        )


class Ticker:
    """Calls each of `work`, in order, at every multiple of `period_s` from its start on."""

    def __init__(
        self,
        period_s: float = PERIOD_S,
        work: Sequence[tuple[str, Work]] = (),
        *,
        first: Callable[[], bool] | None = None,
        still_s: float = STILL_S,
    ) -> None:
        """`first`: puts the thread that calls it ahead of all others, False where it may not.
        `still_s`: without a tick for so long it is degraded."""
        self._period_s, self._still_s = period_s, still_s
        self._items = [_Item(name, one) for name, one in work]
        self._first = first or ahead_of_all
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._mode: Mode = "off"
        self._chosen = threading.Event()
        self._begun = math.inf
        """When the tick at hand, or the last one, began."""
        self.beat = Beat(0.0, period_s)
        """The ticker's thread's own."""
        self._snapshot = TickerSnapshot(period_s=period_s)

    def add(self, name: str, work: Work) -> None:
        """Before `start`. `name`: as `degraded` tells it."""
        self._items.append(_Item(name, work))

    def start(self) -> Mode:
        """How it is scheduled. Where that is `plain`, it helps to let the engine run behind the
        daemon (`niced`)."""
        if self._thread is None:
            sys.setswitchinterval(SWITCH_S)
            self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)
            self._thread.start()
            self._chosen.wait(1.0)
        return self._mode

    def niced(self) -> None:
        """The engine runs behind the daemon."""
        if self._mode == "plain":
            self._mode = "nice"

    def stop(self) -> None:
        """Ends the thread after the tick it is at."""
        thread, self._thread = self._thread, None
        self._stopping = True
        if thread is not None:
            thread.join(2.0)

    @property
    def snapshot(self) -> TickerSnapshot:
        """Any thread. A thread that no longer ticks cannot say so: who reads this does."""
        found, thread = self._snapshot, self._thread
        if thread is not None and not thread.is_alive():
            return replace(found, mode="off", degraded=_DEAD)
        if thread is not None and time.monotonic() - self._begun > self._still_s:
            return replace(found, degraded=_STILL.format(seconds=self._still_s))
        return replace(found, mode=self._mode)

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        self._mode = "rr" if self._first() else "plain"
        self._chosen.set()
        log.info("the control loop ticks every %g ms (%s)", 1000 * self._period_s, self._mode)
        self.beat = beat = Beat(time.monotonic(), self._period_s)
        while not self._stopping:
            time.sleep(max(0.0, beat.due - time.monotonic()))
            self._begun = begun = time.monotonic()
            beat.begins(begun)
            for item in self._items:
                item.do(begun)
            now = time.monotonic()
            beat.ends(begun, now)
            if beat.ticks % PUBLISH_EVERY == 1:
                self._snapshot = beat.snapshot(now, self._mode, self._degraded())

    def _degraded(self) -> str:
        off = [item.name for item in self._items if item.off]
        return _SHUT_OFF.format(names=", ".join(off)) if off else ""


_SHUT_OFF = (
    "the control loop does without {names}, which kept failing: the log says why. Restart the box, "
    "and please report it"
)
_STILL = (
    "the control loop has not ticked for {seconds:g} s and more: queue order, budgets and "
    "corrections stay as they are. The machine is overloaded or was stopped; restart the box "
    "should it last"
)
_DEAD = (
    "the control loop's thread ended: queue order, budgets and corrections stay as they are. "
    "Restart the box, and please report it"
)


def ahead_of_all() -> bool:
    """Puts the calling thread ahead of all ordinary ones. False where the system does not let us:
    that takes CAP_SYS_NICE, or LimitRTPRIO= of the service."""
    try:
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(PRIORITY))
    except (OSError, AttributeError):
        return False
    return True
