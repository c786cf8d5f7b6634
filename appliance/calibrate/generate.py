"""Generates the missing answers in the box's idle time: keeps as many requests in flight as there
is room for, none while others wait, and survives a daemon that goes and comes back.

The loop turns in the main thread; each request waits for its answer in a thread of its own.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from appliance.calibrate.answers import Kept, Sampling, Wanted
from appliance.calibrate.client import BoxAway, Client, Refused
from appliance.calibrate.pace import Load, Pace, Room
from appliance.calibrate.status import Wish
from appliance.forecast.dataset import Answered

MOST_THREADS = 64
AWAY_S = 900.0
"""A daemon that is gone for so long is not just restarting."""
BACKOFF_S = (1.0, 2.0, 5.0, 10.0)
FIRST_REFUSALS = 5
"""So many refusals before any answer, and it is not the prompts' fault."""


class CannotGenerate(Exception):
    """Says why, and what to do. Answers so far are kept."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is."""

    done: int
    total: int
    rate: float | None
    eta_s: float | None
    waits: str
    """As Status.waits."""


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    answers: list[Answered] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Prompts that the box will not answer, and why."""
    stopped: bool = False
    """By an operator, or by the time limit, before all was done."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a generation works under."""

    room: Room
    wished: Callable[[], Wish]
    tell: Callable[[Progress], None]
    until: float | None = None
    """When to stop, on `clock`."""
    clock: Callable[[], float] = time.monotonic
    turn_s: float = 0.5


class Generation:
    """One run over the missing answers."""

    def __init__(
        self, client: Client, kept: Kept, wanted: Sequence[Wanted], sampling: Sampling,
        orders: Orders,
    ) -> None:  # fmt: skip
        self._client = client
        self._kept = kept
        self._sampling = sampling
        self._orders = orders
        self._todo = deque(wanted)
        self._total = len(wanted)
        self._flying: dict[Future[Answered], Wanted] = {}
        self._outcome = Outcome()
        self._pace = Pace(orders.clock())
        self._done = 0
        self._away_since: float | None = None
        self._retry_at = 0.0
        self._tries = 0

    def run(self) -> Outcome:
        """Until all is done, or it is stopped. Raises CannotGenerate, NoRoom."""
        workers = min(MOST_THREADS, max(1, self._orders.room.places))
        with ThreadPoolExecutor(workers, thread_name_prefix="answer") as pool:
            try:
                while self._todo or self._flying:
                    if not self._turn(pool):
                        self._outcome.stopped = True
                        break
            finally:
                if self._flying:
                    self._client.abort()
        return self._outcome

    def _turn(self, pool: ThreadPoolExecutor) -> bool:
        """False: to be stopped."""
        now, wish = self._orders.clock(), self._orders.wished()
        if wish == "stop" or (self._orders.until is not None and now >= self._orders.until):
            return False
        waits = "operator" if wish == "hold" else self._start(pool, now)
        self._collect()
        idle = bool(waits) and not self._flying
        self._pace.see(self._orders.clock(), self._done, idle=idle)
        left = self._total - self._done
        self._orders.tell(
            Progress(self._done, self._total, self._pace.rate, self._pace.eta_s(left), waits)
        )
        return True

    # -- starting --------------------------------------------------------------------------------

    def _start(self, pool: ThreadPoolExecutor, now: float) -> str:
        """Fills the room there is. Why it does not, if it does not."""
        if now < self._retry_at or not self._todo:
            return "box" if now < self._retry_at else ""
        try:
            load = self._load()
        except BoxAway as error:
            self._away(now, str(error))
            return "box"
        free = self._orders.room.free(load, len(self._flying)) - len(self._flying)
        for _ in range(min(free, len(self._todo))):
            wanted = self._todo.popleft()
            self._flying[pool.submit(self._client.answer, wanted, self._sampling)] = wanted
        return "" if self._flying else "others"

    def _load(self) -> Load:
        try:
            return self._client.load()
        except Refused as error:
            raise CannotGenerate(
                f"the box does not tell how busy it is ({error}): give a key with scope metrics "
                "too, as `steelyard keys create NAME --scope infer --scope metrics` makes it"
            ) from error

    def _away(self, now: float, why: str) -> None:
        """The box is not there: later again, until it has been gone for too long."""
        self._away_since = now if self._away_since is None else self._away_since
        if now - self._away_since > AWAY_S:
            raise CannotGenerate(
                f"{why}, for {AWAY_S / 60:.0f} minutes now. Start it (`steelyard serve`) and then "
                "the calibration again: it goes on from the answers it has"
            )
        self._retry_at = now + BACKOFF_S[min(self._tries, len(BACKOFF_S) - 1)]
        self._tries += 1

    # -- ending ----------------------------------------------------------------------------------

    def _collect(self) -> None:
        """What has ended by now, after a moment's wait for it."""
        if not self._flying:
            time.sleep(self._orders.turn_s)
            return
        ended, _ = wait(self._flying, self._orders.turn_s, FIRST_COMPLETED)
        for future in ended:
            self._ended(self._flying.pop(future), future)

    def _ended(self, wanted: Wanted, future: Future[Answered]) -> None:
        try:
            answer = future.result()
        except BoxAway as error:
            self._todo.appendleft(wanted)
            self._away(self._orders.clock(), str(error))
            return
        except Refused as error:
            self._refused(wanted, error)
            return
        self._away_since, self._tries, self._retry_at = None, 0, 0.0
        self._kept.add(answer)
        self._outcome.answers.append(answer)
        self._done += 1

    def _refused(self, wanted: Wanted, error: Refused) -> None:
        if error.status in (401, 403):
            raise CannotGenerate(f"the box refuses the key: {error}")
        self._outcome.refused[wanted.prompt.id] = str(error)
        self._done += 1
        if not self._outcome.answers and len(self._outcome.refused) >= FIRST_REFUSALS:
            raise CannotGenerate(f"the box refuses every prompt, the last one because {error}")
