"""The configuration: TOML file, environment and command line, as frozen dataclasses."""

from appliance.config.address import is_loopback
from appliance.config.load import ConfigError, find_file, load
from appliance.config.sections import (
    ApiConfig,
    AuthConfig,
    Config,
    EngineConfig,
    LimitsConfig,
    LoggingConfig,
    Lora,
    ModelConfig,
    SamplingConfig,
    ServerConfig,
    default_state_dir,
)
from appliance.config.show import Entry, describe, effective, reference

__all__ = [
    "ApiConfig",
    "AuthConfig",
    "Config",
    "ConfigError",
    "EngineConfig",
    "Entry",
    "LimitsConfig",
    "LoggingConfig",
    "Lora",
    "ModelConfig",
    "SamplingConfig",
    "ServerConfig",
    "default_state_dir",
    "describe",
    "effective",
    "find_file",
    "is_loopback",
    "load",
    "reference",
]
