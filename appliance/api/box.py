"""What the HTTP interface stands on: put together by the daemon, read by every route."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from appliance.accounts.keys import KeyStore
from appliance.accounts.quotas import Quotas
from appliance.adapters import Adapters
from appliance.api.idempotency import Answers
from appliance.api.logprobs import Pieces
from appliance.api.ports import Admission, BoardKeeper, Ledger, NoSwitch, Supervisor, Switch
from appliance.board.snapshot import BoardSnapshot
from appliance.config import Config
from appliance.control.correction import ControlSnapshot
from appliance.forecast.encoder import Encoder
from appliance.forecasts import Forecasts
from appliance.ledger.books import Books
from appliance.models import ModelFile
from appliance.observe.hostsensors import HostSensors
from appliance.observe.metrics import Metrics
from appliance.outlook import Outlook
from appliance.prepare.client import Preparer
from appliance.snapshot import SteeringSnapshot
from appliance.tls import TlsState

if TYPE_CHECKING:
    from appliance.api.spans import Tell


@dataclass(frozen=True, slots=True)
class Aboard:
    """What is known of a live request beside its ticket."""

    key_name: str
    tenant: str
    scenario: str
    tier: str
    outlook: Outlook | None = None
    """What is foreseen of it; None while forecasts are off."""


@dataclass(frozen=True, slots=True)
class Box:
    """The parts of one running appliance, while it serves one model."""

    config: Config
    keys: KeyStore
    preparer: Preparer
    supervisor: Supervisor
    admission: Admission
    model: ModelFile
    metrics: Metrics
    ledger: Ledger
    books: Books
    started_at: float
    """Wall clock, seconds since 1970."""
    version: str
    llama_commit: str
    quotas: Quotas = field(default_factory=Quotas)
    answers: Answers = field(default_factory=Answers)
    tls: TlsState | None = None
    encoder: Encoder = field(default_factory=Encoder)
    sensors: HostSensors = field(default_factory=HostSensors)
    forecasts: Forecasts = field(default_factory=Forecasts)
    control: Callable[[], ControlSnapshot] = ControlSnapshot
    """What the control loop has measured and corrected by now."""
    steering: Callable[[], SteeringSnapshot] = SteeringSnapshot
    """How the queue is ordered and the cells are parted now."""
    board: Callable[[], BoardSnapshot] = BoardSnapshot
    """What is known of the board now."""
    board_keeper: BoardKeeper | None = None
    """Who has the board do something."""
    switch: Switch = field(default_factory=NoSwitch)
    """What goes over to another model."""
    adapters: Adapters = field(default_factory=Adapters)
    """The LoRA adapters beside the model."""
    tell: "Tell | None" = None
    """Who hears of each request's end, for a collector of traces."""
    aboard: dict[str, Aboard] = field(default_factory=dict)
    """The live requests by id."""
    pieces: Pieces = field(init=False)
    """The texts of the model's tokens."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pieces", Pieces(self.preparer))

    @property
    def fingerprint(self) -> str:
        """Which build gave the answer with which weights; starts with "b" as llama-server's."""
        return f"b{self.llama_commit[:8] or 'unknown'}-{self.model.sha256[:12]}"

    @property
    def n_ctx(self) -> int:
        """Tokens that one request may use."""
        ready = self.supervisor.snapshot.ready
        return ready.n_ctx if ready is not None else self.config.engine.context


_PINNED = "steelyard.box"


def pin(request: Request) -> Box:
    """The box as it is now serves the request to its end: what was tokenised for one model must
    not reach another's engine."""
    box = request.app.state.box
    assert isinstance(box, Box)
    request.scope[_PINNED] = box
    return box


def box_of(request: Request) -> Box:
    """The box that serves this request."""
    box = request.scope[_PINNED]
    assert isinstance(box, Box)
    return box
