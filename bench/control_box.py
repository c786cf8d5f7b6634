"""A box without a model: the product's scheduler, driven as `engine/step.py` drives it, on a clock
that moves by what each step would cost. Nothing is drawn at random in here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from appliance.engine.commands import Pool, Submit
from appliance.engine.keeping import Costs
from appliance.engine.limits import Limits
from appliance.engine.plan import Plan, Restore, Save
from appliance.engine.scheduler import Scheduler
from appliance.engine.sequence import Sequence as Choice
from bench.control_curve import StepCost
from bench.control_policies import Daemon, Policy
from bench.control_requests import Asked, Table

STEP_TOKENS = 512
CACHED = 32
PROBED = (1, 2, 4, 8, 16)
STATE_BYTES = 23_053
"""Of a cell of the packaged model."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request with its time. `at`: seconds since the load began."""

    at: float
    asked: Asked
    pool: Pool = "a"
    key: str = "key"


@dataclass(frozen=True, slots=True)
class Size:
    """Of the box."""

    cells: int = 8192
    sequences: int = 16

    def limits(self) -> Limits:
        return Limits(self.cells, self.sequences, CACHED, STEP_TOKENS, STEP_TOKENS)


@dataclass(slots=True)
class Served:
    """What became of one request. Seconds since the load began."""

    arrival: Arrival
    first: float = 0.0
    ended: float = 0.0
    computed: int = 0
    """Tokens that went through the model for it."""
    evicted: int = 0

    @property
    def ttft(self) -> float:
        return self.first - self.arrival.at

    @property
    def e2e(self) -> float:
        return self.ended - self.arrival.at

    @property
    def needed(self) -> int:
        """Tokens that have to go through the model: the last one of an answer does not."""
        return self.arrival.asked.prompt_tokens + self.arrival.asked.length - 1

    @property
    def wasted(self) -> int:
        return self.computed - self.needed


@dataclass(slots=True)
class Totals:
    """Of a whole run, or of its part under load."""

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0
    """Sampled."""
    evictions: int = 0
    running: int = 0
    """Sequences that run, summed over the steps."""


@dataclass(slots=True)
class Ran:
    """One load on one box."""

    served: list[Served]
    queued: Totals = field(default_factory=Totals)
    """While somebody waited."""
    all: Totals = field(default_factory=Totals)


class Box:
    """Serves one load under one policy."""

    def __init__(self, size: Size, cost: StepCost, policy: Policy, everywhere: Table) -> None:
        self.scheduler = Scheduler(size.limits())
        self._daemon = Daemon(policy, everywhere)
        self._cost = cost
        self._served: dict[Choice, Served] = {}
        self.now = 0.0
        for tokens in PROBED:  # as the engine's process does when it starts
            self.scheduler.drafter.observe_step(tokens, cost.of(tokens, 0, 0, 0) * 1e3)
        self.scheduler.cache.keeping.costs = Costs(STATE_BYTES, *cost.kept_ms)

    def run(self, load: Sequence[Arrival], most_s: float = float("inf")) -> Ran:
        """The whole load, until the last answer has ended or `most_s` are over."""
        ran = Ran([Served(arrival) for arrival in load])
        self._daemon.begin(self.scheduler)
        place = 0
        while (place < len(load) or self._busy()) and self.now < most_s:
            if not self._busy():
                self.now = max(self.now, load[place].at)
            while place < len(load) and load[place].at <= self.now:
                self._submit(place, ran.served[place])
                place += 1
            self._daemon.look(self.scheduler, self.now)
            self._step(ran)
        return ran

    def _busy(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def _submit(self, number: int, served: Served) -> None:
        """In order of arrival; the engine learns of it between two steps, yet it has waited since
        it came."""
        arrival = served.arrival
        asked = arrival.asked
        # No two prompts begin with the same token, so nothing is shared.
        prompt = (number + 1, *range(-2, -asked.prompt_tokens - 1, -1))
        request = Submit(
            id=str(number),
            prompt=prompt,
            max_tokens=asked.max_tokens,
            scope=arrival.key,
            pool=arrival.pool,
        )
        (choice,) = self.scheduler.add(request, arrival.at)
        self._served[choice] = served
        self._daemon.expect(self.scheduler, choice, asked, self.now)

    def _step(self, ran: Ran) -> None:
        queued = bool(self.scheduler.waiting)
        plan = self.scheduler.schedule(self.now)
        seconds = self._move(plan) + self._cost.seconds(plan)
        self.now += seconds
        sampled = self._compute(plan)
        if plan.chunks and sampled == plan.n_tokens:
            self.scheduler.drafter.observe_step(sampled, seconds * 1e3)
        self._daemon.starts += len(plan.started)
        for totals in (ran.all, ran.queued) if queued else (ran.all,):
            totals.seconds += seconds
            totals.steps += 1
            totals.tokens += sampled
            totals.evictions += plan.preempted
            totals.running += len(self.scheduler.running)

    def _move(self, plan: Plan) -> float:
        """Seconds that saving and restoring states takes."""
        cells = 0
        for move in plan.moves:
            if isinstance(move, Save):
                move.state.data = bytearray(1)
                cells += move.state.tokens
            elif isinstance(move, Restore):
                move.state.restored = True
                cells += move.state.tokens
        return self._cost.state_seconds(cells)

    def _compute(self, plan: Plan) -> int:
        """All that the step computed is taken over; returns how many tokens were sampled."""
        sampled = 0
        for chunk in plan.chunks:
            self._served[chunk.sequence].computed += len(chunk.tokens)
            self.scheduler.computed(chunk)
            if chunk.outputs:
                sampled += 1
                self._sample(chunk.sequence)
        return sampled

    def _sample(self, choice: Choice) -> None:
        served = self._served[choice]
        if choice.generated == 0:
            served.first = choice.times.first_token = self.now
        choice.tokens.append(0)
        if choice.generated < served.arrival.asked.length:
            return
        served.ended = choice.times.ended = self.now
        served.evicted = choice.evictions
        self.scheduler.finish(choice)
        del self._served[choice]
