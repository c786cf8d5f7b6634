"""The parts of the box that belong to one model: its engine, what prepares, forecasts and steers
its requests, and its name in the ledger. A service runs once; another model, or the same one again,
is another service (switching.py)."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from appliance import __version__, assembly
from appliance.accounting import Accounting, Unrecorded
from appliance.accounts.cost import Costing, PrefillPace, Rates
from appliance.adapters import Adapters, adapters_of
from appliance.board.snapshot import BoardSnapshot
from appliance.config import Config
from appliance.control.correction import ControlSnapshot
from appliance.errors import Farewell, shutting_down
from appliance.ledger.books import Books, Identity, boot_id, texts_of
from appliance.ledger.entry import Energy
from appliance.ledger.rows import RequestRow
from appliance.ledger.writer import Ledger
from appliance.models import ModelFile
from appliance.snapshot import EngineSnapshot, SteeringSnapshot
from appliance.tune.store import applied

log = logging.getLogger(__name__)

_FORECASTER_S = 10.0
"""Seconds that the box waits for its forecaster once the engine is ready."""
_DRAIN_STEP_S = 0.05


@dataclass(frozen=True, slots=True)
class Around:
    """The parts of the box that stay, whatever its model."""

    config: Config
    llama_commit: str
    accounting: Accounting | None
    ledger: Ledger | Unrecorded
    board: Callable[[], BoardSnapshot]
    energy: Callable[[RequestRow], Energy]
    give_up: Callable[[str], None]
    """Told when the engine cannot be kept alive."""


def identity_of(model: ModelFile, llama_commit: str, template: str = "") -> Identity:
    """What answers, as the ledger names it."""
    return Identity(
        model=model.name,
        model_sha256=model.sha256,
        template_sha256=hashlib.sha256(template.encode()).hexdigest(),
        build=f"{__version__} llama.cpp {llama_commit}",
        boot_id=boot_id(),
    )


class Service:
    """Belongs to the event loop. `start` once, then `stop`, whatever became of the start."""

    def __init__(
        self, around: Around, model: ModelFile, before: EngineSnapshot | None = None
    ) -> None:
        """`before`: the engine of the service that this one follows, at its end."""
        config, tuned = applied(around.config, model.sha256)
        if tuned:
            told = ", ".join(f"{name} {value}" for name, value in tuned.items())
            log.info("tuned settings in use: %s", told)
        accounting = around.accounting
        journal_dir = accounting.journal_dir if accounting is not None else None
        self._around = around
        self.config = config
        """With what tuning found for this model."""
        self.model = model
        self.supervisor = assembly.supervisor_of(config, model, journal_dir, before)
        self.supervisor.on_give_up = around.give_up
        self.adapters = Adapters(adapters_of(config, model))
        self.preparer = assembly.preparer_of(config, model)
        self.forecasts, self._compensation = assembly.compensated(
            config, model, accounting, around.board
        )
        self._steering = assembly.steering_of(
            config, self.supervisor, self.forecasts, self._compensation.tokens
        )
        self._ticker = assembly.ticker_of(self._compensation, self._steering)
        self.books = self._books()

    def _books(self) -> Books:
        around = self._around
        template = self.preparer.snapshot().chat_template
        return Books(
            around.ledger,
            identity_of(self.model, around.llama_commit, template),
            costing=Costing(Rates.of(around.config.cost), PrefillPace()),
            texts=texts_of(around.config.ledger),
            energy=around.energy,
        )

    @property
    def steering(self) -> SteeringSnapshot:
        """How the queue is ordered and the cells are parted now."""
        return self._steering.snapshot

    @property
    def control(self) -> ControlSnapshot:
        """The control loop's channels and its ticker."""
        return self._compensation.snapshot(self._ticker.snapshot, time.monotonic())

    async def start(self) -> None:
        """Returns when the engine has proven a decode and requests can be prepared; only now
        `books` knows the chat template. Raises EngineCannotStart, PrepareError."""
        self.forecasts.start()
        self._steering.start(asyncio.get_running_loop())
        assembly.begin_ticking(self._ticker, self.supervisor)
        for failure in await asyncio.gather(
            self.supervisor.start(), self.preparer.start(), return_exceptions=True
        ):
            if failure is not None:
                raise failure  # the engine's first: it knows best what is wrong with a model
        if not await self.forecasts.opened(_FORECASTER_S):
            log.warning("the forecaster opens slowly: till it is there, estimates are rough")
        self.books = self._books()

    async def drain(self, limit_s: float, hurried: Callable[[], bool] = lambda: False) -> int:
        """Waits until no request is open, `limit_s` have passed or `hurried`. How many are left."""
        tickets = self.supervisor.tickets
        give_up_at = time.monotonic() + limit_s
        while tickets and not hurried() and time.monotonic() < give_up_at:
            await asyncio.sleep(_DRAIN_STEP_S)
        return len(tickets)

    async def stop(self, farewell: Farewell = shutting_down) -> None:
        """Ends everything; what is still open, or comes yet, is told `farewell`. May be called
        twice."""
        await asyncio.to_thread(self._ticker.stop)
        await self.forecasts.close()
        await self.preparer.stop(farewell)
        await self.supervisor.stop(farewell)
        self.books.close()  # after the engine: its last words are in
