"""The whole configuration. Each setting has its type, default, bounds and meaning side by side, in
the module of its section; docs/configuration.md is generated from them (`steelyard config docs`).
"""

from dataclasses import dataclass, field

from appliance.config.api import ApiConfig, AuthConfig, SamplingConfig
from appliance.config.board import BoardConfig
from appliance.config.control import ControlConfig
from appliance.config.cost import CostConfig
from appliance.config.discovery import DiscoveryConfig
from appliance.config.engine import EngineConfig
from appliance.config.forecast import ForecastConfig
from appliance.config.ledger import LedgerConfig
from appliance.config.limits import LimitsConfig
from appliance.config.logs import LoggingConfig
from appliance.config.model import ModelConfig
from appliance.config.sensors import SensorsConfig
from appliance.config.server import ServerConfig
from appliance.config.tls import TlsConfig
from appliance.config.traces import TracesConfig


@dataclass(frozen=True, slots=True)
class Config:
    """`load` makes it; nothing changes it."""

    server: ServerConfig = field(default_factory=ServerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    cost: CostConfig = field(default_factory=CostConfig)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    sensors: SensorsConfig = field(default_factory=SensorsConfig)
    forecast: ForecastConfig = field(default_factory=ForecastConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    board: BoardConfig = field(default_factory=BoardConfig)
    discovery: DiscoveryConfig = field(default_factory=DiscoveryConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    traces: TracesConfig = field(default_factory=TracesConfig)
    named: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys (`engine.threads`) that someone set. What nobody set the box may choose better: see
    `steelyard tune`."""


NAMED = "named"
"""The one field of `Config` that is no section."""
