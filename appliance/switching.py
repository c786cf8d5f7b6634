"""From one model to another while the box serves.

Rules
1. The new model is read, loaded and decoded with in a child before anything is taken from the one
   that serves: what cannot be served costs nobody anything.
2. One model at a time: what runs may end, then the former goes and the new one comes. The listener
   stays; who asks meanwhile is told at once to come again.
3. The choice is stored when the new model serves, not before: whenever the box dies, its next
   start serves the former or the new model.
4. If the new model does not come, the former comes back by itself. If that does not come either,
   the box gives up, and whatever watches it starts it again.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from appliance.errors import ApiError, Farewell, Unavailable
from appliance.gguf import BadModel
from appliance.ledger.rows import Action
from appliance.models import ModelFile
from appliance.prepare.client import PrepareError
from appliance.sdnotify import notify
from appliance.snapshot import ModelSwitch, SwitchEnd, SwitchPhase, SwitchResult
from appliance.supervisor import EngineCannotStart

log = logging.getLogger("appliance.switch")

REASONS = (BadModel, EngineCannotStart, PrepareError)
"""Why a model cannot be served, in words for the operator; all else is a bug of ours."""
_UNKNOWN_S = 10.0
"""Until a model's loading was timed: when who asks meanwhile shall come again."""
_BEFORE_S, _LONGEST_S = 2.0, 60.0

Tell = Callable[[int, int], None]
"""Bytes read, of how many. Any thread."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A model that loads and decodes here, or was not tried."""

    load_s: float = 0.0
    note: str = ""
    """Why it was not tried beforehand."""


class Stage(Protocol):
    """What a switch is played on; `stage.BoxStage` is the real one."""

    @property
    def model(self) -> ModelFile: ...

    async def check(self, name: str, tell: Tell) -> ModelFile:
        """The model of that name, read again. Raises BadModel."""
        ...

    async def test(self, model: ModelFile) -> Trial:
        """Raises EngineCannotStart, PrepareError."""
        ...

    async def drain(self, farewell: Farewell) -> None:
        """What waits is turned away, what runs may end."""
        ...

    async def change(self, model: ModelFile, farewell: Farewell) -> None:
        """Returns when the model serves. Raises EngineCannotStart, PrepareError."""
        ...

    async def choose(self, name: str) -> None:
        """From the next start on. Durable. Raises BadModel."""
        ...

    def planned(self, on: bool) -> None:
        """Whether the engine is away on purpose: nobody shall act on that."""
        ...

    def note(self, row: Action) -> None:
        """An entry of the ledger."""
        ...

    def give_up(self, reason: str) -> None:
        """No model can be served."""
        ...


class Switch:
    """The one switch of the box. Belongs to the event loop."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._state = ModelSwitch()
        self._read = (0, 0)
        self._retry_s = _UNKNOWN_S
        self._away_since: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def state(self) -> ModelSwitch:
        """How it stands, and how the last one ended."""
        if self._state.phase != "checking":
            return self._state
        done, total = self._read
        return replace(self._state, done=done, total=total)

    def refusal(self) -> ApiError | None:
        """What a request is told that comes now; None where it may come in."""
        return self._farewell() if self._state.away else None

    def begin(self, target: str, by: Action) -> bool:
        """Goes over to the model of that name, soon; `by` says who asked. False, and nothing
        happens, while a switch runs."""
        if self._state.phase != "none" or self._closing:
            return False
        source = self._stage.model.name
        self._read, self._away_since, self._retry_s = (0, 0), None, _UNKNOWN_S
        self._state = replace(
            self._state, source=source, target=target, note="", began_ms=_wall_ms()
        )
        self._enter("checking")
        self._stage.note(replace(by, action="model.use", target=target, detail={"from": source}))
        self._task = asyncio.create_task(self._run(by), name="switch")
        return True

    async def close(self) -> None:
        """The box stops: so does the switch, wherever it is."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, by: Action) -> None:
        try:
            end = await self._played()
        except asyncio.CancelledError:
            self._end(self._ended("stopped", "the box was stopped: ask again"), by)
            raise
        self._end(end, by)

    async def _played(self) -> SwitchEnd:
        former = self._stage.model
        try:
            model = await self._stage.check(self._state.target, self._reads)
            self._enter("testing")
            tested = await self._stage.test(model)
        except Exception as error:  # nothing has been touched yet
            return self._ended("kept", _words(error))
        self._retry_s = tested.load_s + _BEFORE_S if tested.load_s else _UNKNOWN_S
        self._state = replace(self._state, note=tested.note)
        self._away_since = time.monotonic()
        try:
            self._enter("draining")
            await self._stage.drain(self._farewell)
            self._enter("loading")
            self._stage.planned(True)
            await self._stage.change(model, self._farewell)
            await self._stage.choose(self._state.target)
        except Exception as error:
            return await self._back(former, _words(error))
        self._stage.planned(False)
        return self._ended("switched")

    async def _back(self, former: ModelFile, why: str) -> SwitchEnd:
        log.error("%s cannot be served: %s", self._state.target, why)
        self._enter("returning")
        try:
            await self._stage.change(former, self._farewell)
        except Exception as error:
            reason = f"{why}; and {former.name}, which was served before: {_words(error)}"
            self._stage.give_up(reason)
            return self._ended("failed", reason)
        self._stage.planned(False)
        return self._ended("returned", why)

    def _reads(self, done: int, total: int) -> None:
        """On a thread, which nobody can cancel."""
        if self._closing:
            raise BadModel("the box stops")
        self._read = done, total

    def _enter(self, phase: SwitchPhase) -> None:
        self._state = replace(self._state, phase=phase)
        source, target = self._state.source, self._state.target
        log.warning("from %s to %s: %s", source, target, phase)
        notify(f"STATUS=from {source} to {target}: {phase}")

    def _ended(self, result: SwitchResult, why: str = "") -> SwitchEnd:
        since = self._away_since
        return SwitchEnd(
            result=result,
            source=self._state.source,
            target=self._state.target,
            why=why,
            note=self._state.note,
            away_s=round(time.monotonic() - since, 3) if since is not None else 0.0,
            ended_ms=_wall_ms(),
        )

    def _end(self, end: SwitchEnd, by: Action) -> None:
        self._state = ModelSwitch(last=end)
        say = log.info if end.result == "switched" else log.error
        say("from %s to %s: %s %s", end.source, end.target, end.result, end.why or end.note)
        if end.result != "stopped":
            notify(f"STATUS=serving {self._stage.model.name}")
        detail = {
            "from": end.source,
            "sha256": self._stage.model.sha256,
            "why": end.why,
            "note": end.note,
            "away_s": end.away_s,
        }
        row = replace(by, wall_ns=time.time_ns(), target=end.target, detail=detail)
        self._stage.note(replace(row, action=f"model.{end.result}"))

    def _farewell(self) -> ApiError:
        return Unavailable(
            f"the box goes over from the model {self._state.source} to {self._state.target}: "
            "send the request again in a moment",
            retry_after=min(self._retry_s, _LONGEST_S),
            code="switching",
        )


def _words(error: Exception) -> str:
    """For the operator. A bug has a traceback in the log."""
    if isinstance(error, REASONS):
        return str(error)
    log.error("the switch failed by a bug of ours", exc_info=error)
    return f"the box failed on it ({type(error).__name__}): its log tells why"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
