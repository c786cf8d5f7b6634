"""The configuration: TOML file, environment and command line, as frozen dataclasses."""

from appliance.config.address import WILDCARDS, is_loopback
from appliance.config.api import ApiConfig, AuthConfig, SamplingConfig
from appliance.config.board import BoardConfig
from appliance.config.control import ControlConfig
from appliance.config.cost import CostConfig
from appliance.config.discovery import DiscoveryConfig
from appliance.config.engine import EngineConfig
from appliance.config.forecast import ForecastConfig
from appliance.config.ledger import LedgerConfig
from appliance.config.limits import LimitsConfig
from appliance.config.load import ConfigError, find_file, load
from appliance.config.logs import LoggingConfig
from appliance.config.model import Lora, ModelConfig
from appliance.config.sections import Config
from appliance.config.server import ServerConfig, default_state_dir
from appliance.config.show import Entry, describe, effective, reference
from appliance.config.tls import TlsConfig

__all__ = [
    "WILDCARDS",
    "ApiConfig",
    "AuthConfig",
    "BoardConfig",
    "Config",
    "ConfigError",
    "ControlConfig",
    "CostConfig",
    "DiscoveryConfig",
    "EngineConfig",
    "Entry",
    "ForecastConfig",
    "LedgerConfig",
    "LimitsConfig",
    "LoggingConfig",
    "Lora",
    "ModelConfig",
    "SamplingConfig",
    "ServerConfig",
    "TlsConfig",
    "default_state_dir",
    "describe",
    "effective",
    "find_file",
    "is_loopback",
    "load",
    "reference",
]
