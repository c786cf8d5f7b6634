"""What the commands that read the configuration share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from appliance.config import Config


DAY = click.DateTime(["%Y-%m-%d"])


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--config FILE`, as the argument `file`."""
    return click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        help="TOML file. Default: $STEELYARD_CONFIG, else /etc/steelyard/steelyard.toml.",
    )(command)


def load_config(file: Path | None) -> "Config":
    """The configuration. Raises ConfigError, which the command line reports."""
    from appliance.config import load
    from appliance.ownership import keep_owner

    config = load(file)
    keep_owner(config.server.state_dir)
    return config
