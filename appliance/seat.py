"""Where the model sits that is served: one service at a time. What outlives a model (the queue's
gate, metrics, the board) asks through here, and follows by itself when another takes the seat."""

from collections.abc import Callable, Mapping

from appliance.errors import Farewell
from appliance.models import ModelFile
from appliance.service import Around, Service
from appliance.snapshot import EngineSnapshot, QueueSnapshot
from appliance.ticket import Ticket
from appliance.trim import trim


class Seat:
    """Belongs to the event loop; any thread may read the snapshots."""

    def __init__(self, around: Around, model: ModelFile) -> None:
        self._around = around
        self.service = Service(around, model)
        self.on_change: Callable[[Service], None] = lambda service: None
        """Told of the service that has taken the seat, before it starts and again when it is
        ready."""

    @property
    def model(self) -> ModelFile:
        return self.service.model

    @property
    def snapshot(self) -> EngineSnapshot:
        """Of the engine."""
        return self.service.supervisor.snapshot

    @property
    def queue(self) -> QueueSnapshot:
        return self.service.supervisor.queue

    @property
    def tickets(self) -> Mapping[str, Ticket]:
        """The requests that have not ended."""
        return self.service.supervisor.tickets

    async def change(self, model: ModelFile, farewell: Farewell) -> None:
        """Ends the service that is there and starts one of `model`. Raises EngineCannotStart,
        PrepareError: then a service has the seat that does not serve."""
        await self.service.stop(farewell)
        self.service = Service(self._around, model, self.snapshot)
        self.on_change(self.service)
        trim()  # what the former service had
        await self.service.start()
        self.on_change(self.service)
