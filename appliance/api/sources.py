"""What the console's frames are made from: one moment of the box, gathered by `api/watch.py`."""

from dataclasses import dataclass, field

from appliance.accounts.keys import Key
from appliance.board.snapshot import BoardSnapshot
from appliance.control.correction import ControlSnapshot
from appliance.forecast.told import ForecasterSnapshot
from appliance.frames import Alarm
from appliance.ledger.writer import LedgerSnapshot
from appliance.observe.readings import Reading
from appliance.snapshot import EngineSnapshot, QueueSnapshot, SteeringSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Looked at once a second. The disk's numbers are None where it cannot be asked."""

    ready: bool = False
    degraded: tuple[str, ...] = ()
    """Each `part: why`."""
    disk_free: int | None = None
    disk_total: int | None = None
    tls_days: float | None = None
    keys: tuple[Key, ...] = ()
    engine_up_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the ledger's file says, read every ten seconds on a thread."""

    tok_today: int | None = None
    cost_today: float | None = None
    export_ms: int | None = None
    first_ms: int | None = None
    """Of the oldest entry that is kept."""
    signer: str = ""
    """Of the last seal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """What the counters and windows come to. None: nothing to tell from."""

    out_tok_s: float | None = None
    prefill_tok_s: float | None = None
    prefix_hit_pct: float | None = None
    restarts_5min: int = 0
    ttft: tuple[float | None, float | None] = (None, None)
    """p50 and p99 in milliseconds, like the next two."""
    between: tuple[float | None, float | None] = (None, None)
    latency: tuple[float | None, float | None] = (None, None)
    refused_min: int = 0
    queue_full_min: int = 0
    failed_min: int = 0
    overrun_pct: float | None = None
    """Ticks of the control loop that were not done in time, of the last minute's."""
    ended_s: float = 0.0
    """Requests that end, per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the machine's sensors say. None: unknown."""

    power_w: float | None = None
    temp_c: float | None = None
    j_per_tok: float | None = None
    """Drawn for computing, over the tokens generated in the last minute."""
    readings: tuple[Reading, ...] = ()
    too_hot: tuple[tuple[str, float, float], ...] = ()
    """Name, temperature, and the sensor's own critical limit."""
    energy_from: str = ""
    """In words, as the set-up list shows it; empty: sensors are off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """One moment. `now` is monotonic."""

    now: float
    wall_ms: int
    seq: int
    boot_id: str
    host: str
    version: str
    currency: str
    engine: EngineSnapshot
    queue: QueueSnapshot
    queue_most: int
    ledger: LedgerSnapshot
    draining: bool
    switching: bool = False
    """One model goes, another comes: that the engine is away is meant."""
    slow: Slow
    kept: Kept
    speeds: Speeds
    measured: Measured = Measured()
    steering: SteeringSnapshot = field(default_factory=SteeringSnapshot)
    control: ControlSnapshot = field(default_factory=ControlSnapshot)
    board: BoardSnapshot = field(default_factory=BoardSnapshot)
    forecaster: ForecasterSnapshot = field(default_factory=ForecasterSnapshot)
    alarms: tuple[Alarm, ...] = ()
    verified: bool | None = None
    """What the last verification found, if one ran."""

    @property
    def chain_ok(self) -> bool:
        return not self.ledger.chain_broken and self.verified is not False
