"""What the engine is told of budgets and order: looked at each tick, sent only when it changes.

`tick` belongs to the ticker's thread. What it reads are frozen snapshots and plain numbers of their
owners; what it sends goes to the event loop, which hands it to the supervisor. That keeps the
newest `Steer` and gives it to every new engine first.
"""

import asyncio
import math
import time
from collections.abc import Callable

from appliance.config.control import A_LEAST, ControlConfig
from appliance.control.budgets import Budgets, Forecasting, Seen, fallback
from appliance.control.correction import ControlSnapshot
from appliance.engine.commands import Expect, Steer
from appliance.expected import Table
from appliance.snapshot import EngineSnapshot, SteeringSnapshot

FEW = 32
"""Answers before their spread says anything."""
ERROR_S = 1.0
"""Between two looks at how far forecasts are off."""
TAU_STEP = 0.01
"""Less of a change of tau is not worth a message."""


class Steering:
    """The budgets of one box."""

    def __init__(
        self,
        config: ControlConfig,
        *,
        engine: Callable[[], EngineSnapshot],
        batch: Callable[[], int],
        starts: Callable[[], int],
        forecaster: Callable[[], Forecasting],
        usual: Callable[[], Table],
        tell: Callable[[Steer], None],
        error: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`batch`: open requests of pool B. `starts`: requests that ever started. `usual`: how long
        answers become, of all requests alike. `error`: of pool A's forecasts, as `Seen.error`.
        All are called on the ticker's thread, but for `tell`, which gets each new order on the
        event loop."""
        self._config = config
        self._engine, self._batch, self._starts = engine, batch, starts
        self._forecaster, self._usual, self._error = forecaster, usual, error
        self._tell = tell
        self._budgets = Budgets(
            share=config.batch_share, target=config.overflow_target, least=A_LEAST
        )
        self._before = engine().stats.overflows
        """Of engines of another model."""
        self._due = -math.inf
        self._found: float | None = None
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = self._steer("missing")
        self.snapshot = SteeringSnapshot()
        """Replaced whole; any thread may read it."""
        self._note(self._told, fallback(-math.inf, forecaster()))

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the event loop, before the first engine: what that starts with is told."""
        self._loop = loop
        self._tell(self._told)

    def tick(self, now: float) -> None:
        """One cycle, which takes some ten microseconds."""
        if self._loop is None:
            return
        engine = self._engine()
        if engine.pid != self._pid:
            self._pid = engine.pid
            self._budgets.renew()
        self._look(now)
        self._budgets.tick(self._seen(engine))
        why = fallback(now, self._forecaster())
        steer = self._steer(why)
        if _differ(self._told, steer):
            self._note(steer, why)
            self._hand_over(self._loop, steer)

    def _hand_over(self, loop: asyncio.AbstractEventLoop, steer: Steer) -> None:
        try:
            loop.call_soon_threadsafe(self._tell, steer)
        except RuntimeError:  # the loop has closed: nobody is left to hear it
            return

    def _look(self, now: float) -> None:
        """What costs more to ask and changes with whole answers only."""
        if now >= self._due:
            self._due = now + ERROR_S
            self._found = self._error()

    def _seen(self, engine: EngineSnapshot) -> Seen:
        stats = engine.stats
        return Seen(
            cells=stats.kv_total or (engine.ready.n_ctx if engine.ready is not None else 0),
            a_used=stats.a_used,
            a_peak=stats.a_peak,
            b_used=stats.b_used,
            b_peak=stats.b_peak,
            batch=self._batch() > 0,
            starts=self._starts(),
            overflows=stats.overflows - self._before,
            error=self._found,
        )

    def _steer(self, why: str) -> Steer:
        config, split = self._config, self._budgets.split
        return Steer(
            policy=config.policy,
            admission=config.admission,
            forecast=not why,
            tau=self._budgets.caution.tau,
            b_cells=split.b_cells if split is not None else 0,
            ageing=config.ageing,
            max_wait_s=config.max_wait_s,
            fairness=config.fairness,
            expected=_expected(self._usual()),
        )

    def _note(self, steer: Steer, why: str) -> None:
        """Arrival is the order of `fcfs` anyway: there is nothing to fall back from."""
        self._told = steer
        why = "" if steer.policy == "fcfs" else why
        self.snapshot = SteeringSnapshot(
            policy=steer.policy,
            admission=steer.admission,
            order="fcfs" if why else steer.policy,
            fallback=why,
            since=time.monotonic() if why != self.snapshot.fallback else self.snapshot.since,
            tau=steer.tau,
            b_cells=steer.b_cells,
            steers=self.snapshot.steers + 1,
        )


def _expected(table: Table) -> Expect:
    return Expect("", table.tokens, table.survival)


def _differ(told: Steer, now: Steer) -> bool:
    """Whether the engine must hear of it."""
    if math.fabs(told.tau - now.tau) >= TAU_STEP:
        return True
    return (told.b_cells, told.forecast) != (now.b_cells, now.forecast) or (
        told.expected.survival is not now.expected.survival
        and told.expected.survival != now.expected.survival
    )


def forecast_error(control: ControlSnapshot) -> float | None:
    """How much worse forecasts are than at calibration: standard deviation over that one, of all
    token channels by their samples. None: too few to tell from."""
    known = [
        (one.correction.n, one.correction.std / one.correction.sigma)
        for one in control.channels
        if one.kind == "tokens" and one.correction.valid
        if one.correction.std is not None and one.correction.sigma
    ]
    samples = sum(n for n, _ in known)
    return sum(n * ratio for n, ratio in known) / samples if samples >= FEW else None
