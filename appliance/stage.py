"""What a switch of the model is played on: the box's own parts (switching.py has the rules)."""

import asyncio
import contextlib
import logging
from functools import partial

from appliance.board.service import BoardService
from appliance.config import Config
from appliance.errors import Farewell
from appliance.ledger.rows import Action
from appliance.models import ModelFile, Stored, check_stored, memory_free, memory_need
from appliance.models.store import Store
from appliance.seat import Seat
from appliance.selftest import proven
from appliance.service import Around
from appliance.switching import Tell, Trial

log = logging.getLogger("appliance.switch")

BEHIND = 10
"""Niceness of the engine that is only tried: the one that serves comes first."""
_SPARE = 256 << 20
"""Bytes that the rest of the machine is left."""
_MORE_S = 30.0
"""Beyond two starts, the new model's and then perhaps the former's."""


class BoxStage:
    """The real one. Belongs to the event loop."""

    def __init__(self, around: Around, seat: Seat, board: BoardService) -> None:
        self._around = around
        self._config = around.config
        self._seat = seat
        self._board = board
        self._store = Store(self._config.server.state_dir)

    @property
    def model(self) -> ModelFile:
        return self._seat.model

    async def check(self, name: str, tell: Tell) -> ModelFile:
        return await asyncio.to_thread(self._checked, name, tell)

    def _checked(self, name: str, tell: Tell) -> ModelFile:
        def read(_: str, done: int, total: int) -> None:
            tell(done, total)

        stored: Stored = self._store.get(name)
        if not stored.packaged:
            stored = self._store.verify(name, tell=read)
        return check_stored(self._config, stored)

    async def test(self, model: ModelFile) -> Trial:
        ready = self._seat.snapshot.ready
        if ready is not None and ready.layers_offloaded:
            return _untested("the GPU holds the model that serves")
        need, free = await asyncio.to_thread(_room, model, self._config)
        if not free:
            return _untested("how much memory is free is not known")
        if need + _SPARE > free:
            return _untested(
                f"beside the one that serves it needs {need >> 20} MiB of memory, and "
                f"{free >> 20} MiB are free"
            )
        return Trial(load_s=(await proven(self._config, model, BEHIND)).load_seconds)

    async def drain(self, farewell: Farewell) -> None:
        service, limit_s = self._seat.service, self._config.server.drain_s
        service.supervisor.turn_away(farewell())
        left = await service.drain(limit_s)
        if left:
            log.warning("ending %d requests that did not finish within %g s", left, limit_s)

    async def change(self, model: ModelFile, farewell: Farewell) -> None:
        await self._seat.change(model, farewell)

    async def choose(self, name: str) -> None:
        await asyncio.to_thread(self._choose, name)

    def _choose(self, name: str) -> None:
        self._store.select(None if self._store.get(name).packaged else name)

    def planned(self, on: bool) -> None:
        seconds = 2 * self._config.engine.start_timeout_s + _MORE_S
        self._board.planned.ask(seconds if on else 0.0)

    def note(self, row: Action) -> None:
        self._around.ledger.act(row).add_done_callback(partial(_unwritten, row.action))

    def give_up(self, reason: str) -> None:
        log.critical("giving up: %s", reason)
        self._around.give_up(reason)


def _room(model: ModelFile, config: Config) -> tuple[int, int]:
    """Bytes that the model needs, and that are free."""
    return memory_need(model, config), memory_free()


def _untested(why: str) -> Trial:
    return Trial(note=f"it was not tried beforehand: {why}")


def _unwritten(action: str, written: "asyncio.Future[int]") -> None:
    """On the ledger's thread."""
    with contextlib.suppress(asyncio.CancelledError):
        if (error := written.exception()) is not None:
            log.error("%s is in this log alone: %s", action, error)
