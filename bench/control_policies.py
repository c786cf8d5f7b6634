"""How a simulated box is steered: by the messages that the daemon sends to the real engine, and by
the daemon's own budgets (`control/budgets.py`), which follow what happens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from appliance.config.control import A_LEAST, ControlConfig
from appliance.control.budgets import Budgets, Seen
from appliance.engine.commands import Admission, Expect, Steer
from appliance.engine.commands import Policy as Ordering
from appliance.engine.scheduler import Scheduler
from appliance.engine.sequence import Sequence as Choice
from bench.control_requests import Asked, Table, shuffled

LOOK_S = 0.25
"""The daemon sees the engine's peaks so often."""
_DEFAULTS = ControlConfig()

Foresight = Callable[[Sequence[Asked], int], list[Asked]]


def as_forecast(asked: Sequence[Asked], seed: int) -> list[Asked]:
    return list(asked)


def foreseen(asked: Sequence[Asked], seed: int) -> list[Asked]:
    """By one who knows every length."""
    return [one.foreseen() for one in asked]


@dataclass(frozen=True, slots=True)
class Policy:
    """`ordering` None: nobody steers; whatever prompt finds cells starts, in order of arrival."""

    name: str
    ordering: Ordering | None = None
    admission: Admission = "peak"
    foresight: Foresight = as_forecast
    own: bool = True
    """Whether each request counts with its own forecast, not with what is known of all."""
    ageing: float = _DEFAULTS.ageing
    max_wait_s: float = _DEFAULTS.max_wait_s
    fairness: bool = _DEFAULTS.fairness
    tau: float | None = None
    """None: the daemon's, which follows how often cells run out."""

    def steer(self, everywhere: Table) -> Steer | None:
        """The first message."""
        if self.ordering is None:
            return None
        return Steer(
            policy=self.ordering,
            admission=self.admission,
            forecast=self.own,
            tau=self.tau if self.tau is not None else 0.6,
            ageing=self.ageing,
            max_wait_s=self.max_wait_s,
            fairness=self.fairness,
            expected=Expect("", everywhere.tokens, everywhere.survival),
        )


FCFS = Policy("fcfs")
OURS = Policy("ours", "expected-cost")
POLICIES = (
    FCFS,
    OURS,
    Policy("arrival", "fcfs", own=False),
    Policy("placebo", "shuffled"),
    Policy("strangers", "expected-cost", foresight=shuffled),
    Policy("reserve", "fcfs", "reserve"),
    Policy("fill", "fcfs", "fill"),
    Policy("oracle", "expected-cost", foresight=foreseen),
    Policy("oracle, no ageing", "expected-cost", foresight=foreseen, ageing=0.0, max_wait_s=1e6),
)
"""arrival: peak admission alone, without a forecaster. placebo: order by chance. strangers: each
request with another one's forecast. The last one bounds the mean, whatever it does to the tail."""
RULES = (
    Policy("reserve", "fcfs", "reserve"),
    Policy("fill", "fcfs", "fill"),
    Policy("peak", "fcfs"),
    Policy("peak, no forecaster", "fcfs", own=False),
    Policy("peak, oracle", "fcfs", foresight=foreseen),
    FCFS,
)
"""Who is let in, all in order of arrival."""


@dataclass(slots=True)
class Daemon:
    """What the daemon does about a scheduler: steers it first, then as its budgets move."""

    policy: Policy
    everywhere: Table
    starts: int = 0
    _told: Steer | None = None
    _due: float = 0.0
    _budgets: Budgets = field(init=False)

    def __post_init__(self) -> None:
        self._told = self.policy.steer(self.everywhere)
        share, target = _DEFAULTS.batch_share, _DEFAULTS.overflow_target
        self._budgets = Budgets(share=share, target=target, least=A_LEAST)

    def begin(self, scheduler: Scheduler) -> None:
        if self._told is not None:
            scheduler.steer(self._told)

    def expect(self, scheduler: Scheduler, choice: Choice, asked: Asked, now: float) -> None:
        if self._told is not None and asked.table is not None:
            table = asked.table
            expect = Expect(choice.request.id, table.tokens, table.survival)
            scheduler.expect(choice, expect, now)

    def look(self, scheduler: Scheduler, now: float) -> None:
        """Every LOOK_S; a message only where something moved."""
        if self._told is None or now < self._due:
            return
        self._due = now + LOOK_S
        self._budgets.tick(_seen(scheduler, self.starts))
        split = self._budgets.split
        steer = replace(
            self._told,
            b_cells=split.b_cells if split is not None else 0,
            tau=self.policy.tau if self.policy.tau is not None else self._budgets.caution.tau,
        )
        if steer != self._told:
            self._told = steer
            scheduler.steer(steer)


def _seen(scheduler: Scheduler, starts: int) -> Seen:
    pools, running = scheduler.pools, scheduler.running
    return Seen(
        cells=scheduler.pool.total,
        a_used=pools.held(batch=False),
        a_peak=pools.peak(running, batch=False),
        b_used=pools.held(batch=True),
        b_peak=pools.peak(running, batch=True),
        batch=any(one.batch for one in (*running, *scheduler.waiting)),
        starts=starts,
        overflows=scheduler.overflows,
    )
