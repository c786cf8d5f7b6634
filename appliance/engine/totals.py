"""The engine's running totals: only ever added to, read as a frozen `Stats`."""

from appliance.engine.plan import Plan
from appliance.engine.reports import Stats
from appliance.engine.scheduler import Scheduler
from appliance.engine.sequence import Sequence


class Totals:
    """Counters since the engine started. Tokens are counted once, where they come to be."""

    def __init__(self) -> None:
        self._steps = 0
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._prompt_seconds = 0.0
        self._predicted_tokens = 0
        self._predicted_seconds = 0.0
        self._drafted = 0
        self._accepted = 0
        self._busy = 0
        self._preemptions = 0
        self._evictions = 0
        self._tokens_max = 0
        self._compute = 0.0
        self._loop = 0.0
        self._last_step = 0.0
        self._a_peak = 0
        self._b_peak = 0
        self._wait_max = 0.0

    def step(self, plan: Plan, compute: float, loop: float, cells: int) -> None:
        """One step ran for `loop` seconds, `compute` of them inside llama.cpp."""
        self._steps += 1
        self._busy += len(plan.chunks)
        self._compute += compute
        self._loop += loop
        self._last_step = loop
        self._tokens_max = max(self._tokens_max, cells)

    def moved(self, plan: Plan) -> None:
        self._preemptions += plan.preempted
        self._evictions += plan.evicted

    def draft(self, proposed: int, accepted: int) -> None:
        self._drafted += proposed
        self._accepted += accepted

    def started(self, sequence: Sequence) -> None:
        """A choice left the queue. The choices of one request share one prompt, so what of it was
        cached counts with the first of them."""
        if sequence.choice == 0:
            self._cached_tokens += sequence.cached_tokens

    def prefilled(self, count: int) -> None:
        self._prompt_tokens += count

    def sampled(self, count: int) -> None:
        self._predicted_tokens += count

    def finished(self, sequence: Sequence, now: float) -> None:
        """Adds up the times of a choice that ends."""
        times = sequence.times
        if sequence.choice == 0 and times.started:
            self._prompt_seconds += (times.first_token or now) - times.started
        if times.first_token:
            self._predicted_seconds += now - times.first_token

    def look(self, scheduler: Scheduler, now: float) -> None:
        """Works out what would cost too much in every step."""
        pools, running = scheduler.pools, scheduler.running
        self._a_peak = pools.peak(running, batch=False)
        self._b_peak = pools.peak(running, batch=True)
        arrivals = (sequence.times.arrived for sequence in scheduler.waiting)
        self._wait_max = max(now - min(arrivals, default=now), 0.0)

    def stats(self, scheduler: Scheduler, journal_records: int, journal_room: int) -> Stats:
        """As they stand after a step; what is of the scheduler, as it stands now."""
        pool, keeping = scheduler.pool, scheduler.cache.keeping
        return Stats(
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            prompt_seconds=self._prompt_seconds,
            predicted_tokens=self._predicted_tokens,
            predicted_seconds=self._predicted_seconds,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
            busy_sequences=self._busy,
            preemptions=self._preemptions,
            evictions=self._evictions,
            tokens_max=self._tokens_max,
            compute_seconds=self._compute,
            loop_seconds=self._loop,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            kv_used=pool.used,
            kv_cached=pool.used - pool.pinned,
            kv_total=pool.total,
            last_step_ms=self._last_step * 1e3,
            journal_records=journal_records,
            journal_room=journal_room,
            a_used=pool.pinned - pool.batch,
            a_peak=self._a_peak,
            b_used=pool.batch,
            b_peak=self._b_peak,
            borrowed=scheduler.pools.borrowed,
            overflows=scheduler.overflows,
            b_evictions=scheduler.batch_evictions,
            saved=keeping.saved,
            restored=keeping.restored,
            wait_max_s=self._wait_max,
        )
