"""Keeps the engine child alive; `tickets.py` keeps every request's fate clear when it is not.

Rules: death is noticed by the closed socket, a hang by silence (the child answers pings only
between two steps), SIGSTOP and a leak by what the kernel says. Too many deaths within the window
and the box gives up: the daemon then exits non-zero, so that what watches it (systemd, the board)
can act.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from appliance.deaths import Deaths
from appliance.engine.commands import Cancel, Command, Load, Pause, Ping, Shutdown, Slow, Submit
from appliance.engine.journal import has_room
from appliance.engine.reports import Batch, Fatal, Pong, Ready, Report, Stats
from appliance.enginechild import EngineChild, describe_exit
from appliance.errors import ApiError, EngineFailed, Farewell, Unavailable, shutting_down
from appliance.ledger.recovery import Lost, read_lost
from appliance.orders import Orders
from appliance.snapshot import EngineSnapshot, QueueSnapshot, accumulate, with_unreported
from appliance.ticket import Account, CancelReason, Ticket
from appliance.tickets import Tickets
from appliance.vitals import read_vitals
from appliance.watchdog import Cause, Policy, Watchdog, lacks_gpu

log = logging.getLogger(__name__)

WATCH_S = 0.25
_GOODBYE_S = 2.0
NO_ROOM = "waits for disk space: its token journal needs some MiB in server.state_dir"
"""As last_failure tells it: no restart of anything would help."""
_DEATH_S = 1.0
"""A child that was sent SIGKILL runs no more; its exit may take longer with much memory to free."""


class EngineCannotStart(Exception):
    """The first start failed; the message is for the operator."""


class Supervisor:
    """Owns the engine child and the tickets. All methods belong to one event loop."""

    def __init__(
        self,
        load: Load,
        policy: Policy,
        *,
        log_level: str = "info",
        before: EngineSnapshot | None = None,
    ) -> None:
        """`before`: of the supervisor that this one follows; its counters go on, and what an
        operator or the heat asked for holds on."""
        before = before or EngineSnapshot()
        self.snapshot = EngineSnapshot(
            stats=accumulate(before.stats, Stats()),
            restarts=before.restarts,
            paused=before.paused,
            slowed=before.slowed,
        )
        self._load = load
        self._policy = policy
        self._log_level = log_level
        self.on_give_up: Callable[[str], None] = lambda reason: None
        """Called once, when the engine cannot be kept alive."""
        self.niceness = 0
        """Of the engine, 0 to 19."""
        self._tickets = Tickets(self._tell_cancel)
        self._child: EngineChild | None = None
        self._ready: asyncio.Future[Ready] | None = None
        self._ended = asyncio.Event()
        self._cause: Cause | None = None
        self._deaths = Deaths(policy.deaths, policy.window_s)
        self._past = before.stats
        """Counters of the children that are gone."""
        self._watchdog: Watchdog | None = None
        self._task: asyncio.Task[None] | None = None
        self._farewell: Farewell | None = None
        """What who still comes is told; None: it does not stop."""
        self._planned = False
        self.orders = Orders(self._tickets, self._send_ready)

    # -- for the API -----------------------------------------------------------------------------

    @property
    def tickets(self) -> Mapping[str, Ticket]:
        """The requests that have not ended."""
        return self._tickets.open

    @property
    def queue(self) -> QueueSnapshot:
        return self._tickets.queue

    def waiting(self) -> list[Ticket]:
        """Those that wait, in the order in which they will start as far as that is known."""
        return self._tickets.waiting()

    def submit(self, request: Submit, account: Account | None = None) -> Ticket:
        """Hands a request to the engine; while the child restarts, it waits. `account` hears what
        becomes of it. Raises Unavailable when the box stops or has given up."""
        if self._farewell is not None or self.snapshot.state == "failed":
            raise (self._farewell or shutting_down)()
        ticket = self._tickets.add(request, account)
        if self.snapshot.state == "ready":
            self._send(request)
        return ticket

    def pause(self, on: bool) -> None:
        """Holds or releases the queue; what runs goes on."""
        self.snapshot = replace(self.snapshot, paused=on)
        self._send(Pause(on))

    def slow(self, on: bool) -> None:
        """The machine is hot: compute less, till it is not."""
        if on != self.snapshot.slowed:
            log.warning("the engine %s", "computes less: it is hot" if on else "is fast again")
            self.snapshot = replace(self.snapshot, slowed=on)
            self._send(Slow(on))

    async def restart(self, reason: str) -> None:
        """A restart that an operator asked for: does not count as a death."""
        if self.snapshot.state != "ready":
            raise Unavailable("the engine is not running, so it is starting anyway")
        log.warning("restarting the engine: %s", reason)
        self._planned = True
        self._give_up(Cause("engine_restarted", f"was restarted: {reason}"))

    def _tell_cancel(self, ticket: Ticket, reason: CancelReason) -> bool:
        """False when no engine knows the ticket."""
        if self.snapshot.state != "ready":
            return False
        self._send(Cancel(ticket.id, reason))
        return True

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the first child has proven a decode. Raises EngineCannotStart."""
        try:
            await self._raise_child()
        except _Lost as lost:
            raise EngineCannotStart(f"the engine {lost.cause.message}") from None
        self._task = asyncio.create_task(self._run(), name="supervisor")

    async def stop(self, farewell: Farewell = shutting_down) -> None:
        """Fails what is still open, ends the child. May be called twice."""
        self._farewell = farewell
        self.snapshot = replace(self.snapshot, state="stopping")
        self.fail_all(farewell())
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._child is not None:
            self._child.send(Shutdown())
            await self._child.reap(_GOODBYE_S)
        lost = self._lost()
        self._child = None
        self._past = with_unreported(self.snapshot.stats, lost.unreported)
        self.snapshot = replace(self.snapshot, stats=self._past)
        self._tickets.settle(lost)

    def fail_all(self, error: ApiError) -> None:
        """Every open request ends with this error."""
        self._tickets.fail_all(error)

    def turn_away(self, error: ApiError) -> None:
        """Every request that has not started ends with this error."""
        for ticket in self._tickets.waiting():
            self._send_ready(Cancel(ticket.id, "cancelled"))
        self._tickets.fail_waiting(error)

    async def _run(self) -> None:
        """One child after another."""
        while True:
            await self._watch()
            await self._bury()
            if not await self._next_child():
                return

    async def _next_child(self) -> bool:
        """Starts children until one is ready; false when the box gives up."""
        while True:
            if self._too_many_deaths():
                return False
            await self._wait_before_start()
            await self._wait_for_room()
            try:
                await self._raise_child()
            except _Lost:
                continue
            return True

    async def _raise_child(self) -> None:
        """Returns when a new child is ready; raises _Lost when it was lost, and is buried."""
        try:
            await self._spawn()
            await self._until_ready()
        except _Lost as lost:
            self._cause = lost.cause
            await self._bury()
            raise

    def _too_many_deaths(self) -> bool:
        now = time.monotonic()
        if not self._deaths.too_many(now):
            return False
        reason = (
            f"the engine died {self._deaths.count(now)} times within "
            f"{self._deaths.window_s:.0f} s, the last time because it {self.snapshot.last_failure}"
        )
        log.critical("giving up: %s", reason)
        self.snapshot = replace(self.snapshot, state="failed")
        self.fail_all(EngineFailed(reason, code="engine_failed"))
        self._tickets.settle(Lost())
        self.on_give_up(reason)
        return True

    async def _wait_before_start(self) -> None:
        now = time.monotonic()
        retry_at = now + self._deaths.backoff(now)
        self.snapshot = replace(self.snapshot, state="backoff", retry_at=retry_at)
        while (left := retry_at - time.monotonic()) > 0:
            self._tickets.expire_waiting()
            await asyncio.sleep(min(left, WATCH_S))

    async def _wait_for_room(self) -> None:
        """A full disk is not the engine's fault: without a journal it could only die again."""
        failed = self.snapshot.last_failure
        while self._load.journal_dir and not has_room(self._load.journal_dir):
            if self.snapshot.last_failure != NO_ROOM:
                log.error("the engine %s", NO_ROOM)
                self.snapshot = replace(self.snapshot, last_failure=NO_ROOM)
            self._tickets.expire_waiting()
            await asyncio.sleep(WATCH_S)
        self.snapshot = replace(self.snapshot, last_failure=failed)

    async def _spawn(self) -> None:
        self._ended.clear()
        self._cause = None
        self._watchdog = None
        self._ready = asyncio.get_running_loop().create_future()
        try:
            self._child = await EngineChild.launch(
                self._log_level, self._on_report, self._ended.set, self.niceness
            )
        except OSError as error:
            raise _Lost(Cause("engine_failed", f"could not be started: {error}")) from error
        self.snapshot = replace(
            self.snapshot, state="starting", pid=self._child.pid, last_progress=time.monotonic()
        )
        self._child.send(self._load)

    async def _until_ready(self) -> None:
        assert self._ready is not None
        give_up_at = time.monotonic() + self._policy.start_timeout_s
        while not self._ready.done():
            if self._ended.is_set():
                raise _Lost(self._cause or await self._cause_of_exit())
            if time.monotonic() > give_up_at:
                limit = self._policy.start_timeout_s
                raise _Lost(Cause("engine_hung", f"was not ready within {limit:.0f} s"))
            self._tickets.expire_waiting()
            await asyncio.wait([self._ready], timeout=WATCH_S / 5)
        self._welcome(self._ready.result())

    def _welcome(self, ready: Ready) -> None:
        if self._policy.require_gpu and (cause := lacks_gpu(ready)):
            raise _Lost(cause)
        for reason in ready.degraded:
            log.warning("degraded: %s", reason)
        now = time.monotonic()
        vitals = read_vitals(self.snapshot.pid)
        memory = vitals.anonymous_bytes if vitals is not None else 0
        self._watchdog = Watchdog(self._policy.running, now, memory)
        self.snapshot = replace(
            self.snapshot, state="ready", ready=ready, last_progress=now, retry_at=0.0
        )
        self.orders.welcome(paused=self.snapshot.paused, slowed=self.snapshot.slowed)

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Returns when the child is dead or has been given up."""
        while not self._ended.is_set():
            self._send(Ping(time.monotonic()))
            cause = self._examine(time.monotonic())
            if cause is not None:
                self._give_up(cause)
                return
            try:
                async with asyncio.timeout(WATCH_S):
                    await self._ended.wait()
            except TimeoutError:
                continue

    def _examine(self, now: float) -> Cause | None:
        """What is wrong with the child, if anything is."""
        assert self._watchdog is not None
        vitals = read_vitals(self.snapshot.pid)
        if vitals is not None:
            self.snapshot = replace(self.snapshot, rss_bytes=vitals.rss_bytes)
        return self._watchdog.examine(now, vitals)

    def _give_up(self, cause: Cause) -> None:
        self._cause = cause
        if self._child is not None:
            self._child.kill()

    async def _bury(self) -> None:
        """The child is dead or must be: account for it, and end what was in flight."""
        cause = self._cause or await self._cause_of_exit()
        planned, self._planned = self._planned, False
        if not planned:
            self._deaths.add(time.monotonic())
        log.error("the engine %s", cause.message)
        if self._child is not None:
            self._child.kill()
            self._child.mute()  # what it still says would be counted to the next one
            await self._child.dead(_DEATH_S)
        lost = self._lost()
        self._past = with_unreported(self.snapshot.stats, lost.unreported)
        self.snapshot = replace(
            self.snapshot,
            state="backoff",
            slots=(),
            order=(),
            restarts=self.snapshot.restarts + 1,
            last_failure=cause.message,
            stats=accumulate(self._past, Stats()),
        )
        self._tickets.order = {}
        self._tickets.engine_died(cause, lost)
        child, self._child = self._child, None  # accounted for, should `stop` come now
        if child is not None:
            await child.reap()

    async def _cause_of_exit(self) -> Cause:
        assert self._child is not None
        return Cause("engine_crashed", describe_exit(await self._child.reap()))

    def _lost(self) -> Lost:
        """What the child that is gone had written down."""
        if self._child is None or not self._load.journal_dir:
            return Lost()
        return read_lost(self._load.journal_dir, self._child.pid, self.snapshot.stats)

    # -- what the child says ---------------------------------------------------------------------

    def _on_report(self, report: Report) -> None:
        now = time.monotonic()
        match report:
            case Batch():
                for event in report.events:
                    self._tickets.deliver(event)
                self._note(report.stats, now)
            case Pong():
                self._tickets.order = {id: at for at, id in enumerate(report.waiting)}
                self.snapshot = replace(self.snapshot, slots=report.slots, order=report.waiting)
                self._note(report.stats, now)
            case Ready():
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(report)
            case Fatal():
                self._cause = Cause("engine_failed", f"said: {report.message}")

    def _note(self, stats: Stats, now: float) -> None:
        if self._watchdog is not None:
            self._watchdog.heard(now)
        self.snapshot = replace(
            self.snapshot, stats=accumulate(self._past, stats), last_progress=now
        )

    def _send(self, command: Command) -> None:
        if self._child is not None:
            self._child.send(command)

    def _send_ready(self, command: Command) -> None:
        """Nobody hears it while no engine is ready: the next one is told all."""
        if self.snapshot.state == "ready":
            self._send(command)


class _Lost(Exception):
    """The child ended before it was ready."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause
