"""The daemon's side of the prepare process: a queue, one child, and its restarts.

One job travels at a time, so the job that the child dies or hangs on is known. One that overruns
its time fails and the child is killed; one that the child dies on is tried once more, as the cause
may lie elsewhere. Waiting jobs never notice more than the delay, however many of those before them
do that: only a child that does not come up, or dies while it does nothing, counts as a failure.
Whose job is next, and who is turned away when too many wait: `turns.py`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from appliance.errors import (
    ApiError,
    BadRequest,
    ContextExceeded,
    Farewell,
    Overloaded,
    Unavailable,
    shutting_down,
)
from appliance.prepare.child import Child, ChildLost
from appliance.prepare.messages import (
    ChatJob,
    DetokenizeJob,
    Done,
    Failed,
    Job,
    Open,
    Opened,
    Phase,
    PhaseName,
    Piece,
    Pieces,
    Prepared,
    PrepareLimits,
    RenderJob,
    Text,
    TextJob,
    TokenizeJob,
    TooLong,
    Unsendable,
    VocabularyJob,
    frame,
)
from appliance.prepare.turns import Turns

log = logging.getLogger(__name__)

_ATTEMPTS = 2
"""Times that a job is tried when the child dies on it."""
_GIVE_UP = 3
"""Failures in a row after which jobs are refused rather than kept waiting."""
_BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_TIMEOUTS: dict[PhaseName | None, tuple[str, str, str]] = {
    "template": ("template_timeout", "messages", "rendering the chat template"),
    "grammar": ("grammar_timeout", "grammar", "compiling the grammar or schema"),
    "tokenize": ("prepare_timeout", "messages", "tokenising the prompt"),
    None: ("prepare_timeout", "messages", "preparing the request"),
}


Answer: TypeAlias = Done | Failed | TooLong


class PrepareError(Exception):
    """The prepare process cannot be started."""


class PrepareSnapshot(msgspec.Struct, frozen=True):
    """What readiness and metrics may know."""

    alive: bool = False
    """It takes jobs now."""
    pid: int = 0
    restarts: int = 0
    timeouts: int = 0
    """Jobs that overran a time limit."""
    waiting: int = 0
    last_failure: str = ""
    chat_template: str = ""
    template_source: Literal["config", "model", "fallback"] = "fallback"


class _Ticket:
    """One job on its way."""

    def __init__(self, job: Job, key: str) -> None:
        try:
            self.frame = frame(job)
        except Unsendable as error:
            raise BadRequest(
                f"the request holds text or numbers that no model can take: {error}"
            ) from error
        self.key = key
        self.attempts = 0
        self.answer: asyncio.Future[Prepared | Pieces | Text] = (
            asyncio.get_running_loop().create_future()
        )

    def resolve(self, report: Answer) -> None:
        match report:
            case Done() if not self.answer.done():
                self.answer.set_result(report.result)
            case Failed():
                self.fail(BadRequest(report.message, param=report.param, code=report.code))
            case TooLong():
                # Not counted but certain: said so, as every number that is not exact.
                self.fail(ContextExceeded(report.least_tokens, report.n_ctx, at_least=True))

    def fail(self, error: ApiError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Preparer:
    """Prepares requests. All methods belong to the event loop that called `start`. `key` is the id
    of the key that asks: keys take turns."""

    def __init__(
        self,
        model_path: str,
        limits: PrepareLimits | None = None,
        chat_template: str | None = None,
    ) -> None:
        """`chat_template` is used instead of the model's own."""
        self._limits = limits or PrepareLimits()
        self._opening = Open(model_path, self._limits, chat_template)
        self._waiting: Turns[_Ticket] = Turns()
        self._wake = asyncio.Event()
        self._child: Child | None = None
        self._opened: Opened | None = None
        self._runner: asyncio.Task[None] | None = None
        self._failures = 0
        self._restarts = 0
        self._timeouts = 0
        self._last_failure = ""
        self._farewell: Farewell | None = None
        """What who still comes is told; None: it does not stop."""

    async def start(self) -> None:
        """Returns when the child is ready. Raises PrepareError when it cannot start."""
        try:
            await self._launch()
        except ChildLost as error:
            raise PrepareError(f"the prepare process cannot start: {error}") from error
        self._runner = asyncio.create_task(self._run(), name="prepare")

    async def stop(self, farewell: Farewell = shutting_down) -> None:
        """Ends the child; jobs still waiting get `farewell`'s error. May be called twice."""
        self._farewell = farewell
        if self._runner is not None:
            self._runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._runner
            self._runner = None
        await self._drop(kill=False)
        self._refuse_all(farewell)

    def snapshot(self) -> PrepareSnapshot:
        child = self._child
        return PrepareSnapshot(
            alive=child is not None and child.alive,
            pid=child.pid if child is not None else 0,
            restarts=self._restarts,
            timeouts=self._timeouts,
            waiting=len(self._waiting),
            last_failure=self._last_failure,
            chat_template=self._opened.chat_template if self._opened else "",
            template_source=self._opened.template_source if self._opened else "fallback",
        )

    async def chat(self, job: ChatJob, key: str = "") -> Prepared:
        """Renders, tokenises and constrains a chat."""
        result = await self._ask(job, key)
        assert isinstance(result, Prepared)
        return result

    async def text(self, job: TextJob, key: str = "") -> Prepared:
        """Tokenises (or checks) and constrains a raw prompt."""
        result = await self._ask(job, key)
        assert isinstance(result, Prepared)
        return result

    async def render(self, job: ChatJob, key: str = "") -> str:
        """The chat's prompt text."""
        result = await self._ask(RenderJob(job), key)
        assert isinstance(result, Text)
        return result.text

    async def tokenize(self, job: TokenizeJob, key: str = "") -> tuple[Piece, ...]:
        result = await self._ask(job, key)
        assert isinstance(result, Pieces)
        return result.pieces

    async def detokenize(self, tokens: Sequence[int], key: str = "") -> str:
        """The tokens' text, control tokens included."""
        result = await self._ask(DetokenizeJob(list(tokens)), key)
        assert isinstance(result, Text)
        return result.text

    async def vocabulary(self) -> tuple[bytes, ...]:
        """Every token's piece by its id."""
        result = await self._ask(VocabularyJob(), "")
        assert isinstance(result, Pieces)
        return tuple(piece.piece for piece in result.pieces)

    async def _ask(self, job: Job, key: str) -> Prepared | Pieces | Text:
        """Queues the job. A caller that is cancelled takes its job out of the queue again."""
        self._admit(key)
        ticket = _Ticket(job, key)
        self._join(ticket)
        try:
            return await ticket.answer
        finally:
            self._waiting.leave(key, ticket)

    def _admit(self, key: str) -> None:
        if self._farewell is not None or self._runner is None:
            raise (self._farewell or shutting_down)()
        if self._child is None and self._failures >= _GIVE_UP:
            raise Unavailable(f"requests cannot be prepared: {self._last_failure}")
        if self._full() and not self._waiting.may_give_way(key):
            raise Overloaded(
                f"{len(self._waiting)} requests wait to be prepared already", retry_after=1.0
            )

    def _join(self, ticket: _Ticket) -> None:
        if self._full() and (other := self._waiting.give_way(ticket.key)) is not None:
            other.fail(
                Overloaded(
                    f"{len(self._waiting) + 1} requests wait to be prepared, most of them of this "
                    "key: the newest makes room for another key's",
                    retry_after=1.0,
                )
            )
        self._waiting.join(ticket.key, ticket)
        self._wake.set()

    def _full(self) -> bool:
        return len(self._waiting) >= self._limits.waiting

    async def _run(self) -> None:
        """Keeps a child alive and feeds it."""
        while True:
            try:
                if self._child is None:
                    await self._relaunch()
                await self._feed()
            except _LostOnJob as error:
                await self._lost(str(error), failures=0)
            except ChildLost as error:
                await self._lost(str(error))
            except Exception:
                log.exception("the prepare client has a bug")
                await self._lost("a bug in the daemon: see the log")

    async def _feed(self) -> None:
        """Does the waiting jobs, then waits for more or for the child's end."""
        child = self._child
        assert child is not None
        while self._waiting:
            await self._do(child, self._waiting.next())
        child.check()
        self._wake.clear()
        await self._wake.wait()

    async def _do(self, child: Child, ticket: _Ticket) -> None:
        if ticket.answer.done():
            return
        ticket.attempts += 1
        try:
            ticket.resolve(await self._exchange(child, ticket.frame))
            self._failures = 0
        except _Overrun as overrun:
            self._timeouts += 1
            ticket.fail(_timeout(overrun.phase, overrun.limit))
            raise _LostOnJob(f"killed: a job overran its time while {overrun.doing}") from None
        except ChildLost as lost:
            self._retry(ticket)
            raise _LostOnJob(str(lost)) from lost
        except asyncio.CancelledError:
            self._waiting.again(ticket.key, ticket)
            raise

    async def _exchange(self, child: Child, data: bytes) -> Answer:
        """Sends a job and waits for its answer, phase by phase."""
        limits = self._limits
        end = time.monotonic() + limits.prepare_s
        phase: PhaseName | None = None
        allowed = limits.prepare_s
        try:
            async with asyncio.timeout(limits.prepare_s):
                await child.send(data)
            while True:
                report = await child.report(max(0.0, min(allowed, end - time.monotonic())))
                if isinstance(report, Answer):
                    return report
                if not isinstance(report, Phase):
                    raise ChildLost(getattr(report, "message", "it answered out of turn"))
                phase = report.name
                allowed = self._allowed(phase)
        except TimeoutError as error:
            raise _Overrun(phase, allowed) from error

    def _allowed(self, phase: PhaseName) -> float:
        limits = self._limits
        match phase:
            case "template":
                return limits.template_s
            case "grammar":
                return limits.grammar_compile_s
            case "tokenize":
                return limits.prepare_s

    def _retry(self, ticket: _Ticket) -> None:
        if ticket.attempts < _ATTEMPTS:
            self._waiting.again(ticket.key, ticket)
            return
        ticket.fail(
            BadRequest(
                "preparing this request ended the process that does it, twice: its messages, "
                "schema or grammar are more than the box can take",
                code="prepare_failed",
            )
        )

    async def _lost(self, reason: str, failures: int = 1) -> None:
        self._last_failure = reason
        self._failures += failures
        self._restarts += 1
        log.warning("prepare process lost: %s", reason)
        await self._drop(kill=True)
        if self._failures >= _GIVE_UP:
            self._refuse_all(lambda: Unavailable(f"requests cannot be prepared: {reason}"))

    async def _relaunch(self) -> None:
        pause = _BACKOFF_S[min(max(self._failures - 1, 0), len(_BACKOFF_S) - 1)]
        await asyncio.sleep(pause)
        await self._launch()

    async def _launch(self) -> None:
        self._child, self._opened = await Child.launch(self._opening, self._wake.set)

    async def _drop(self, *, kill: bool) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end(kill=kill)

    def _refuse_all(self, error: Callable[[], ApiError]) -> None:
        while self._waiting:
            self._waiting.next().fail(error())


class _LostOnJob(ChildLost):
    """The child died, or had to be killed, on a job: whoever sent that has to answer for it."""


class _Overrun(Exception):
    """A job's verdict: it took too long."""

    def __init__(self, phase: PhaseName | None, limit: float) -> None:
        super().__init__()
        self.phase = phase
        self.limit = limit
        self.doing = _TIMEOUTS[phase][2]


def _timeout(phase: PhaseName | None, limit: float) -> BadRequest:
    code, param, doing = _TIMEOUTS[phase]
    return BadRequest(f"{doing} took longer than {limit:g} s", param=param, code=code)
